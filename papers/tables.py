"""Published numbers beside measured ones: in the terminal, as Markdown, and stored for the paper's page in the docs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from papers.facts import Paper, Published
from papers.options import Run, plain_name
from tokenlight.results.tables import Cell, Table
from tokenlight.views.benchmark_table import ARROWS, facts, minus

Numbers = Mapping[str, Sequence[Published]]  # label of a method -> a number per metric; None: none is published
RECORDS = "measured"  # folder of a paper's stored numbers


@dataclass(frozen=True)
class Comparison:
    """A table of measured and published numbers, as it is printed and stored."""

    heading: str
    head: list[str]
    rows: list[list[str]]
    remarks: list[str]

    def show(self) -> None:
        console = Console()
        console = console if console.is_terminal else Console(width=240)
        view = RichTable(title=self.heading, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for index, name in enumerate(self.head):
            view.add_column(name, justify="right" if index else "left")
        for row in self.rows:
            view.add_row(*map(Text, row))  # not markup: intervals have square brackets
        console.print(view, highlight=False)
        for remark in self.remarks:
            console.print(f"- {remark}", markup=False, highlight=False)

    def to_markdown(self) -> str:
        lines = [f"| {' | '.join(self.head)} |", f"|:--{'|--:' * (len(self.head) - 1)}|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, "", *(f"- {remark}" for remark in self.remarks)])


def compare(
    heading: str,
    run: Run,
    table: Table,
    published: Numbers,
    remarks: Sequence[str] = (),
    *,
    titles: Mapping[str, str] | None = None,
) -> Comparison:
    """Measured means with 95 % intervals next to the published numbers.

    `published` goes by the labels of methods, with numbers in the order of the table's metrics. `titles` are the
    paper's names of methods. A line of several runs (`MethodSpec.run_of`) shows the standard deviation of their means
    behind the mean.
    """
    names = {line.label: line.title for line in table.lines} | dict(titles or {})
    cells = {line.label: line.cells for line in table.lines}
    spreads = {line.label: line.spreads for line in table.lines if line.spreads}
    head = ["method"]
    for column in table.columns:
        head += [f"{column.title} {ARROWS[column.direction]}", "95 % interval", "published"]
    rows = []
    for label, measured in cells.items():
        numbers = published.get(label, [None] * len(measured))
        row = [names.get(label, label)]
        deviations = spreads.get(label, [None] * len(measured))
        for cell, deviation, number in zip(measured, deviations, numbers, strict=True):
            mean = f"{cell.mean:.3f}" if deviation is None else f"{cell.mean:.3f} ± {deviation:.3f}"
            row += [minus(mean), format_interval(cell), format_published(number)]
        rows.append(row)
    model = model_of(run, table)
    about_run = [line.replace(model, plain_name(model)) for line in facts(table)]
    return Comparison(heading, head, rows, [*about_run, *run.differences, *remarks])


def model_of(run: Run, table: Table) -> str:
    """The model that was measured: the run's, or one that was trained for it."""
    return table.run.settings["model"]["name"] or run.model


def describe_run(run: Run, table: Table) -> str:
    """Which model was measured on how many texts of which data, for a heading."""
    return f"{plain_name(model_of(run, table))} on {table.run.examples:,} texts of {run.data_name}"


def format_interval(cell: Cell) -> str:
    """Without limits where they are not known: few examples, or all with the same value."""
    return "–" if isnan(cell.low) else minus(f"[{cell.low:.3f}, {cell.high:.3f}]")


def format_published(number: Published) -> str:
    if number is None:
        return "–"
    if isinstance(number, str):
        return minus(number)
    return f"{number:,}" if isinstance(number, int) else minus(f"{number:.3f}")


def finish(comparison: Comparison, paper: Paper, script: str, run: Run, record: bool) -> None:
    """Print the comparison and write it to the run's folder; with `record`, store it for the docs as well."""
    if run.small:
        comparison = replace(comparison, heading=f"{comparison.heading}, small stand-in")
    comparison.show()
    run.folder.mkdir(parents=True, exist_ok=True)
    text = f"# {comparison.heading}\n\n{comparison.to_markdown()}\n"
    (run.folder / "comparison.md").write_text(text, encoding="utf-8")
    if record:
        path = Path(__file__).parent / paper.folder / RECORDS / f"{script}-{run.name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(asdict(comparison), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
