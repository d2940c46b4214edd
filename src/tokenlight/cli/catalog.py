"""Methods, metrics, protocols and tasks from a stored file, read without importing torch."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


WIDE = 140  # width of a terminal, in columns, that has room for all columns of the table
WIDE_COLUMNS = ("method", "what it does", "signed", "passes", "papers call it", "paper", "class-specific")
LEGEND = "signed: scores can also be negative, against the target; forward, backward: passes of the model for one text"


@dataclass(frozen=True)
class MethodRow:
    """One method in the table of methods."""

    name: str
    title: str  # its name in papers
    summary: str  # what it does
    paper: str
    signed: bool
    class_specific: bool
    cost: str  # in words


def method_table(rows: Iterable[MethodRow], width: int = WIDE) -> "Table":
    """All methods and what they do: in seven columns on a wide terminal, in two columns and two lines on others."""
    from rich.table import Table  # imported here, as shell completion reads rows without drawing a table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.caption, table.caption_justify = LEGEND, "left"
    columns = WIDE_COLUMNS if width >= WIDE else ("method", "what it does")
    for column in columns:
        table.add_column(column, no_wrap=column == "method", style="cyan" if column == "method" else "")
    for row in rows:
        signed, specific = yes_or_no(row.signed), yes_or_no(row.class_specific)
        if width >= WIDE:
            table.add_row(row.name, row.summary, signed, row.cost, row.title, row.paper, specific)
        else:
            table.add_row(row.name, two_lines(row))
    return table


def two_lines(row: MethodRow) -> "Text":
    from rich.text import Text

    sign = "signed" if row.signed else "not signed"
    return Text.assemble(row.summary, "\n", (f"{row.cost}; {sign}", "dim"))


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


FILE = Path(__file__).with_name("catalog.json")  # `make catalog` writes it from the registries


@dataclass(frozen=True)
class Catalog:
    """What the table of methods and shell completion need to know of the registries."""

    methods: tuple[MethodRow, ...]
    metrics: dict[str, str]  # name -> name in papers
    protocols: tuple[str, ...]
    tasks: tuple[str, ...]


def read_catalog() -> Catalog:
    """The catalog in its file."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    methods = tuple(MethodRow(**row) for row in stored["methods"])
    return Catalog(methods, stored["metrics"], tuple(stored["protocols"]), tuple(stored["tasks"]))


def complete_method(incomplete: str) -> list[tuple[str, str]]:
    rows = read_catalog().methods
    return [(row.name, f"{row.title}, {row.paper}") for row in rows if row.name.startswith(incomplete)]


def complete_metric(incomplete: str) -> list[tuple[str, str]]:
    return [(name, title) for name, title in read_catalog().metrics.items() if name.startswith(incomplete)]


def complete_protocol(incomplete: str) -> list[str]:
    return [name for name in read_catalog().protocols if name.startswith(incomplete)]


def complete_task(incomplete: str) -> list[str]:
    return [name for name in read_catalog().tasks if name.startswith(incomplete)]
