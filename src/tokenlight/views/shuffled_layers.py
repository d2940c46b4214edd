"""Similarities of scores after shuffling: a small table and a figure."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tokenlight.results.shuffled_layers import Similarities
from tokenlight.views.curve_chart import COLORS
from tokenlight.views.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Spearman similarity to the model's own scores after shuffling this layer and all above it"
READING = (
    "Towards 0 is good: a method whose scores stay the same (near 1) while the weights are shuffled does not depend on "
    "what the model has learned"
)


def sanity_table(found: Similarities) -> Group:
    """Layers down, methods across; 1 is the same order of tokens, 0 none."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("shuffled down to", no_wrap=True)
    for label in found:
        table.add_column(label, justify="right", style="cyan")
    for i, (layer, _) in enumerate(next(iter(found.values()))):
        table.add_row(layer, *(f"{similarities[i][1]:.3f}".replace("-", "−") for similarities in found.values()))
    return Group(Text(TITLE), table, Text(READING, style="dim"))


def sanity_figure(found: Similarities) -> "Figure":
    """A line for each method, from the untouched model to one of which nothing is left (Adebayo et al. 2018)."""
    layers = ["none", *(short(layer) for layer, _ in next(iter(found.values())))]
    figure = new_figure(1.5 + 0.55 * len(layers), 3.2)
    axes = figure.subplots()
    for i, (label, similarities) in enumerate(found.items()):
        points = [1.0, *(similarity for _, similarity in similarities)]
        axes.plot(range(len(points)), points, marker="o", markersize=3, color=COLORS[i % len(COLORS)], label=label)
    axes.axhline(0, color="#8c959f", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(layers)), layers, rotation=45, ha="right", fontsize=8)
    axes.set(xlabel="shuffled down to", ylabel="Spearman similarity")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)
    return figure


def short(layer: str) -> str:
    """'bert.encoder.layer.5' as 'layer 5'."""
    number = layer.rpartition(".")[2]
    return f"layer {number}" if number.isdecimal() else layer
