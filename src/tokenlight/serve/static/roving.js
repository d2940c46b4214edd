// A grid that is one stop of the Tab key; arrows move inside it.

/** `rows`: elements [row][column]. */
export function roveGrid(grid, rows) {
  let current = rows[0]?.[0];
  for (const cell of rows.flat()) cell.tabIndex = -1;
  if (current) current.tabIndex = 0;
  const place = new Map(rows.flatMap((row, i) => row.map((cell, j) => [cell, [i, j]])));
  const settle = (cell) => {
    current.tabIndex = -1;
    current = cell;
    current.tabIndex = 0;
  };
  grid.addEventListener("focusin", (event) => place.has(event.target) && settle(event.target));
  grid.addEventListener("keydown", (event) => {
    const [row, column] = place.get(event.target) ?? [];
    const goal = row === undefined ? undefined : steps(row, column, rows)[event.key];
    if (!goal) return;
    event.preventDefault();
    rows[goal[0]]?.[goal[1]]?.focus();
  });
}

function steps(row, column, rows) {
  return {
    ArrowRight: [row, column + 1],
    ArrowLeft: [row, column - 1],
    ArrowDown: [row + 1, column],
    ArrowUp: [row - 1, column],
    Home: [row, 0],
    End: [row, rows[row].length - 1],
    PageUp: [0, column],
    PageDown: [rows.length - 1, column],
  };
}
