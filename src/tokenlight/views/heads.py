"""Maps of attention heads in the terminal, and figures of heads."""

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy
import torch
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenlight.common.formatting import describe_count
from tokenlight.heads.mask import KINDS, HeadMask, Role, roles
from tokenlight.heads.statistics import HeadStatistics
from tokenlight.results.explanation import printable
from tokenlight.views.drawing import PAPER, css, ink, mix, new_figure, rgb

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STYLES = {
    "syntactic": "bold white on #2166ac",
    "positional": "bold black on #f4a582",
    "both": "bold white on #762a83",
    "calibrated": "bold white on #1b7837",
}
LETTERS = {"syntactic": "s", "positional": "p", "both": "b", "calibrated": "c", "dark": "·"}
MEANINGS = {  # the text of a cell, and its meaning
    "syntactic": ("obj", "follows this relation"),
    "positional": ("-1", "looks that many tokens on; -1 is the one before"),
    "both": ("obj -1", "both"),
    "calibrated": ("0.9", "strength"),
}
WIDE = 16  # with more heads than this, cells have a letter instead of a word


def head_map(mask: HeadMask) -> RenderableType:
    """The grid, its legend, a line for each head of the mask, and the thresholds."""
    grid = roles(mask)
    lit = [role for row in grid for role in row if role.kind != "dark"]
    renderables: list[RenderableType] = [Text(printable(f"{mask.model or 'a mask by hand'}: {mask}"))]
    if mask.calibrated is not None:
        return Group(*renderables, *calibrated_maps(mask))
    renderables += [head_grid(grid), legend(grid)]
    if mask.statistics is not None:
        renderables += [Text(sentence(role)) for role in lit] + [threshold_table(mask.statistics, mask)]
    return Group(*renderables)


def calibrated_maps(mask: HeadMask) -> list[RenderableType]:
    """The strengths next to the groups of heads, and how many heads are in both."""
    follows = roles(replace(mask, calibrated=None))
    maps = Columns([head_grid(roles(mask), "strength"), head_grid(follows, "syntactic and positional")], padding=(0, 4))
    grouped = int((torch.maximum(mask.syntactic, mask.positional) > 0).sum())
    strong = f"{int(mask.strong.sum())} heads at half strength or more"
    shares = f"{mask.explained} of {strong} are syntactic or positional, of {grouped} heads that are"
    return [maps, legend(roles(mask), follows), Text(shares), Text(calibration_sentence(mask.made))]


def calibration_sentence(made: Mapping[str, Any]) -> str:
    """A sentence with the gain of calibration on held-out texts."""
    gain, aopc = made["agreement"], made["aopc"]
    limits = "" if gain["interval"] is None else " [{:+.3f}, {:+.3f}]".format(*gain["interval"])
    if not made["helped"]:
        return f"no sure gain on texts held back in turn ({gain['gain']:+.3f}{limits}): all heads stay lit"
    return (
        f"texts held back in turn: agreement {gain['all heads']:.3f} {gain['gain']:+.3f}{limits}, "
        f"AOPC {aopc['all heads']:.3f} → {aopc['calibrated']:.3f}"
    )


def head_grid(grid: list[list[Role]], title: str = "layer × head") -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", style="dim")
    for head in range(len(grid[0])):
        table.add_column(str(head), justify="center", no_wrap=True)
    for layer, row in enumerate(grid):
        table.add_row(str(layer), *(cell(role, len(row) > WIDE) for role in row))
    return table


def cell(role: Role, narrow: bool) -> Text:
    text = LETTERS[role.kind] if narrow or role.kind == "dark" else role.label
    return Text(text, style=STYLES.get(role.kind, "dim"))


def legend(*grids: list[list[Role]]) -> Text:
    """A legend with the signs in the cells: letters in wide grids, words and offsets in others."""
    line = Text()
    narrow = len(grids[0][0]) > WIDE
    for kind, (sign, meaning) in MEANINGS.items():
        if kind != "calibrated" or len(grids) > 1:
            line.append(f" {LETTERS[kind] if narrow else sign} ", style=STYLES[kind]).append(f" {meaning}   ")
    return line.append(" · ", style="dim").append(" no relevance flows through it")


