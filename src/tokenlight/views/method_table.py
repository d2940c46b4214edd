"""The table of methods, from plain rows: it can be drawn without torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class MethodRow:
    """What the table says of a method."""

    name: str
    title: str  # what papers call it
    paper: str
    signed: bool
    class_specific: bool
    cost: str  # in words


def method_table(rows: Iterable[MethodRow]) -> "Table":
    """All methods: identifier, paper's name, paper, signed, class-specific, passes."""
    from rich.table import Table  # here: shell completion reads rows too, and draws nothing

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("method", "papers call it", "paper", "signed", "class-specific", "passes"):
        table.add_column(column, no_wrap=column == "method", style="cyan" if column == "method" else "")
    for row in rows:
        signed, specific = ("yes" if fact else "no" for fact in (row.signed, row.class_specific))
        table.add_row(row.name, row.title, row.paper, signed, specific, row.cost)
    return table
