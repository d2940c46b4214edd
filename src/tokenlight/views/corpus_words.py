"""The words that support each label over a corpus, as table, CSV and figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
from rich.table import Table

from tokenlight.common.formatting import describe_count
from tokenlight.results.explanation import printable
from tokenlight.results.tables import CorpusSummary, LabelWords, WordSupport
from tokenlight.views.csv_text import csv_text
from tokenlight.views.drawing import AGAINST, SUPPORT, css, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = 8  # labels that are shown; a language model has one per token
CSV_HEADER = ("model", "method", "label", "texts", "word", "uses", "strongest", "strength", "distinctness")


LEGEND = (
    "strength: share of the largest |score| of a text, mean over uses; distinct: standard errors above the mean word"
)


def summary_table(summary: CorpusSummary, top: int) -> Table:
    """For each label its words: uses, uses as strongest word, mean strength, and distinctness."""
    table = Table(title=title(summary), title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.caption, table.caption_justify = LEGEND, "left"
    table.add_column("label", style="cyan", no_wrap=True)
    table.add_column("word", no_wrap=True)
    for name in ("uses", "strongest", "strength", "distinct"):
        table.add_column(name, justify="right")
    for label in summary.labels[:LABELS]:
        for i, word in enumerate(supporting(label, top)):
            name = f"{printable(label.label)} ({describe_count(label.texts, 'text')})" if i == 0 else ""
            counts = (f"{word.uses:,}", f"{word.strongest:,}", f"{word.strength:+.2f}", f"{word.distinctness:.1f}")
            table.add_row(name, printable(word.word), *counts)
    return table


def comparison_table(first: CorpusSummary, second: CorpusSummary, top: int, min_uses: int = 1) -> Table:
    """The words that support a label most in either checkpoint, with both strengths; the greatest change first.

    A word is listed if it has `min_uses` in either; both summaries should include rarer words, so that it can be found.
    """
    table = Table(title=f"{title(first)}   ⇄   {title(second)}", title_justify="left", box=None, header_style="bold")
    table.add_column("label", style="cyan", no_wrap=True)
    table.add_column("word", no_wrap=True)
    for name in ("uses", "strength", "uses there", "strength there", "change"):
        table.add_column(name, justify="right")
    labels = dict.fromkeys(label.label for summary in (first, second) for label in summary.labels[:LABELS])
    for label in labels:
        rows = side_by_side(first.find(label), second.find(label), top, min_uses)
        for i, (word, first_support, second_support) in enumerate(rows):
            name = printable(label) if i == 0 else ""
            change = strength_of(second_support) - strength_of(first_support)
            table.add_row(name, printable(word), *cells(first_support), *cells(second_support), f"{change:+.2f}")
    return table


def side_by_side(
    first: LabelWords | None, second: LabelWords | None, top: int, min_uses: int = 1
) -> list[tuple[str, WordSupport | None, WordSupport | None]]:
    """The first words of both, the greatest change of strength first. A label may be missing in one summary."""
    words = [w.word for label in (first, second) if label is not None for w in supporting(label, top, min_uses)]
    supports = [(w, first.find(w) if first else None, second.find(w) if second else None) for w in dict.fromkeys(words)]
    return sorted(supports, key=lambda pair: -abs(strength_of(pair[2]) - strength_of(pair[1])))


def supporting(label: LabelWords, top: int, min_uses: int = 1) -> list[WordSupport]:
    """The first words that support a label, of those with at least `min_uses`."""
    used = [word for word in label.words if word.uses >= min_uses]
    return [word for word in used[:top] if word.strength > 0 and word.distinctness > 0]


def strength_of(word: WordSupport | None) -> float:
    return 0.0 if word is None else word.strength


def cells(word: WordSupport | None) -> tuple[str, str]:
    return ("0", "") if word is None else (f"{word.uses:,}", f"{word.strength:+.2f}")


def title(summary: CorpusSummary) -> str:
    return f"{summary.model}, {summary.method}"


def summary_csv(summaries: Sequence[CorpusSummary], min_uses: int = 1) -> str:
    """All words with at least `min_uses`, of all labels, methods and checkpoints, one row for each."""
    rows: list[tuple[object, ...]] = [CSV_HEADER]
    for summary in summaries:
        for label in summary.labels:
            for word in (word for word in label.words if word.uses >= min_uses):
                numbers = (word.uses, word.strongest, f"{word.strength:.6g}", f"{word.distinctness:.6g}")
                rows.append((summary.model, summary.method, label.label, label.texts, word.word, *numbers))
    return csv_text(rows)


def summary_figure(summaries: Sequence[CorpusSummary], top: int, min_uses: int = 1) -> "Figure":
    """A panel for each label with bars for its words, one for each checkpoint or method."""
    labels = [label.label for label in summaries[0].labels[:LABELS]]
    figure = new_figure(3.4 * len(labels), 1.2 + 0.24 * top * len(summaries) ** 0.5)
    panels = numpy.atleast_1d(figure.subplots(1, len(labels)))
    for axes, label in zip(panels, labels, strict=True):
        draw_label(axes, [summary.find(label) for summary in summaries], top, min_uses)
        axes.set_title(label, fontsize=9, loc="left")
    if len(summaries) > 1:
        from matplotlib.patches import Patch

        patches = [Patch(color=color(i), label=title(summary)) for i, summary in enumerate(summaries)]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(summaries), fontsize=7, frameon=False)
    return figure


def draw_label(axes: Any, labels: Sequence[LabelWords | None], top: int, min_uses: int = 1) -> None:
    """Draw the distinctness of words, by which they are ordered, as bars."""
    first = next(support for support in labels if support is not None)
    words = [word.word for word in supporting(first, top, min_uses)]
    width = 0.8 / len(labels)
    for i, label in enumerate(labels):
        pairs = [label.find(word) if label else None for word in words]
        heights = [0.0 if support is None else support.distinctness for support in pairs]
        axes.barh([index + i * width for index in range(len(words))], heights, width, color=color(i))
    axes.set_yticks([index + width * (len(labels) - 1) / 2 for index in range(len(words))], words, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("standard errors above the mean word", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def color(index: int) -> str:
    return css((SUPPORT, AGAINST)[index % 2])
