"""The same heatmaps as standalone HTML. Every character of a text is escaped."""

from collections.abc import Sequence
from html import escape

from tokenlight.foundation.sizes import describe_count
from tokenlight.results.explanation import Explanation
from tokenlight.views.document import IN_NOTEBOOK, LIGHT_COLORS, document, shaded
from tokenlight.views.layout import Piece, Results, by_text, explained, group_notes, headline, origin, shared_notes
from tokenlight.views.long_texts import Fold, folded, strongest
from tokenlight.views.number_table import NUMBERS_STYLE, numbers
from tokenlight.views.palette import DARK, shade

STYLE = f"""
.tokenlight {{
  {LIGHT_COLORS}; font: 15px/1.9 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  padding: .2rem .4rem
}}
.tokenlight .says {{ color: var(--quiet); margin: 0 0 .4rem }}
.tokenlight .says b {{ color: var(--ink) }}
.tokenlight table {{ border-collapse: collapse }}
.tokenlight td, .tokenlight th {{ padding: .15rem .8rem .15rem 0; vertical-align: top; text-align: start; border: 0 }}
.tokenlight .heat :is(th, td) {{ vertical-align: baseline }}
.tokenlight .method {{ font: 13px/2.1 ui-monospace, monospace; color: var(--quiet); white-space: nowrap }}
.tokenlight .text {{ white-space: pre-wrap; overflow-wrap: anywhere }}
.tokenlight .word {{ border-radius: 3px; padding: .1em 0 }}
.tokenlight .special {{ color: var(--faint); font-size: .8em }}
.tokenlight .added {{ white-space: nowrap }}
.tokenlight .strongest {{ margin: 0 0 .6rem; padding: 0 0 .6rem 1.6rem; line-height: 1.5; white-space: normal }}
.tokenlight .strongest b {{ font-variant-numeric: tabular-nums }}
.tokenlight .text details {{ display: inline }}
.tokenlight .text details[open] {{ display: block; border-left: 3px solid var(--line); padding-left: .6rem }}
.tokenlight .text summary {{ display: inline; font-style: italic; white-space: nowrap }}
.tokenlight summary {{ cursor: pointer; color: var(--quiet) }}
.tokenlight .note {{ color: var(--note); margin: .3rem 0 0; font-size: 13px; line-height: 1.4 }}
@media (max-width: 40rem) {{
  .tokenlight .heat, .tokenlight .heat tr, .tokenlight .heat th, .tokenlight .heat td {{ display: block; padding: 0 }}
  .tokenlight .heat td {{ margin-bottom: .3rem }}
}}
{NUMBERS_STYLE}"""
SHOWN = 20  # texts of a list or dict that is looked at in a notebook
FAINT = "#8c959f"  # the sign of a line break
PAGE_STYLE = """
.legend { font: 13px/1.6 system-ui, sans-serif; color: var(--quiet); margin: 0 0 1.2rem }
.legend .shaded { border-radius: 3px; padding: .1em .4em }
.made { font: 13px/1.6 system-ui, sans-serif; color: var(--quiet) }
.legend ~ .note { color: var(--note); margin: -.6rem 0 1rem; font-size: 13px; line-height: 1.4 }
@media (max-width: 40rem) { .tokenlight { padding: 0 } }
"""


def page(groups: Sequence[Sequence[Explanation]], title: str = "Which tokens made the model say that?") -> str:
    """One page; a group holds explanations of the same text by several methods. A note of several is said once."""
    shared = shared_notes(groups)
    sections = "\n".join(f"<section>{body(group, shared)}</section>" for group in groups)
    made = f'<p class="made">{escape(origin([one for group in groups for one in group]))}</p>'
    return document(title, f"{legend()}{remarks(shared)}\n{sections}\n{made}\n", STYLE, PAGE_STYLE)


def fragment(explanations: Sequence[Explanation]) -> str:
    """For notebooks: the heatmaps with their style."""
    return f"<style>{STYLE}{IN_NOTEBOOK}</style>{body(explanations)}"


def overview(results: Results) -> str:
    """For notebooks: the first texts of many."""
    groups = by_text(results)
    more = f"<p>… and {describe_count(len(groups) - SHOWN, 'text')} more</p>" if len(groups) > SHOWN else ""
    return "".join(map(fragment, groups[:SHOWN])) + more


def body(explanations: Sequence[Explanation], said: Sequence[str] = ()) -> str:
    """Heatmaps of one text, and the same as numbers; notes that were `said` already are left out."""
    first = explanations[0]
    rows = "".join(
        f'<tr><th scope="row" class="method">{escape(e.method)}</th>'
        f'<td class="text" dir="auto">{front(e)}{heat(e)}</td></tr>'
        for e in explanations
    )
    return (
        f'<div class="tokenlight"><p class="says">the model says <b>{escape(headline(first))}</b>; '
        f'explained: <b>{escape(explained(first))}</b></p><table class="heat">{rows}</table>'
        f"{remarks([note for note in group_notes(explanations) if note not in said])}{numbers(explanations)}</div>"
    )


def remarks(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">note: {escape(note)}</p>' for note in notes)


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
        return special_span(piece)
    colors = shaded(shade(piece.strength), shade(piece.strength, DARK), FAINT if piece.word.newline else None)
    return f'<span class="word shaded" style="{colors}" title="{piece.word.score:+.4g}">{escape(piece.text)}</span>'


def special_span(piece: Piece) -> str:
    """One that the tokenizer added never stands alone at the beginning of a line."""
    kind = "special added" if "\n" not in piece.text else "special"
    return f'<span class="{kind}">{escape(piece.text)}</span>'


def legend() -> str:
    def sample(strength: float, text: str) -> str:
        return f'<span class="shaded" style="{shaded(shade(strength), shade(strength, DARK))}">{text}</span>'

    return (
        f'<p class="legend">{sample(1, "supports")} the explained label, {sample(-1, "speaks against")} it. '
        "Shade is strength, relative to the strongest word of the line. "
        '<span class="on-screen">Hover a word for its score; all scores are below each text.</span></p>'
    )
