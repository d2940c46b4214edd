"""Which passage made it say this sentence? Sentences of an answer × sources, in the terminal and as HTML."""

from collections.abc import Sequence
from html import escape
from textwrap import shorten, wrap

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tokenlight.foundation.console import SafeConsole
from tokenlight.results.by_source import REST
from tokenlight.results.explanation import printable
from tokenlight.results.passage import Passage
from tokenlight.results.source_table import DocumentTable
from tokenlight.text.sources import Document
from tokenlight.views.document import IN_NOTEBOOK, LIGHT_COLORS, document, shaded
from tokenlight.views.palette import DARK, css, ink, shade

NARROWEST = 24  # characters that a sentence needs beside the numbers
NAME = 10  # characters of a line of a source's name above its numbers
MOST = 3  # sources under each sentence, where the table is too wide for the terminal
PROMPT = "the prompt"
TITLE = "Which passage made it say this sentence?"
STYLE = f"""
.tokenlight-sources {{
  {LIGHT_COLORS}; font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  padding: .2rem .4rem
}}
.tokenlight-sources table {{ border-collapse: separate; border-spacing: 2px }}
.tokenlight-sources th, .tokenlight-sources td {{ padding: .3rem .55rem; border: 0 }}
.tokenlight-sources thead th {{ vertical-align: bottom; text-align: center; font-weight: 600; max-width: 9rem }}
.tokenlight-sources thead small {{ display: block; font-weight: 400; color: var(--quiet); line-height: 1.3 }}
.tokenlight-sources tbody th, .tokenlight-sources td {{ vertical-align: middle }}
.tokenlight-sources tbody th {{ text-align: start; font-weight: 400; max-width: 30rem; white-space: pre-wrap }}
.tokenlight-sources td {{ text-align: center; border-radius: 3px; font-variant-numeric: tabular-nums }}
.tokenlight-sources .other {{ color: var(--quiet); font-weight: 400 }}
.tokenlight-sources .first-other {{ border-left: 2px solid var(--line) }}
.tokenlight-sources p {{ margin: .4rem 0 0; color: var(--quiet); font-size: 13px }}
"""
PAGE_STYLE = """
body { max-width: 72rem }
h1 { margin: 0 0 1rem }
.tokenlight-sources { border: 1px solid var(--line); border-radius: 8px; padding: .9rem 1.1rem }
@media (max-width: 40rem) { .tokenlight-sources tbody th { min-width: 11rem } }
"""
READING = (
    "Scores add up: a row is its sentence's score. Shade is strength, relative to the strongest source; "
    "what is no source stands behind the line."
)


def is_document(column: Passage) -> bool:
    return column.segment is not None


def group_name(group: Passage, documents: Sequence[Document]) -> str:
    """Without sources, what is left of the prompt is all of it."""
    return PROMPT if group.name == REST and not documents else group.name


def strengths(table: DocumentTable) -> list[list[float]]:
    """Of each cell, relative to the strongest one of a source; 0 for what is no source."""
    named = [i for i, column in enumerate(table.documents) if is_document(column)]
    largest = float(table.scores[:, named].abs().max()) if named else 0.0
    return [
        [float(score) / largest if i in named and largest else 0.0 for i, score in enumerate(row)]
        for row in table.scores
    ]


# The terminal


def show_table(table: DocumentTable, console: Console | None = None) -> None:
    """A row for each sentence; where that is too wide, the strongest sources under each sentence."""
    console = console or SafeConsole()
    names = [wrap(one_line(column.name), NAME) for column in table.documents]
    widths = [max(7, *map(len, lines)) + 1 for lines in names]
    console.print(grid(table, names) if NARROWEST + sum(widths) <= console.width else lists(table))


def grid(table: DocumentTable, names: Sequence[Sequence[str]]) -> Table:
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    drawn.add_column("", ratio=1)
    for lines in names:
        drawn.add_column(Text("\n".join(lines)), justify="right", no_wrap=True, min_width=7, vertical="bottom")
    for number, (part, row, shades) in enumerate(zip(table.parts, table.scores, strengths(table), strict=True), 1):
        cells = [cell(float(score), strength) for score, strength in zip(row, shades, strict=True)]
        drawn.add_row(Text(f"{number} {one_line(part.text)}"), *cells)
    return drawn


def cell(score: float, strength: float) -> Text:
    background = shade(strength)
    style = f"{css(ink(background))} on {css(background)}" if strength else "dim"
    return Text(score_text(score), style=style)


def score_text(score: float) -> str:
    return f"{score:+.3g}".replace("-", "−")


def lists(table: DocumentTable) -> Group:
    """Each sentence with the strongest sources, then what lies elsewhere."""
    drawn = Table.grid(padding=(0, 1, 0, 0))
    drawn.add_column(justify="right", no_wrap=True)
    drawn.add_column()
    named = [i for i, column in enumerate(table.documents) if is_document(column)]
    for number, (part, row) in enumerate(zip(table.parts, table.scores.tolist(), strict=True), 1):
        drawn.add_row(str(number), Text(one_line(part.text), style="bold"))
        for i in sorted(named, key=lambda i: -abs(row[i]))[:MOST]:
            drawn.add_row(score_text(row[i]), Text(shortened(f"{table.documents[i].name}: {table.documents[i].text}")))
        others = [
            f"{one_line(column.name)} {score_text(row[i])}"
            for i, column in enumerate(table.documents)
            if not is_document(column)
        ]
        drawn.add_row("", Text(", ".join(others), style="dim"))
    return Group(drawn)


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def shortened(text: str, length: int = 140) -> str:
    return shorten(one_line(text), length, placeholder=" …")


# HTML


def table_page(table: DocumentTable, title: str = TITLE) -> str:
    return document(title, body(table), STYLE, PAGE_STYLE)


def table_fragment(table: DocumentTable) -> str:
    """For notebooks: the table with its style."""
    return f"<style>{STYLE}{IN_NOTEBOOK}</style>{body(table)}"


def body(table: DocumentTable) -> str:
    kinds = column_kinds(table)
    heads = "".join(
        f'<th scope="col" class="{kind}" title="{escape(one_line(column.text))}" dir="auto">{escape(column.name)}'
        f"{f'<small>{escape(shortened(column.text, 40))}</small>' if column.text else ''}</th>"
        for column, kind in zip(table.documents, kinds, strict=True)
    )
    rows = "".join(
        f'<tr><th scope="row" dir="auto">{escape(part.text)}</th>{html_cells(row, shades, kinds)}</tr>'
        for part, row, shades in zip(table.parts, table.scores.tolist(), strengths(table), strict=True)
    )
    return (
        '<div class="tokenlight-sources"><div class="scroll" tabindex="0" role="group" '
        'aria-label="Sentences and sources">'
        f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div><p>{READING}</p></div>"
    )


def column_kinds(table: DocumentTable) -> list[str]:
    first = next((i for i, column in enumerate(table.documents) if not is_document(column)), None)
    return [
        "source" if is_document(column) else "other first-other" if i == first else "other"
        for i, column in enumerate(table.documents)
    ]


def html_cells(row: list[float], shades: list[float], kinds: list[str]) -> str:
    cells = []
    for score, strength, kind in zip(row, shades, kinds, strict=True):
        style = f' style="{shaded(shade(strength), shade(strength, DARK))}"' if kind == "source" else ""
        cells.append(f'<td class="{kind}{" shaded" if style else ""}"{style}>{score_text(score)}</td>')
    return "".join(cells)
