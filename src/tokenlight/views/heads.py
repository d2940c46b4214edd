"""The map of heads in the terminal: layer × head, what each lit head follows."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenlight.explanation import printable
from tokenlight.heads.masks import HeadMask
from tokenlight.heads.roles import Role, roles
from tokenlight.heads.statistics import HeadStatistics

STYLES = {"syntactic": "bold white on #2166ac", "positional": "bold black on #f4a582", "both": "bold white on #762a83"}
LETTERS = {"syntactic": "s", "positional": "p", "both": "b", "dark": "·"}
WIDE = 16  # more heads than this get a letter each instead of a word


def head_map(mask: HeadMask) -> RenderableType:
    """The grid, its legend, the lit heads one by one, and what the thresholds were."""
    grid = roles(mask)
    lit = [role for row in grid for role in row if role.kind != "dark"]
    parts: list[RenderableType] = [
        Text(printable(f"{mask.model or 'a mask by hand'}: {mask}")),
        head_grid(grid),
        legend(),
    ]
    if mask.statistics is not None:
        parts += [Text(sentence(role)) for role in lit] + [threshold_table(mask.statistics, mask)]
    return Group(*parts)


def head_grid(grid: list[list[Role]]) -> Table:
    table = Table(title="layer × head", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", style="dim")
    for head in range(len(grid[0])):
        table.add_column(str(head), justify="center", no_wrap=True)
    for layer, row in enumerate(grid):
        table.add_row(str(layer), *(cell(role, len(row) > WIDE) for role in row))
    return table


def cell(role: Role, narrow: bool) -> Text:
    text = LETTERS[role.kind] if narrow or role.kind == "dark" else role.label
    return Text(text, style=STYLES.get(role.kind, "dim"))


def legend() -> Text:
    line = Text()
    for kind, style in STYLES.items():
        line.append(f" {LETTERS[kind]} ", style=style).append(f" {kind}   ")
    return line.append(" · ", style="dim").append(" dark")


def sentence(role: Role) -> str:
    follows = []
    if role.kind in ("syntactic", "both"):
        follows.append(f"{role.relation} in {role.accuracy:.0%}")
    if role.kind in ("positional", "both"):
        follows.append(f"offset {role.sign} in {role.share:.0%}")
    return f"layer {role.layer}, head {role.head}: {' and '.join(follows)}"


def threshold_table(counts: HeadStatistics, mask: HeadMask) -> Table:
    """Per relation: how many, what distance alone explains, the threshold, and the best head."""
    table = Table(title=printable(f"{counts.texts:,} texts, {counts.tokens:,} tokens"), title_justify="left", box=None)
    for name in ("relation", "words", "most frequent distance", "threshold", "best head"):
        table.add_column(name, justify="left" if name == "relation" else "right")
    thresholds = counts.thresholds(mask.made.get("syntax_margin", 0.0)).tolist()
    for i, relation in enumerate(counts.relations):
        # Among equally frequent distances the shortest.
        distance, _ = max(counts.distances[i].items(), key=lambda d: (d[1], -abs(d[0]), d[0]), default=(0, 0))
        best = counts.accuracy[i]
        layer, head = divmod(int(best.argmax()), best.shape[1])
        usual = f"{distance:+d} in {float(counts.usual_share[i]):.0%}"
        where = f"{float(best.max()):.0%} (layer {layer}, head {head})"
        table.add_row(relation, f"{int(counts.pairs[i]):,}", usual, f"{thresholds[i]:.0%}", where)
    return table
