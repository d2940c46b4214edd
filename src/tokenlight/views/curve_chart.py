"""Curves with intervals as inline SVG; similarity under shuffled layers as table and figure."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tokenlight.results.tables import Panel, Similarities
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 30, 44
# The same as --c0 to --c9 in static/style.css: visible on white and on the dark page.
COLORS = ("#0072b2", "#c25400", "#00805c", "#b5548a", "#946200", "#1f7bb0", "#5e4fa2", "#8c510a", "#1b1f24", "#77771f")
CONTROL_COLORS = ("#6e7781", "#57606a", "#7d8590")
DARK_COLORS = {
    **dict(zip(COLORS, ("#58a6ff", "#f0883e", "#3fb98f", "#e58fbf", "#e3b341"), strict=False)),
    **dict(zip(COLORS[5:], ("#79c8f0", "#b3a5f0", "#d9a066", "#e6edf3", "#c9c95a"), strict=True)),
    **dict(zip(CONTROL_COLORS, ("#8b949e", "#b1bac4", "#a0a9b3"), strict=True)),
}
CONTROL_DASHES = ("2 3", "7 4", "9 3 2 3")
CHART_STYLE = """
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: .4rem 1.2rem }
.charts svg { width: 100%; height: auto }
svg text { font: 11px system-ui, sans-serif; fill: var(--quiet) }
svg .head { font-size: 13px; font-weight: 600; fill: var(--ink) }
svg .quiet { font-size: 11px; font-weight: 400; fill: var(--quiet) }
svg .mid { text-anchor: middle }
svg .end { text-anchor: end }
svg .grid { stroke: var(--grid) }
svg .axis { stroke: var(--quiet) }
svg .curve { fill: none; stroke: var(--curve); stroke-width: 1.8; stroke-linejoin: round }
svg .interval { fill: var(--curve); opacity: .1 }
.lines { display: flex; flex-wrap: wrap; gap: .1rem 1.3rem; font-size: 13px; margin: .5rem 0 0 }
.lines svg { width: 30px; height: 10px; margin-right: .4rem; vertical-align: middle }
[style*="-curve"] { --curve: var(--light-curve) }
@media screen and (prefers-color-scheme: dark) { [style*="-curve"] { --curve: var(--dark-curve) } }
@media print { .charts svg { break-inside: avoid } }
"""
LineStyle = tuple[str, str]  # a color, and dashes


def styles_of(methods: Sequence[str], controls: Sequence[str]) -> dict[str, LineStyle]:
    """{label: color and dashes}; methods have solid lines, controls gray and dashed ones."""
    styles = {label: (COLORS[i % len(COLORS)], "" if i < len(COLORS) else "5 2") for i, label in enumerate(methods)}
    for i, label in enumerate(controls):
        styles[label] = CONTROL_COLORS[i % 3], CONTROL_DASHES[i % 3]
    return styles


def chart(panel: Panel, styles: Mapping[str, LineStyle], titles: Mapping[str, str]) -> str:
    """A panel as SVG: axes, intervals below all lines, lines."""
    cells = [cell for curve in panel.curves.values() for cell in curve]
    numbers = [value for cell in cells for value in (cell.mean, cell.low, cell.high) if isfinite(value)]
    low, high, ticks = nice_range(min(numbers), max(numbers))
    first, last = panel.places[0], panel.places[-1]

    def x(value: float) -> float:
        return LEFT + (value - first) / ((last - first) or 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    elements = [grid_line(y(tick), number(tick, ticks)) for tick in ticks]
    elements += [place_mark(x(value), f"{value:.3g}") for value in spaced(panel.places, x)]
    for label, curve in panel.curves.items():
        known = [isfinite(cell.low) and isfinite(cell.high) for cell in curve]
        points = [(p, cell) for p, cell, shaded in zip(panel.places, curve, known, strict=True) if shaded]
        above = [f"{x(p):.1f},{y(cell.high):.1f}" for p, cell in points]
        below = [f"{x(p):.1f},{y(cell.low):.1f}" for p, cell in reversed(points)]
        elements.append(
            f'<polygon points="{" ".join(above + below)}" class="interval" style="{colored(styles[label])}"/>'
        )
    for label, curve in panel.curves.items():
        line = " ".join(f"{x(p):.1f},{y(cell.mean):.1f}" for p, cell in zip(panel.places, curve, strict=True))
        name = f"<title>{escape(titles[label])}</title>"
        elements.append(f'<polyline points="{line}" {drawn(styles[label])}>{name}</polyline>')
    arrow = "higher is better" if panel.column.direction == "higher" else "lower is better"
    middle = (LEFT + WIDTH - RIGHT) / 2
    elements += [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" class="axis"/>',
        f'<text x="{LEFT}" y="18" class="head">{escape(panel.column.title)}'
        f'<tspan class="quiet" dx="8">{arrow}</tspan></text>',
        f'<text x="{middle}" y="{HEIGHT - 8}" class="mid">{escape(panel.axis)}</text>',
        f'<text transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" class="mid">'
        f"{escape(panel.quantity)}</text>",
    ]
    name = escape(f"{panel.column.title}: {panel.quantity} over {panel.axis}; {ends(panel, titles)}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">{"".join(elements)}</svg>'


def ends(panel: Panel, titles: Mapping[str, str]) -> str:
    """First and last value of every curve, for screen readers."""
    endpoints = ((titles[label], curve[0].mean, curve[-1].mean) for label, curve in panel.curves.items())
    return ", ".join(f"{name} from {first:.2f} to {last:.2f}" for name, first, last in endpoints)


def drawn(style: LineStyle) -> str:
    """The attributes of a line."""
    dashes = f' stroke-dasharray="{style[1]}"' if style[1] else ""
    return f'class="curve" style="{colored(style)}"{dashes}'


def colored(style: LineStyle) -> str:
    return f"--light-curve:{style[0]};--dark-curve:{DARK_COLORS[style[0]]}"


def sample(style: LineStyle) -> str:
    """A short line, for a legend."""
    return f'<svg viewBox="0 0 30 10" aria-hidden="true"><line x1="0" x2="30" y1="5" y2="5" {drawn(style)}/></svg>'


def grid_line(y: float, label: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" class="end">{label}</text>'
    )


def place_mark(x: float, label: str) -> str:
    y = HEIGHT - BOTTOM
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}" class="axis"/>'
        f'<text x="{x:.1f}" y="{y + 16}" class="mid">{label}</text>'
    )


def spaced(values: Sequence[float], x: Callable[[float], float]) -> list[float]:
    """Values whose labels do not overlap."""
    kept: list[float] = []
    for value in values:
        if not kept or x(value) - x(kept[-1]) >= 26:
            kept.append(value)
    return kept


def nice_range(low: float, high: float) -> tuple[float, float, list[float]]:
    """A range from tick to tick that contains the numbers, and its ticks."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / 5
    power = 10 ** floor(log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    ticks = [i * step for i in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def number(tick: float, ticks: Sequence[float]) -> str:
    digits = max(0, -floor(log10(ticks[1] - ticks[0]) + 1e-9))
    text = f"{tick:.{digits}f}"
    if any(abs(float(f"{t:.{digits}f}") - t) > 1e-9 for t in ticks):  # steps of 2.5
        text = f"{tick:.{digits + 1}f}"
    return text.replace("-", "−") if float(text) else text.replace("-", "")


TITLE = "Spearman similarity to the model's own scores after shuffling this layer and all above it"
READING = (
    "Towards 0 is good: a method whose scores stay the same (near 1) while the weights are shuffled does not depend on "
    "what the model has learned"
)


def sanity_table(similarities_by_method: Similarities) -> Group:
    """A table of layers by methods; 1 means the same order of tokens, 0 an unrelated one."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("shuffled down to", no_wrap=True)
    for label in similarities_by_method:
        table.add_column(label, justify="right", style="cyan")
    for i, (layer, _) in enumerate(next(iter(similarities_by_method.values()))):
        table.add_row(
            layer, *(f"{similarities[i][1]:.3f}".replace("-", "−") for similarities in similarities_by_method.values())
        )
    return Group(Text(TITLE), table, Text(READING, style="dim"))


def sanity_figure(similarities_by_method: Similarities) -> "Figure":
    """A line for each method, from the unchanged model to one with all layers shuffled (Adebayo et al. 2018)."""
    layers = ["none", *(short(layer) for layer, _ in next(iter(similarities_by_method.values())))]
    figure = new_figure(1.5 + 0.55 * len(layers), 3.2)
    axes = figure.subplots()
    for i, (label, similarities) in enumerate(similarities_by_method.items()):
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
