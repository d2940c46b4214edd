"""The same heatmaps as standalone HTML. Every character of a text is escaped."""

from collections.abc import Sequence
from html import escape

from tokenlight.results.explanation import Explanation
from tokenlight.views.layout import Piece, explained, headline
from tokenlight.views.long_texts import Fold, folded, strongest
from tokenlight.views.palette import css, ink, shade

STYLE = """
.tokenlight { font: 15px/1.9 system-ui, sans-serif; color: #1b1f24; background: #fff; padding: .2rem .4rem }
.tokenlight .says { color: #57606a; margin: 0 0 .4rem }
.tokenlight .says b { color: #1b1f24 }
.tokenlight table { border-collapse: collapse }
.tokenlight td { padding: .15rem .8rem .15rem 0; vertical-align: top; text-align: left; border: 0 }
.tokenlight td.method { font: 13px/2.1 ui-monospace, monospace; color: #57606a; white-space: nowrap }
.tokenlight td.text { white-space: pre-wrap; overflow-wrap: anywhere }
.tokenlight .word { border-radius: 3px; padding: .1em 0 }
.tokenlight .special { color: #a0a7ae; font-size: .8em }
.tokenlight .strongest { margin: 0 0 .6rem; padding: 0 0 .6rem 1.6rem; line-height: 1.5; white-space: normal }
.tokenlight .strongest b { font-variant-numeric: tabular-nums }
.tokenlight details { display: inline }
.tokenlight details[open] { display: block; border-left: 3px solid #d0d7de; padding-left: .6rem }
.tokenlight summary { display: inline; cursor: pointer; color: #57606a; font-style: italic; white-space: nowrap }
.tokenlight .note { color: #9a6700; margin: .3rem 0 0 }
"""
FAINT = "#8c959f"  # the sign of a line break
PAGE_STYLE = """
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.2rem 4rem; background: #f6f8fa }
h1 { font: 600 22px/1.3 system-ui, sans-serif; margin: 0 0 .3rem }
.legend { font: 13px/1.6 system-ui, sans-serif; color: #57606a; margin: 0 0 1.2rem }
.legend span { border-radius: 3px; padding: .1em .4em }
section { background: #fff; border: 1px solid #d0d7de; border-radius: 8px; padding: .9rem 1.1rem; margin: 0 0 1rem }
"""


def page(groups: Sequence[Sequence[Explanation]], title: str = "Which tokens made the model say that?") -> str:
    """One page; a group holds explanations of the same text by several methods."""
    sections = "\n".join(f"<section>{body(group)}</section>" for group in groups)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{PAGE_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>{legend()}\n{sections}\n</body></html>\n"
    )


def fragment(explanations: Sequence[Explanation]) -> str:
    """For notebooks: the heatmaps with their style."""
    return f"<style>{STYLE}</style>{body(explanations)}"


def body(explanations: Sequence[Explanation]) -> str:
    first = explanations[0]
    rows = "".join(
        f'<tr><td class="method">{escape(e.method)}</td><td class="text" dir="auto">{front(e)}{heat(e)}</td></tr>'
        for e in explanations
    )
    remarks = dict.fromkeys(note for explanation in explanations for note in explanation.notes)
    return (
        f'<div class="tokenlight"><p class="says">the model says <b>{escape(headline(first))}</b>; '
        f"explained: <b>{escape(explained(first))}</b></p><table>{rows}</table>"
        + "".join(f'<p class="note">note: {escape(note)}</p>' for note in remarks)
        + "</div>"
    )


def heat(explanation: Explanation) -> str:
    return "".join(part(piece) for piece in folded(explanation))


def part(piece: Piece | Fold) -> str:
    if isinstance(piece, Piece):
        return span(piece)
    inside = "".join(map(span, piece.pieces))
    return f"<details><summary>{escape(piece.label)}</summary>{inside}</details>"


def front(explanation: Explanation) -> str:
    """The strongest sentences of a long text."""
    found = strongest(explanation)
    lines = "".join(f"<li><b>{one.score:+.3g}</b> {escape(one.text)}</li>" for one in found)
    return f'<ol class="strongest">{lines}</ol>' if found else ""


def span(piece: Piece) -> str:
    if piece.word is None:
        return escape(piece.text)
    if piece.word.special:
        return f'<span class="special">{escape(piece.text)}</span>'
    background = shade(piece.strength)
    letters = FAINT if piece.word.newline else css(ink(background))
    colours = f"background:{css(background)};color:{letters}"
    return f'<span class="word" style="{colours}" title="{piece.word.score:+.4g}">{escape(piece.text)}</span>'


def legend() -> str:
    def sample(strength: float, text: str) -> str:
        colour = shade(strength)
        return f'<span style="background:{css(colour)};color:{css(ink(colour))}">{text}</span>'

    return (
        f'<p class="legend">{sample(1, "supports")} the explained label, {sample(-1, "speaks against")} it. '
        "Shade is strength, relative to the strongest word of the line. Hover a word for its score.</p>"
    )
