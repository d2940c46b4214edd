"""Figures that several scripts draw: curves of a benchmark table, and where figures are stored."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from papers.facts import Paper
from papers.options import Run
from tokenlight.results.tables import Table
from tokenlight.views.benchmark_table import ARROWS
from tokenlight.views.curve_chart import styles_of
from tokenlight.views.drawing import new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent.parent / "docs" / "papers"
DASHES = {"": "solid", "2 3": "dotted", "7 4": "dashed", "9 3 2 3": "dashdot", "5 2": "dashed"}
DISTINCT = 5  # colors that are told from each other


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
        for number, line in enumerate(lines):
            points, (color, dashes) = panel.curves[line.label], styles[line.label]
            dashes = dashes or "9 3 2 3" * (number >= DISTINCT)
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


def draw_maps(maps: Mapping[str, np.ndarray], names: Sequence[str], columns: int = 4) -> "Figure":
    """A panel for each map [row, column] under its title, with the same names on both axes and a scale of its own."""
    columns = min(columns, len(maps))
    rows, size = -(-len(maps) // columns), 1.2 + 0.16 * len(names)
    figure = new_figure(columns * size, rows * size)
    panels = np.atleast_1d(figure.subplots(rows, columns)).flatten()
    for axes, (title, values) in zip(panels, maps.items(), strict=False):
        image = axes.imshow(values, cmap="Blues", vmin=0)
        axes.set_title(title, fontsize=8)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
        axes.set_yticks(range(len(names)), names, fontsize=6)
        figure.colorbar(image, ax=axes, shrink=0.6).ax.tick_params(labelsize=6)
    for axes in panels[len(maps) :]:
        axes.remove()
    return figure


def save_figure(figure: "Figure", paper: Paper, script: str, run: Run, record: bool, part: str = "") -> Path:
    """Write the figure to the run's folder; with `record`, also for the docs. `part` tells several of a run apart."""
    run.folder.mkdir(parents=True, exist_ok=True)
    path = run.folder / f"{script}{part and f'-{part}'}.png"
    save(figure, path)
    if record:
        DOCS.mkdir(exist_ok=True)
        name = f"{paper.folder}-{script}-{run.name}{part and f'-{part}'}.png"
        figure.savefig(DOCS / name, dpi=110, facecolor="white")
        reduce_colors(DOCS / name)
    print(f"wrote {path}")
    return path


def reduce_colors(path: Path, colors: int = 256) -> None:
    """Store a PNG with a palette: figures of text become several times smaller.

    The default way to choose a palette gives nearly all of it to frequent colors, and draws rare ones in others.
    """
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(colors, method=Image.Quantize.MAXCOVERAGE, kmeans=1).save(path, optimize=True)
