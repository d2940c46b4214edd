"""Texts with a background color per token: green for positive scores, red for negative ones."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tokenlight.results.explanation import Explanation, printable
from tokenlight.views.difference import LETTER, LINE, SIZE
from tokenlight.views.drawing import css, ink, new_figure, tint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 100  # letters of a line
BETWEEN_TEXTS = 1.0  # lines


def draw_shaded_texts(explanations: Mapping[str, Explanation]) -> "Figure":
    """The tokens of each explanation below its title; the strongest token that is not special has the full color."""
    from matplotlib.patches import Rectangle

    placed = {title: list(place_tokens(explanation.tokens)) for title, explanation in explanations.items()}
    height = sum(places[-1][2] + 2 + BETWEEN_TEXTS for places in placed.values())
    figure = new_figure((COLUMNS + 2) * LETTER, height * LINE)
    figure.set_layout_engine("none")  # one unit of the axes is one letter, and one line
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, COLUMNS + 2), ylim=(height, 0))
    axes.axis("off")
    top = 0.8
    for title, explanation in explanations.items():
        axes.text(1, top, printable(title), fontsize=SIZE, va="center", color="#57606a")
        largest = float(explanation.scores[~explanation.special].abs().max()) or 1.0
        strengths = (explanation.scores / largest).tolist()
        for (token, column, line), strength in zip(placed[title], strengths, strict=True):
            background, middle = tint(strength), top + 1 + line
            axes.add_patch(Rectangle((column, middle - 0.45), len(token), 0.9, color=css(background), linewidth=0))
            text, color = token.replace("$", r"\$"), css(ink(background))
            axes.text(column, middle, text, fontsize=SIZE, family="DejaVu Sans Mono", va="center", color=color)
        top += placed[title][-1][2] + 2 + BETWEEN_TEXTS
    return figure


def place_tokens(tokens: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Each token with its column and line; a token that does not fit begins a line."""
    column, line = 1, 0
    for token in map(printable, tokens):
        if column + len(token) > COLUMNS + 1 and column > 1:
            column, line = 1, line + 1
        yield token, column, line
        column += len(token) + 1
