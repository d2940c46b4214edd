"""The map of heads in the terminal: layer × head, what each lit head follows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenlight.foundation.sizes import describe_count
from tokenlight.masks.head_mask import HeadMask
from tokenlight.masks.roles import Role, roles
from tokenlight.masks.statistics import HeadStatistics
from tokenlight.results.explanation import printable

STYLES = {
    "syntactic": "bold white on #2166ac",
    "positional": "bold black on #f4a582",
    "both": "bold white on #762a83",
    "calibrated": "bold white on #1b7837",
}
LETTERS = {"syntactic": "s", "positional": "p", "both": "b", "calibrated": "c", "dark": "·"}
MEANINGS = {  # what a cell shows, and what that means
    "syntactic": ("obj", "follows this relation"),
    "positional": ("-1", "looks that many tokens on; -1 is the one before"),
    "both": ("obj -1", "both"),
    "calibrated": ("0.9", "strength"),
}
WIDE = 16  # more heads than this get a letter each instead of a word


def head_map(mask: HeadMask) -> RenderableType:
    """The grid, its legend, the lit heads one by one, and what the thresholds were."""
    grid = roles(mask)
    lit = [role for row in grid for role in row if role.kind != "dark"]
    parts: list[RenderableType] = [Text(printable(f"{mask.model or 'a mask by hand'}: {mask}"))]
    if mask.calibrated is not None:
        return Group(*parts, *calibrated_maps(mask))
    parts += [head_grid(grid), legend(grid)]
    if mask.statistics is not None:
        parts += [Text(sentence(role)) for role in lit] + [threshold_table(mask.statistics, mask)]
    return Group(*parts)


def calibrated_maps(mask: HeadMask) -> list[RenderableType]:
    """The strengths, and what the heads follow next to them; how much of the one is the other."""
    follows = roles(replace(mask, calibrated=None))
    maps = Columns([head_grid(roles(mask), "strength"), head_grid(follows, "syntactic and positional")], padding=(0, 4))
    known = int((torch.maximum(mask.syntactic, mask.positional) > 0).sum())
    strong = f"{int(mask.strong.sum())} heads at half strength or more"
    shares = f"{mask.explained} of {strong} are syntactic or positional, of {known} heads that are"
    return [maps, legend(roles(mask), follows), Text(shares), Text(calibration_sentence(mask.made))]


def calibration_sentence(made: Mapping[str, Any]) -> str:
    """What the search found, on the texts that it did not see."""
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
    """In the signs that stand in the cells: letters in wide grids, and words and offsets in others."""
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
    """Per relation: how many, what distance alone explains, the threshold, and the best head."""
    seen = f"{describe_count(counts.texts, 'text')}, {describe_count(counts.tokens, 'token')}"
    table = Table(title=seen, title_justify="left", box=None)
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
        usual = f"{distance:+d} in {float(counts.usual_share[i]):.0%}"
        where = f"{float(best.max()):.0%} (layer {layer}, head {head})"
        table.add_row(relation, f"{int(counts.pairs[i]):,}", usual, f"{thresholds[i]:.0%}", where)
    return table
