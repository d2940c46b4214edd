"""Heatmaps as standalone HTML documents, with a table of scores. Every character of a text is escaped."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from tokenlight.common.formatting import describe_count
from tokenlight.results.explanation import Explanation
from tokenlight.views.drawing import DARK, Color, css, ink, shade
from tokenlight.views.layout import (
    Fold,
    Piece,
    Results,
    by_text,
    explained,
    folded,
    group_notes,
    headline,
    origin,
    shared_notes,
    strongest,
)

LIGHT_COLORS = (
    "--paper: #fff; --page: #f6f8fa; --ink: #1b1f24; --quiet: #57606a; --faint: #67707a; --line: #d0d7de; "
    "--grid: #eaeef2; --note: #7d5200; --accent: #1f5f9f"
)
DARK_COLORS = (
    f"--paper: {css(DARK.paper)}; --page: #0d1117; --ink: #e6edf3; --quiet: #9da7b3; --faint: #8b949e; "
    "--line: #30363d; --grid: #262c34; --note: #e0b04c; --accent: #6cb0f0"
)
# Shades are set on each element: the light one directly, so that it also works in notebooks and e-mails, the dark one
# as a variable. Prints are always light.
DOCUMENT_STYLE = f"""
:root {{ color-scheme: light dark; {LIGHT_COLORS} }}
body {{
  margin: 0 auto; max-width: 62rem; padding: 2rem 1.2rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere
}}
h1 {{ font: 600 22px/1.3 system-ui, sans-serif; margin: 0 0 .3rem }}
section {{
  background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: .9rem 1.1rem; margin: 0 0 1rem
}}
.shaded {{ print-color-adjust: exact; -webkit-print-color-adjust: exact }}
:focus-visible {{ outline: 2px solid var(--accent); outline-offset: 2px }}
.scroll {{
  overflow-x: auto;
  background:
    linear-gradient(to right, var(--paper) 40%, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 40%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to right, var(--line), transparent) left / 1rem 100% no-repeat scroll,
    linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat scroll
}}
@media (max-width: 40rem) {{
  body {{ padding: 1.2rem .7rem 2rem }}
  section {{ padding: .7rem .8rem }}
}}
"""
DARK_SHADES = "background: var(--dark) !important; color: var(--dark-ink) !important"
# After all other styles, because it overrides them.
SURROUNDINGS = f"""
@media screen and (prefers-color-scheme: dark) {{
  :root, .tokenlight, .tokenlight-documents {{ {DARK_COLORS} }}
  .shaded {{ {DARK_SHADES} }}
}}
@media print {{
  :root {{ color-scheme: light }}
  body {{ max-width: none; padding: 0; background: none }}
  section {{ border: 0; padding: 0; break-inside: avoid-page }}
  .scroll {{ overflow: visible; background: none }}
  .on-screen {{ display: none }}
}}
"""

# The theme of a notebook may differ from the system's. JupyterLab, VS Code and Colab mark it in different ways.
DARK_NOTEBOOK = ':is([data-jp-theme-light="false"], .vscode-dark, [theme="dark"])'
# JupyterLab styles all tables, with striped rows, so these rules need a higher specificity.
IN_NOTEBOOK = f"""
.tokenlight .heat.heat {{ font-size: inherit; line-height: inherit }}
.tokenlight .heat.heat :is(tr, th, td) {{ background: none; text-align: start; vertical-align: baseline }}
.tokenlight .heat.heat :is(tr, td) {{ line-height: inherit }}
{DARK_NOTEBOOK} :is(.tokenlight, .tokenlight-documents) {{ {DARK_COLORS} }}
{DARK_NOTEBOOK} .shaded {{ {DARK_SHADES} }}
"""


def document(title: str, body: str, *styles: str) -> str:
    """A page that needs nothing from outside; later styles add to the common one, or change it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{DOCUMENT_STYLE}{''.join(styles)}{SURROUNDINGS}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>\n"
    )


def shaded(light: Color, dark: Color, letters: str | None = None) -> str:
    """The style of a shaded element, whose class is `shaded`; letters are black or white if no color is given."""
    own = f"background:{css(light)};color:{letters or css(ink(light))}"
    return f"{own};--dark:{css(dark)};--dark-ink:{letters or css(ink(dark))}"


NUMBERS_STYLE = """
.tokenlight .numbers { margin: .4rem 0 0; font-size: 13px; line-height: 1.5 }
.tokenlight .numbers table { font-variant-numeric: tabular-nums }
.tokenlight .numbers td, .tokenlight .numbers thead th { text-align: right; padding: .05rem 0 .05rem 1.2rem }
.tokenlight .numbers th { font-weight: 400; color: var(--quiet) }
.tokenlight .numbers tbody th { color: var(--ink) }
@media print { .tokenlight .numbers { display: none } }
"""


