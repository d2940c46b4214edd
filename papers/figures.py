"""Figures that several scripts draw: curves of a benchmark table, and maps of numbers with names on both axes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tokenlight.results.table import Table
from tokenlight.views.benchmark_table import ARROWS
from tokenlight.views.curve_chart import styles_of
from tokenlight.views.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
