"""Figures of heads for papers: what each head follows, and how far dependents stand from their heads."""

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy
import torch

from tokenlight.masks.head_mask import HeadMask
from tokenlight.masks.roles import KINDS, Role, roles
from tokenlight.masks.statistics import HeadStatistics
from tokenlight.views.figure import new_figure
from tokenlight.views.palette import PAPER, css, ink, mix, rgb

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {
    "dark": "#f2f2f2",
    "syntactic": "#2166ac",
    "positional": "#f4a582",
    "both": "#762a83",
    "calibrated": "#1b7837",
}
LETTERS = 14  # of a name above a map, in an inch
LEGEND_WIDTH = 4.9  # in inches


def head_figure(mask: HeadMask, title: str | None = None) -> "Figure":
    """Layer × head, colored by what each head follows (Mask-LRP, figure 5); calibrated strengths above that."""
    maps = {title or f"{mask.model or 'mask'}: {mask}": mask}  # the name above each map
    if mask.calibrated is not None and torch.maximum(mask.syntactic, mask.positional).any():
        maps |= {"syntactic and positional": replace(mask, calibrated=None)}
    layers, heads = mask.lit.shape
    width = max(LEGEND_WIDTH, 0.9 + 0.41 * heads)  # in inches: twelve heads are as wide as a page of a paper
    names = [textwrap.fill(name, int(LETTERS * (width - 0.6))) for name in maps]
    lines = max(name.count("\n") + 1 for name in names)
    figure = new_figure(width, (0.75 + 0.15 * lines + 0.3 * layers) * len(maps) + 0.3)
    panels = numpy.atleast_1d(figure.subplots(len(maps), 1))
    for axes, name, one in zip(panels, names, maps.values(), strict=True):
        draw_heads(axes, one, name)
    add_kinds(figure, mask.calibrated is not None)
    return figure


def draw_heads(axes: Any, mask: HeadMask, title: str) -> None:
    layers, heads = mask.lit.shape
    for row in roles(mask):
        for role in row:
            draw_head(axes, role)
    axes.set(xlim=(-0.5, heads - 0.5), ylim=(layers - 0.5, -0.5), xlabel="head", ylabel="layer", aspect="auto")
    axes.set_xticks(range(heads))
    axes.set_yticks(range(layers))
    axes.tick_params(length=0, labelsize=8)
    axes.xaxis.label.set_size(9)
    axes.yaxis.label.set_size(9)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(title, fontsize=9, loc="left")


def draw_head(axes: Any, role: Role) -> None:
    from matplotlib.patches import Rectangle

    corner = (role.head - 0.46, role.layer - 0.46)
    share = max(0.25, role.strength) if role.kind != "dark" else 1.0
    color = mix(PAPER, rgb(COLORS[role.kind]), share)  # mixed, since some programs draw what is transparent coarsely
    axes.add_patch(Rectangle(corner, 0.92, 0.92, color=css(color), linewidth=0))
    label = role.label.replace(" ", "\n").replace("-", "−")
    letters = css(ink(color))
    axes.text(role.head, role.layer, label, ha="center", va="center", fontsize=6.5, color=letters)


def add_kinds(figure: "Figure", calibrated: bool) -> None:
    from matplotlib.patches import Patch

    kinds = [kind for kind in KINDS if calibrated or kind != "calibrated"]
    # "dark" would name the lightest color
    patches = [Patch(color=COLORS[kind], label="none of these" if kind == "dark" else kind) for kind in kinds]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(kinds), fontsize=7, frameon=False)


def distance_figure(counts: HeadStatistics, reach: int = 6) -> "Figure":
    """How far a dependent stands from its head, per relation (Mask-LRP, figure 1)."""
    figure = new_figure(2.2 * len(counts.relations), 2.2)
    panels = numpy.atleast_1d(figure.subplots(1, len(counts.relations), sharey=True))
    for axes, relation, distances in zip(panels, counts.relations, counts.distances, strict=True):
        places = [i for i in range(-reach, reach + 1) if i != 0]
        axes.bar(places, [distances[i] / max(distances.total(), 1) for i in places], color=COLORS["syntactic"])
        axes.set_title(relation, fontsize=9)
        axes.set_xlabel("word − head", fontsize=8)
        axes.tick_params(labelsize=7)
    panels[0].set_ylabel("share λ", fontsize=8)
    return figure