def numbers(explanations: Sequence[Explanation]) -> str:
    """A table of scores for each text, initially closed."""
    return "".join(
        number_table(list(group)) for _, group in groupby(explanations, key=lambda explanation: explanation.tokens)
    )


def number_table(explanations: Sequence[Explanation]) -> str:
    heads = "".join(f'<th scope="col">{escape(explanation.method)}</th>' for explanation in explanations)
    rows = "".join(
        f'<tr><th scope="row" dir="auto">{escape(word_of_each[0].text)}</th>'
        f"{''.join(f'<td>{score_text(word.score)}</td>' for word in word_of_each)}</tr>"
        for word_of_each in zip(*(explanation.words() for explanation in explanations), strict=True)
    )
    return (
        '<details class="numbers"><summary>Scores as numbers</summary><div class="scroll" tabindex="0" role="group" '
        'aria-label="Scores of every word">'
        f'<table><thead><tr><th scope="col">word</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def score_text(score: float) -> str:
    return f"{score:+.3g}".replace("-", "−")


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
SHOWN = 20  # the most texts of a list or dict that are shown in a notebook
FAINT = "#8c959f"  # the sign of a line break
PAGE_STYLE = """
.legend { font: 13px/1.6 system-ui, sans-serif; color: var(--quiet); margin: 0 0 1.2rem }
.legend .shaded { border-radius: 3px; padding: .1em .4em }
.made { font: 13px/1.6 system-ui, sans-serif; color: var(--quiet) }
.legend ~ .note { color: var(--note); margin: -.6rem 0 1rem; font-size: 13px; line-height: 1.4 }
@media (max-width: 40rem) { .tokenlight { padding: 0 } }
"""


def page(groups: Sequence[Sequence[Explanation]], title: str = "Which tokens made the model say that?") -> str:
    """One page; a group has explanations of one text by several methods. Shared notes are shown once."""
    shared = shared_notes(groups)
    sections = "\n".join(f"<section>{body(group, shared)}</section>" for group in groups)
    footer = f'<p class="made">{escape(origin([explanation for group in groups for explanation in group]))}</p>'
    return document(title, f"{legend()}{remarks(shared)}\n{sections}\n{footer}\n", STYLE, PAGE_STYLE)


def fragment(explanations: Sequence[Explanation]) -> str:
    """For notebooks: the heatmaps with their style."""
    return f"<style>{STYLE}{IN_NOTEBOOK}</style>{body(explanations)}"


def overview(results: Results) -> str:
    """For notebooks: the first texts of several."""
    groups = by_text(results)
    more = f"<p>… and {describe_count(len(groups) - SHOWN, 'text')} more</p>" if len(groups) > SHOWN else ""
    return "".join(map(fragment, groups[:SHOWN])) + more


def body(explanations: Sequence[Explanation], shown_notes: Sequence[str] = ()) -> str:
    """Heatmaps of one text, and a table of the scores; `shown_notes` are left out."""
    first = explanations[0]
    rows = "".join(
        f'<tr><th scope="row" class="method">{escape(e.method)}</th>'
        f'<td class="text" dir="auto">{front(e)}{heat(e)}</td></tr>'
        for e in explanations
    )
    return (
        f'<div class="tokenlight"><p class="says">the model says <b>{escape(headline(first))}</b>; '
        f'explained: <b>{escape(explained(first))}</b></p><table class="heat">{rows}</table>'
        f"{remarks([note for note in group_notes(explanations) if note not in shown_notes])}"
        f"{numbers(explanations)}</div>"
    )


def remarks(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">note: {escape(note)}</p>' for note in notes)


def heat(explanation: Explanation) -> str:
    return "".join(piece_html(piece) for piece in folded(explanation))


def piece_html(piece: Piece | Fold) -> str:
    if isinstance(piece, Piece):
        return span(piece)
    inside = "".join(map(span, piece.pieces))
    return f"<details><summary>{escape(piece.label)}</summary>{inside}</details>"


def front(explanation: Explanation) -> str:
    """The strongest sentences of a long text."""
    sentences = strongest(explanation)
    lines = "".join(f"<li><b>{sentence.score:+.3g}</b> {escape(sentence.text)}</li>" for sentence in sentences)
    return f'<ol class="strongest">{lines}</ol>' if sentences else ""


def span(piece: Piece) -> str:
    if piece.word is None:
        return escape(piece.text)
    if piece.word.special:
        return special_span(piece)
    colors = shaded(shade(piece.strength), shade(piece.strength, DARK), FAINT if piece.word.newline else None)
    return f'<span class="word shaded" style="{colors}" title="{piece.word.score:+.4g}">{escape(piece.text)}</span>'


def special_span(piece: Piece) -> str:
    """A special token. Those that the tokenizer added are never alone at the beginning of a line."""
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
