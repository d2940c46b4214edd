"""The table of an answer's sentences by documents: in the terminal, as HTML, as a figure."""

import textwrap
from collections.abc import Sequence
from html import escape
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tokenlight.common.console import SafeConsole
from tokenlight.results.explanation import printable
from tokenlight.results.units import REST, DocumentTable, Passage
from tokenlight.text.tokenized_text import Document
from tokenlight.views.drawing import DARK, css, ink, new_figure, shade
from tokenlight.views.html import IN_NOTEBOOK, LIGHT_COLORS, document, shaded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NARROWEST = 24  # minimal width of a sentence, in characters
NAME = 10  # characters in a line of a document's name above its numbers
MOST = 3  # documents under each sentence, if the table is too wide for the terminal
PROMPT = "the prompt"
TITLE = "Which passage made it say this sentence?"
STYLE = f"""
.tokenlight-documents {{
  {LIGHT_COLORS}; font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  padding: .2rem .4rem
}}
.tokenlight-documents table {{ border-collapse: separate; border-spacing: 2px }}
.tokenlight-documents th, .tokenlight-documents td {{ padding: .3rem .55rem; border: 0 }}
.tokenlight-documents thead th {{ vertical-align: bottom; text-align: center; font-weight: 600; max-width: 9rem }}
.tokenlight-documents thead small {{ display: block; font-weight: 400; color: var(--quiet); line-height: 1.3 }}
.tokenlight-documents tbody th, .tokenlight-documents td {{ vertical-align: middle }}
.tokenlight-documents tbody th {{ text-align: start; font-weight: 400; max-width: 30rem; white-space: pre-wrap }}
.tokenlight-documents td {{ text-align: center; border-radius: 3px; font-variant-numeric: tabular-nums }}
.tokenlight-documents .other {{ color: var(--quiet); font-weight: 400 }}
.tokenlight-documents .first-other {{ border-left: 2px solid var(--line) }}
.tokenlight-documents p {{ margin: .4rem 0 0; color: var(--quiet); font-size: 13px }}
"""
PAGE_STYLE = """
body { max-width: 72rem }
h1 { margin: 0 0 1rem }
.tokenlight-documents { border: 1px solid var(--line); border-radius: 8px; padding: .9rem 1.1rem }
@media (max-width: 40rem) { .tokenlight-documents tbody th { min-width: 11rem } }
"""
READING = (
    "Scores add up: a row is its sentence's score. Shade is strength, relative to the strongest document; "
    "columns after the line are not documents."
)


def is_document(column: Passage) -> bool:
    return column.segment is not None


def group_name(group: Passage, documents: Sequence[Document]) -> str:
    """The name of a column; without documents, the rest of the prompt is the whole prompt."""
    return PROMPT if group.name == REST and not documents else group.name


def strengths(table: DocumentTable) -> list[list[float]]:
    """The strength of each cell, relative to the strongest one of a document; 0 outside documents."""
    named = [i for i, column in enumerate(table.documents) if is_document(column)]
    largest = float(table.scores[:, named].abs().max()) if named else 0.0
    return [
        [float(score) / largest if i in named and largest else 0.0 for i, score in enumerate(row)]
        for row in table.scores
    ]


# The terminal


def show_table(table: DocumentTable, console: Console | None = None) -> None:
    """Print a row for each sentence, or, if that is too wide, each sentence with its strongest documents."""
    console = console or SafeConsole()
    names = [wrap(one_line(column.name), NAME) for column in table.documents]
    widths = [max(7, *map(len, lines)) + 1 for lines in names]
    console.print(grid(table, names) if NARROWEST + sum(widths) <= console.width else lists(table))


def grid(table: DocumentTable, names: Sequence[Sequence[str]]) -> Table:
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    drawn.add_column("", ratio=1)
    for lines in names:
        drawn.add_column(Text("\n".join(lines)), justify="right", no_wrap=True, min_width=7, vertical="bottom")
    for number, (sentence, row, shades) in enumerate(zip(table.parts, table.scores, strengths(table), strict=True), 1):
        cells = [cell(float(score), strength) for score, strength in zip(row, shades, strict=True)]
        drawn.add_row(Text(f"{number} {one_line(sentence.text)}"), *cells)
    return drawn


def cell(score: float, strength: float) -> Text:
    background = shade(strength)
    style = f"{css(ink(background))} on {css(background)}" if strength else "dim"
    return Text(score_text(score), style=style)


