"""Two methods on one text: where the first gives more, and where it gives less.

The difference heatmaps of Mask-LRP (Song et al. 2024, figures 6 to 13). Red words are underlined, so that the two can
be told apart without colors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from tokenlight.common.errors import RefusedValue
from tokenlight.results.explanation import Explanation, printable
from tokenlight.views.drawing import DARK, css, ink, new_figure, tint
from tokenlight.views.html import PAGE_STYLE, STYLE, document, heat, numbers, shaded, special_span
from tokenlight.views.layout import Piece, explained, headline, pieces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pair = tuple[Explanation, Explanation]
FAINT = 0.05  # smaller differences have no line under them: they would be white
COLUMNS = 96  # characters of a line in a figure
SIZE = 8  # of the letters in a figure, in points
LETTER = 0.602 * SIZE / 72  # inches: how wide a letter of DejaVu Sans Mono is
LINE = 1.7 * SIZE / 72
LESS_STYLE = ".less { text-decoration: underline }"


def difference(first: Explanation, second: Explanation) -> Explanation:
    """Scores of the first minus scores of the second, each scaled so that its strongest word has 1 or -1."""
    if first.tokens != second.tokens or first.text != second.text:
        raise RefusedValue(f"a difference is of two explanations of one text, found {first.text!r} and {second.text!r}")
    scores = scale_to_one(first).scores - scale_to_one(second).scores
    return replace(
        first,
        scores=scores,
        method=f"{first.method} − {second.method}",
        method_title="",
        method_caution="",
        signed=True,
        maps={},
        extras={},
    )


def scale_to_one(explanation: Explanation) -> Explanation:
    """Its scores divided so that the strongest word has 1 or -1, in double precision."""
    scores = explanation.scores.double() / largest(explanation)
    return replace(explanation, scores=scores, maps={}, extras={})


def largest(explanation: Explanation) -> float:
    """The strongest word's |score|, special tokens left out; 1 where all are 0."""
    return max((abs(word.score) for word in explanation.words() if word.counts), default=0.0) or 1.0


def strength_of(piece: Piece) -> float:
    """Not relative to the line: a small difference stays pale."""
    return 0.0 if piece.word is None or piece.word.special else piece.word.score


def difference_page(pairs: Sequence[Pair], title: str = "Method against method") -> str:
    """One HTML page; for each pair both heatmaps and their difference."""
    sections = "\n".join(f"<section>{difference_body(*pair)}</section>" for pair in pairs)
    return document(title, f"{legend()}\n{sections}\n", STYLE, PAGE_STYLE, LESS_STYLE)


def difference_body(first: Explanation, second: Explanation) -> str:
    between = difference(first, second)
    lines = [(first.method, heat(first)), (second.method, heat(second)), (between.method, "".join(spans(between)))]
    rows = "".join(
        f'<tr><th scope="row" class="method">{escape(name)}</th><td class="text" dir="auto">{text}</td></tr>'
        for name, text in lines
    )
    says = f"the model says <b>{escape(headline(first))}</b>; explained: <b>{escape(explained(first))}</b>"
    table = f'<table class="heat">{rows}</table>{numbers([first, second, between])}'
    return f'<div class="tokenlight"><p class="says">{says}</p>{table}</div>'


def spans(between: Explanation) -> list[str]:
    return [span(piece) for piece in pieces(between)]


def span(piece: Piece) -> str:
    if piece.word is None:
        return escape(piece.text)
    if piece.word.special:
        return special_span(piece)
    strength = strength_of(piece)
    kind = "word shaded less" if strength < -FAINT else "word shaded"
    return (
        f'<span class="{kind}" style="{tinted(strength)}" title="{piece.word.score:+.3f}">{escape(piece.text)}</span>'
    )


def tinted(strength: float) -> str:
    return shaded(tint(strength), tint(strength, DARK))


def legend() -> str:
    def sample(strength: float, kind: str, text: str) -> str:
        return f'<span class="{kind}" style="{tinted(strength)}">{text}</span>'

    more, less = sample(1, "shaded", "the first method gives more"), sample(-1, "shaded less", "it gives less")
    return (
        f'<p class="legend">Last line of each box: {more}, {less}. Both are scaled so that their strongest word has 1; '
        "the full shade is a difference of 1. Above it the methods: blue supports, orange speaks against.</p>"
    )


def difference_figure(pairs: Sequence[Pair]) -> "Figure":
    """The differences as colored texts, one below the other."""
    return text_figure([(title_of(text), text) for text in (difference(*pair) for pair in pairs)])


def title_of(text: Explanation) -> str:
    return f"{text.method}   ({headline(text)}; explained: {text.target.strip()})"


def text_figure(texts: Mapping[str, Explanation] | Sequence[tuple[str, Explanation]]) -> "Figure":
    """Explanations as colored texts, one below the other, each under its title: green above 0, red below 0.

    The full shade is 1 or more: scale scores first (`scale_to_one`), or give differences.
    """
    titled = list(texts.items()) if isinstance(texts, Mapping) else list(texts)
    laid = [lay_out(text) for _, text in titled]
    height = sum(lines + 2.5 for _, lines in laid)
    figure = new_figure(COLUMNS * LETTER, height * LINE)
    figure.set_layout_engine("none")  # one letter is one step of the axes, from edge to edge
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, COLUMNS), ylim=(height, 0))
    axes.axis("off")
    top = 1.0
    for (title, _), (placed, lines) in zip(titled, laid, strict=True):
        axes.text(0.5, top, printable(title), fontsize=SIZE, va="center", color="#57606a")
        for piece, column, line in placed:
            draw_piece(axes, piece, column, top + 1.2 + line)
        top += lines + 2.5
    return figure


def lay_out(text: Explanation) -> tuple[list[tuple[Piece, int, int]], int]:
    """Every piece with its column and line, and how many lines there are; a piece that does not fit begins a line."""
    placed, column, line = [], 1, 0
    for piece in pieces(text):
        if column + len(piece.text) > COLUMNS - 1 and column > 1:
            column, line = 1, line + 1
            if not piece.text.strip():
                continue
        placed.append((piece, column, line))
        column += len(piece.text)
    return placed, line + 1


def draw_piece(axes: Any, piece: Piece, column: int, line: float) -> None:
    from matplotlib.patches import Rectangle

    strength = strength_of(piece)
    background = tint(strength)
    if strength:
        corner, width = (column, line - 0.45), len(piece.text)
        axes.add_patch(Rectangle(corner, width, 0.9, color=css(background), linewidth=0))
    if strength < -FAINT:
        axes.plot([column, column + len(piece.text)], [line + 0.33] * 2, color=css(ink(background)), linewidth=0.5)
    color = "#a0a7ae" if piece.word is not None and piece.word.special else css(ink(background))
    text = printable(piece.text).replace("$", r"\$")  # no formulas
    axes.text(column, line, text, fontsize=SIZE, family="DejaVu Sans Mono", va="center", color=color)
