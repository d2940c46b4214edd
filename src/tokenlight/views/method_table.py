"""The table of methods, from plain rows: it can be drawn without torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 140  # columns of a terminal from which papers have room


@dataclass(frozen=True)
class MethodRow:
    """What the table says of a method."""

    name: str
    title: str  # what papers call it
    summary: str  # what it does
    paper: str
    signed: bool
    class_specific: bool
    cost: str  # in words


def method_table(rows: Iterable[MethodRow], width: int = WIDE) -> "Table":
    """All methods: what they are called, what they do, signed, passes; where there is room also papers and classes."""
    from rich.table import Table  # here: shell completion reads rows too, and draws nothing

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    columns = {"method": "name", "what it does": "summary", "signed": "signed", "passes": "cost"}
    if width >= WIDE:
        columns |= {"papers call it": "title", "paper": "paper", "class-specific": "class_specific"}
    for column in columns:
        table.add_column(column, no_wrap=column == "method", style="cyan" if column == "method" else "")
    for row in rows:
        table.add_row(*(in_words(getattr(row, field)) for field in columns.values()))
    return table


def in_words(value: str | bool) -> str:
    return value if isinstance(value, str) else "yes" if value else "no"