def sentence(role: Role) -> str:
    follows = []
    if role.kind in ("syntactic", "both"):
        follows.append(f"{role.relation} in {role.accuracy:.0%}")
    if role.kind in ("positional", "both"):
        follows.append(f"offset {role.sign} in {role.share:.0%}")
    return f"layer {role.layer}, head {role.head}: {' and '.join(follows)}"


def threshold_table(counts: HeadStatistics, mask: HeadMask) -> Table:
    """For each relation: number of pairs, accuracy by distance alone, threshold, and best head."""
    title = f"{describe_count(counts.texts, 'text')}, {describe_count(counts.tokens, 'token')}"
    table = Table(title=title, title_justify="left", box=None)
    for name in ("relation", "words", "most frequent distance", "threshold", "best head"):
        table.add_column(name, justify="left" if name == "relation" else "right")
    thresholds = counts.thresholds(mask.made.get("syntax_margin", 0.0)).tolist()
    for i, relation in enumerate(counts.relations):
        if not counts.distances[i]:
            table.add_row(relation, "0", "not in these texts", "", "")
            continue
        # Among equally frequent distances the shortest.
        distance, _ = max(counts.distances[i].items(), key=lambda d: (d[1], -abs(d[0]), d[0]))
        best = counts.accuracy[i]
        layer, head = divmod(int(best.argmax()), best.shape[1])
        most_frequent = f"{distance:+d} in {float(counts.usual_share[i]):.0%}"
        best_head = f"{float(best.max()):.0%} (layer {layer}, head {head})"
        table.add_row(relation, f"{int(counts.pairs[i]):,}", most_frequent, f"{thresholds[i]:.0%}", best_head)
    return table


COLORS = {
    "dark": "#f2f2f2",
    "syntactic": "#2166ac",
    "positional": "#f4a582",
    "both": "#762a83",
    "calibrated": "#1b7837",
}
FIGURE_LETTERS = 14  # characters per inch of a name above a map
LEGEND_WIDTH = 4.9  # in inches


def head_figure(mask: HeadMask, title: str | None = None) -> "Figure":
    """Layer × head, colored by what each head follows (Mask-LRP, figure 5); calibrated strengths above that."""
    maps = {title or f"{mask.model or 'mask'}: {mask}": mask}  # by the name above each map
    if mask.calibrated is not None and torch.maximum(mask.syntactic, mask.positional).any():
        maps |= {"syntactic and positional": replace(mask, calibrated=None)}
    layers, heads = mask.lit.shape
    width = max(LEGEND_WIDTH, 0.9 + 0.41 * heads)  # in inches: twelve heads are as wide as a page of a paper
    names = [textwrap.fill(name, int(FIGURE_LETTERS * (width - 0.6))) for name in maps]
    lines = max(name.count("\n") + 1 for name in names)
    figure = new_figure(width, (0.75 + 0.15 * lines + 0.3 * layers) * len(maps) + 0.3)
    panels = numpy.atleast_1d(figure.subplots(len(maps), 1))
    for axes, name, shown_mask in zip(panels, names, maps.values(), strict=True):
        draw_heads(axes, shown_mask, name)
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
    color = mix(PAPER, rgb(COLORS[role.kind]), share)  # mixed, because some programs draw transparency badly
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
    """Distances between dependents and heads for each relation (Mask-LRP, figure 1)."""
    figure = new_figure(2.2 * len(counts.relations), 2.2)
    panels = numpy.atleast_1d(figure.subplots(1, len(counts.relations), sharey=True))
    for axes, relation, distances in zip(panels, counts.relations, counts.distances, strict=True):
        distances_shown = [i for i in range(-reach, reach + 1) if i != 0]
        axes.bar(
            distances_shown,
            [distances[i] / max(distances.total(), 1) for i in distances_shown],
            color=COLORS["syntactic"],
        )
        axes.set_title(relation, fontsize=9)
        axes.set_xlabel("word − head", fontsize=8)
        axes.tick_params(labelsize=7)
    panels[0].set_ylabel("share λ", fontsize=8)
    return figure
