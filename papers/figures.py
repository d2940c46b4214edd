"""Figures that several scripts draw: curves of a benchmark table, and where figures are stored."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from papers.facts import Paper
from papers.options import Run
from tokenlight.results.table import Table
from tokenlight.views.benchmark_table import ARROWS
from tokenlight.views.curve_chart import styles_of
from tokenlight.views.figure import new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent.parent / "docs" / "papers"
DASHES = {"": "solid", "2 3": "dotted", "7 4": "dashed", "9 3 2 3": "dashdot", "5 2": "dashed"}


def draw_curves(table: Table, leave_out: Sequence[str] = (), titles: Mapping[str, str] | None = None) -> "Figure":
    """A panel per metric that has a curve, a line per method, shaded by its 95 % interval."""
    lines = [line for line in table.lines if line.label not in leave_out]
    names = {line.label: line.title for line in lines} | dict(titles or {})
    styles = styles_of(
        [line.label for line in lines if not line.control], [line.label for line in lines if line.control]
    )
    figure = new_figure(4.6 * len(table.panels), 4.4)
    axes_of_panels = np.atleast_1d(figure.subplots(1, len(table.panels)))
    for axes, panel in zip(axes_of_panels, table.panels, strict=True):
        for line in lines:
            points, (color, dashes) = panel.curves[line.label], styles[line.label]
            means, low, high = ([getattr(point, name) for point in points] for name in ("mean", "low", "high"))
            axes.fill_between(panel.places, low, high, color=color, alpha=0.07, linewidth=0)
            axes.plot(
                panel.places, means, color=color, linestyle=DASHES[dashes], linewidth=1.2, label=names[line.label]
            )
        title = f"{panel.column.title} {ARROWS[panel.column.direction]}"
        axes.set(title=title, xlabel=panel.axis, ylabel=panel.quantity)
    handles, labels = axes_of_panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    return figure


def save_figure(figure: "Figure", paper: Paper, script: str, run: Run, record: bool, part: str = "") -> Path:
    """Write the figure to the run's folder; with `record`, also for the docs. `part` tells several of a run apart."""
    run.folder.mkdir(parents=True, exist_ok=True)
    path = run.folder / f"{script}{part and f'-{part}'}.png"
    save(figure, path)
    if record:
        DOCS.mkdir(exist_ok=True)
        save(figure, DOCS / f"{paper.folder}-{script}-{run.name}{part and f'-{part}'}.png")
    print(f"wrote {path}")
    return path
