"""Scores as a table of numbers, words down and methods across: for those who cannot see shades or point at them."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from tokenlight.results.explanation import Explanation

NUMBERS_STYLE = """
.tokenlight .numbers { margin: .4rem 0 0; font-size: 13px; line-height: 1.5 }
.tokenlight .numbers table { font-variant-numeric: tabular-nums }
.tokenlight .numbers td, .tokenlight .numbers thead th { text-align: right; padding: .05rem 0 .05rem 1.2rem }
.tokenlight .numbers th { font-weight: 400; color: var(--quiet) }
.tokenlight .numbers tbody th { color: var(--ink) }
@media print { .tokenlight .numbers { display: none } }
"""


def numbers(explanations: Sequence[Explanation]) -> str:
    """A table for each text, closed until somebody opens it."""
    return "".join(number_table(list(some)) for _, some in groupby(explanations, key=lambda one: one.tokens))


def number_table(explanations: Sequence[Explanation]) -> str:
    heads = "".join(f'<th scope="col">{escape(one.method)}</th>' for one in explanations)
    rows = "".join(
        f'<tr><th scope="row" dir="auto">{escape(same[0].text)}</th>'
        f"{''.join(f'<td>{score_text(word.score)}</td>' for word in same)}</tr>"
        for same in zip(*(one.words() for one in explanations), strict=True)
    )
    return (
        '<details class="numbers"><summary>Scores as numbers</summary><div class="scroll" tabindex="0" role="group" '
        'aria-label="Scores of every word">'
        f'<table><thead><tr><th scope="col">word</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def score_text(score: float) -> str:
    return f"{score:+.3g}".replace("-", "−")
