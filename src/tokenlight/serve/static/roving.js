// Roving tab index: a grid has one tab stop, and arrow keys move inside it.

/** `rows`: elements [row][column]. */
export function roveGrid(grid, rows) {
  let current = rows[0]?.[0];
  for (const cell of rows.flat()) cell.tabIndex = -1;
  if (current) current.tabIndex = 0;
  const positions = new Map(rows.flatMap((row, i) => row.map((cell, j) => [cell, [i, j]])));
  const setCurrent = (cell) => {
    current.tabIndex = -1;
    current = cell;
    current.tabIndex = 0;
  };
  grid.addEventListener("focusin", (event) => positions.has(event.target) && setCurrent(event.target));
  grid.addEventListener("keydown", (event) => {
    const [row, column] = positions.get(event.target) ?? [];
    const next = row === undefined ? undefined : steps(row, column, rows)[event.key];
    if (!next) return;
    event.preventDefault();
    rows[next[0]]?.[next[1]]?.focus();
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
