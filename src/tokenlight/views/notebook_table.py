"""The benchmark's table in a notebook, in the notebook's own colors: light or dark."""

from collections.abc import Sequence
from html import escape

from tokenlight.results.table import Cell, Line, Table
from tokenlight.views.benchmark_table import ARROWS, DAGGER, all_decimals, facts, legend, minus

SMALL = "opacity: .7; font-size: .85em"


def table_html(table: Table) -> str:
    """With what was run above, and what its signs mean below."""
    digits = all_decimals(table)
    head = "".join(f"<th>{escape(column.title)} {ARROWS[column.direction]}</th>" for column in table.columns)
    rows = [row(line, digits) for line in table.methods]
    if table.controls:
        rows += [f'<tr><td colspan="{len(table.columns) + 1}"><i>controls</i></td></tr>']
        rows += [row(line, digits) for line in table.controls]
    above, below = ("<br>".join(map(escape, lines)) for lines in (facts(table), legend(table)))
    return (
        f'<div><p style="{SMALL}">{above}</p><table><thead><tr><th>method</th>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table><p style="{SMALL}">{below}</p></div>'
    )


def row(line: Line, digits: Sequence[int]) -> str:
    cells = "".join(cell_html(cell, d) for cell, d in zip(line.cells, digits, strict=True))
    return f"<tr><td>{escape(line.title)}</td>{cells}</tr>"


def cell_html(cell: Cell, digits: int) -> str:
    mean, low, high = (minus(f"{value:.{digits}f}") for value in (cell.mean, cell.low, cell.high))
    shown = f"<b>{mean}</b>" if cell.best else mean + (DAGGER if cell.level else "")
    return f'<td>{shown} <span style="{SMALL}">[{low}, {high}]</span></td>'
