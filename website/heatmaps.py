"""Heatmaps for pages of the site. Colors come from its style sheet, so that they fit light and dark pages."""

from collections.abc import Sequence
from functools import cache
from html import escape

import tokenlight as tl
from tokenlight.views.drawing import ink, shade
from tokenlight.views.layout import Piece, explained, headline, pieces

WHITE = (255, 255, 255)


@cache
def explainer() -> tl.Explainer:
    """The model inside the package, loaded once for all pages."""
    return tl.load()


def heatmap(explanations: Sequence[tl.Explanation], names: bool = True) -> str:
    """Explanations of one text, one under another; as one block of HTML without blank lines."""
    first = explanations[0]
    rows = "".join(row(explanation, names) for explanation in explanations)
    says = f"prediction: <b>{escape(headline(first))}</b>; explained: {escape(explained(first))}"
    return f'<div class="heat"><p class="heat-says">{says}</p>{rows}</div>'


def row(explanation: tl.Explanation, name: bool) -> str:
    words = "".join(map(word, pieces(explanation)))
    shown = f"<code>{escape(explanation.method)}</code>" if name else ""
    return f'<div class="heat-row">{shown}<p>{words}</p></div>'


def word(piece: Piece) -> str:
    if piece.word is None:
        return escape(piece.text)
    if piece.word.special:
        return f'<span class="heat-special">{escape(piece.text)}</span>'
    side = "for" if piece.strength >= 0 else "against"
    strong = " strong" if ink(shade(piece.strength)) == WHITE else ""  # letters are white on light pages, too
    share = f"--share:{100 * abs(piece.strength):.0f}%"
    title = f"{piece.word.score:+.4g}"
    return f'<span class="heat-word {side}{strong}" style="{share}" title="{title}">{escape(piece.text)}</span>'
