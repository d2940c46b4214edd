"""What the recipes share: published numbers beside measured ones, and curves as a figure."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from tokenlight.foundation.intervals import mean_intervals, weighted_means
from tokenlight.results.table import Cell, Table
from tokenlight.views.benchmark_table import ARROWS, facts, minus
from tokenlight.views.curve_chart import styles_of
from tokenlight.views.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = Mapping[str, Sequence[float | None]]  # method's label -> a number for each metric; None: not at hand
NOT_AT_HAND = "not at hand"
DASHES = {"": "solid", "2 3": "dotted", "7 4": "dashed", "9 3 2 3": "dashdot", "5 2": "dashed"}


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of every recipe; without --model and --data, the paper's own are loaded from the Hub."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="checkpoint; 'default' is the model inside the package")
    parser.add_argument("--data", help="data file, or hf:NAME with --split")
    parser.add_argument("--split", help="of a Hugging Face dataset")
    parser.add_argument("--limit", type=int, help="only the first so many rows")
    parser.add_argument("--output", type=Path, required=True, help="folder for the results; stopped runs go on there")
    return parser


def differences(model: str, data: str, paper_model: str, paper_data: str, limit: int | None) -> list[str]:
    """In what a run is not the paper's, one remark each."""
    found = []
    if model != paper_model:
        found.append(f"the model is {model}, the paper's is {paper_model}")
    if data != paper_data:
        found.append(f"the data are {data}, the paper's are {paper_data}")
    if limit is not None:
        found.append(f"only the first {limit:,} rows are read")
    return found


def side_by_side(
    heading: str,
    table: Table,
    published: Numbers,
    remarks: Sequence[str] = (),
    *,
    titles: Mapping[str, str] | None = None,
    means: Mapping[str, Sequence[str]] | None = None,
    path: Path | None = None,
) -> None:
    """Print measured means with their 95 % intervals and published numbers next to each other, and write them as
    Markdown to `path`.

    `published` goes by the methods' labels, with the metrics in the table's order; `titles` are the paper's names.
    `means` adds rows for the mean of several methods, such as one method under several seeds.
    """
    names = {line.label: line.title for line in table.lines} | dict(titles or {})
    cells = {line.label: line.cells for line in table.lines}
    cells |= {label: mean_cells(table, labels) for label, labels in (means or {}).items()}
    head = ["method"]
    for column in table.columns:
        head += [f"{column.title} {ARROWS[column.direction]}", "95 % interval", "published"]
    rows = []
    for label, row in cells.items():
        known = published.get(label, [None] * len(row))
        rows.append([names.get(label, label)])
        for cell, number in zip(row, known, strict=True):
            rows[-1] += [minus(f"{cell.mean:.3f}"), minus(f"[{cell.low:.3f}, {cell.high:.3f}]"), written(number)]
    show(heading, head, rows, [*facts(table), *remarks], path)


def written(number: float | None) -> str:
    return NOT_AT_HAND if number is None else minus(f"{number:.3f}")


def show(heading: str, head: Sequence[str], rows: Sequence[Sequence[str]], remarks: Sequence[str], path: Path | None):
    """A table with remarks on the terminal, and as Markdown."""
    console = Console()
    console = console if console.is_terminal else Console(width=240)
    view = RichTable(title=heading, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for i, name in enumerate(head):
        view.add_column(name, justify="right" if i else "left")
    for row in rows:
        view.add_row(*row)
    console.print(view, highlight=False)
    for remark in remarks:
        console.print(f"- {remark}", markup=False, highlight=False)
    if path is not None:
        lines = [f"| {' | '.join(head)} |", f"|:--{'|--:' * (len(head) - 1)}|", *(f"| {' | '.join(r)} |" for r in rows)]
        text = "\n".join([f"# {heading}", "", *(f"- {remark}" for remark in remarks), "", *lines, ""])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def mean_cells(table: Table, labels: Sequence[str], seed: int = 0) -> list[Cell]:
    """For each metric the mean over methods, with its interval over examples."""
    places = {line.label: i for i, line in enumerate(table.lines)}
    values = table.values[:, [places[label] for label in labels]].mean(1)  # [example, metric]
    means = weighted_means(values, table.weights)
    low, high = mean_intervals(values, table.weights, seed)
    return [Cell(float(mean), float(a), float(b)) for mean, a, b in zip(means, low, high, strict=True)]


def curve_figure(table: Table, leave_out: Sequence[str] = (), titles: Mapping[str, str] | None = None) -> "Figure":
    """A panel for each metric that reads a curve: a line for each method, shaded by its 95 % interval."""
    lines = [line for line in table.lines if line.label not in leave_out]
    names = {line.label: line.title for line in lines} | dict(titles or {})
    styles = styles_of([x.label for x in lines if not x.control], [x.label for x in lines if x.control])
    figure = new_figure(4.6 * len(table.panels), 4.4)
    panels = np.atleast_1d(figure.subplots(1, len(table.panels)))
    for axes, panel in zip(panels, table.panels, strict=True):
        for line in lines:
            points, (colour, dashes) = panel.curves[line.label], styles[line.label]
            means, low, high = ([getattr(point, part) for point in points] for part in ("mean", "low", "high"))
            axes.fill_between(panel.places, low, high, color=colour, alpha=0.07, linewidth=0)
            axes.plot(
                panel.places, means, color=colour, linestyle=DASHES[dashes], linewidth=1.2, label=names[line.label]
            )
        axes.set(
            title=f"{panel.column.title} {ARROWS[panel.column.direction]}", xlabel=panel.axis, ylabel=panel.quantity
        )
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    return figure
