"""Which passage made it say this sentence? The table of sources as a figure for a paper."""

import textwrap
from typing import TYPE_CHECKING, Any

from tokenlight.results.source_table import DocumentTable
from tokenlight.views.figure import new_figure
from tokenlight.views.palette import css, ink, shade
from tokenlight.views.source_table import is_document, one_line, score_text, strengths

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, LINE = 44, 0.17  # characters of a sentence's line, and its height in inches
TEXT, CELL = 2.9, 0.78  # the widths of sentences and of a column, in inches
LINES = 4  # of a sentence; the rest is left out
GAP = 0.25  # between sources and what is none, in columns


def document_figure(table: DocumentTable) -> "Figure":
    """A row for each sentence, a column for each source, with numbers; behind a gap the scores that lie elsewhere."""
    sentences = [wrapped(part.text) for part in table.parts]
    names = [textwrap.fill(column.name, 12) for column in table.documents]
    heights = [max(2, text.count("\n") + 1) * LINE + 0.1 for text in sentences]
    head = (max(name.count("\n") for name in names) + 1) * LINE + 0.15
    figure = new_figure(TEXT + CELL * (len(names) + GAP), sum(heights) + head)
    axes = figure.subplots()
    places = column_places(table)
    bottom = 0.0
    for text, height, scores, shades in zip(sentences, heights, table.scores.tolist(), strengths(table), strict=True):
        middle = bottom + height / 2
        axes.text(-TEXT / CELL, middle, text, va="center", fontsize=8)
        for place, score, strength, column in zip(places, scores, shades, table.documents, strict=True):
            draw_cell(axes, (place, bottom, height), score, strength, is_document(column))
        bottom += height
    for place, name, column in zip(places, names, table.documents, strict=True):
        color = "black" if is_document(column) else "#57606a"
        axes.text(place + 0.5, -0.06, name, ha="center", va="bottom", fontsize=8, color=color)
    axes.set(xlim=(-TEXT / CELL, places[-1] + 1.05), ylim=(bottom + 0.02, -0.02))
    axes.axis("off")
    return figure


def column_places(table: DocumentTable) -> list[float]:
    """Left edges, in columns."""
    others = [not is_document(column) for column in table.documents]
    return [i + (GAP if other and not all(others) else 0.0) for i, other in enumerate(others)]


def draw_cell(axes: Any, box: tuple[float, float, float], score: float, strength: float, source: bool) -> None:
    from matplotlib.patches import Rectangle

    place, bottom, height = box
    background = shade(strength)
    if source:
        inner = (place + 0.03, bottom + 0.02)
        axes.add_patch(Rectangle(inner, 0.94, height - 0.04, color=css(background), linewidth=0))
    color = css(ink(background)) if source else "#57606a"
    axes.text(place + 0.5, bottom + height / 2, score_text(score), ha="center", va="center", fontsize=8, color=color)


def wrapped(text: str) -> str:
    lines = textwrap.wrap(one_line(text), WIDTH)
    return "\n".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], lines[LINES - 1] + " …"])