def score_text(score: float) -> str:
    return f"{score:+.3g}".replace("-", "−")


def lists(table: DocumentTable) -> Group:
    """Each sentence with its strongest documents, then the scores outside documents."""
    drawn = Table.grid(padding=(0, 1, 0, 0))
    drawn.add_column(justify="right", no_wrap=True)
    drawn.add_column()
    named = [i for i, column in enumerate(table.documents) if is_document(column)]
    for number, (sentence, row) in enumerate(zip(table.parts, table.scores.tolist(), strict=True), 1):
        drawn.add_row(str(number), Text(one_line(sentence.text), style="bold"))
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
        f'<tr><th scope="row" dir="auto">{escape(sentence.text)}</th>{html_cells(row, shades, kinds)}</tr>'
        for sentence, row, shades in zip(table.parts, table.scores.tolist(), strengths(table), strict=True)
    )
    return (
        '<div class="tokenlight-documents"><div class="scroll" tabindex="0" role="group" '
        'aria-label="Sentences and documents">'
        f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div><p>{READING}</p></div>"
    )


def column_kinds(table: DocumentTable) -> list[str]:
    first = next((i for i, column in enumerate(table.documents) if not is_document(column)), None)
    return [
        "document" if is_document(column) else "other first-other" if i == first else "other"
        for i, column in enumerate(table.documents)
    ]


def html_cells(row: list[float], shades: list[float], kinds: list[str]) -> str:
    cells = []
    for score, strength, kind in zip(row, shades, kinds, strict=True):
        style = f' style="{shaded(shade(strength), shade(strength, DARK))}"' if kind == "document" else ""
        cells.append(f'<td class="{kind}{" shaded" if style else ""}"{style}>{score_text(score)}</td>')
    return "".join(cells)


WIDTH, LINE = 44, 0.17  # characters in a line of a sentence, and the line's height in inches
TEXT, CELL = 2.9, 0.78  # widths of the sentences and of a column, in inches
LINES = 4  # the most lines of a sentence
GAP = 0.25  # between documents and other passages, in columns


def document_figure(table: DocumentTable) -> "Figure":
    """A row for each sentence and a column for each document, with numbers; after a gap, scores outside documents."""
    sentences = [wrapped(sentence.text) for sentence in table.parts]
    names = [textwrap.fill(column.name, 12) for column in table.documents]
    heights = [max(2, text.count("\n") + 1) * LINE + 0.1 for text in sentences]
    head = (max(name.count("\n") for name in names) + 1) * LINE + 0.15
    figure = new_figure(TEXT + CELL * (len(names) + GAP), sum(heights) + head)
    axes = figure.subplots()
    edges = column_places(table)
    bottom = 0.0
    for text, height, scores, shades in zip(sentences, heights, table.scores.tolist(), strengths(table), strict=True):
        middle = bottom + height / 2
        axes.text(-TEXT / CELL, middle, text, va="center", fontsize=8)
        for edge, score, strength, column in zip(edges, scores, shades, table.documents, strict=True):
            draw_cell(axes, (edge, bottom, height), score, strength, is_document(column))
        bottom += height
    for edge, name, column in zip(edges, names, table.documents, strict=True):
        color = "black" if is_document(column) else "#57606a"
        axes.text(edge + 0.5, -0.06, name, ha="center", va="bottom", fontsize=8, color=color)
    axes.set(xlim=(-TEXT / CELL, edges[-1] + 1.05), ylim=(bottom + 0.02, -0.02))
    axes.axis("off")
    return figure


def column_places(table: DocumentTable) -> list[float]:
    """Left edges of the columns, in units of a column's width."""
    others = [not is_document(column) for column in table.documents]
    return [i + (GAP if other and not all(others) else 0.0) for i, other in enumerate(others)]


def draw_cell(axes: Any, box: tuple[float, float, float], score: float, strength: float, of_document: bool) -> None:
    from matplotlib.patches import Rectangle

    left, bottom, height = box
    background = shade(strength)
    if of_document:
        inner = (left + 0.03, bottom + 0.02)
        axes.add_patch(Rectangle(inner, 0.94, height - 0.04, color=css(background), linewidth=0))
    color = css(ink(background)) if of_document else "#57606a"
    axes.text(left + 0.5, bottom + height / 2, score_text(score), ha="center", va="center", fontsize=8, color=color)


def wrapped(text: str) -> str:
    lines = textwrap.wrap(one_line(text), WIDTH)
    return "\n".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], lines[LINES - 1] + " …"])
