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

LABELS = 8  # that are shown; a language model has as many as tokens
CSV_HEADER = ("model", "method", "label", "texts", "word", "uses", "strongest", "strength", "distinctness")


LEGEND = (
    "strength: share of the largest |score| of a text, mean over uses; distinct: standard errors above the mean word"
)


def summary_table(summary: CorpusSummary, top: int) -> Table:
    """For each label its words: how often, how often the strongest, how strongly on average, how distinctive."""
    table = Table(title=title(summary), title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.caption, table.caption_justify = LEGEND, "left"
    table.add_column("label", style="cyan", no_wrap=True)
    table.add_column("word", no_wrap=True)
    for name in ("uses", "strongest", "strength", "distinct"):
        table.add_column(name, justify="right")
    for label in summary.labels[:LABELS]:
        for i, one in enumerate(supporting(label, top)):
            name = f"{printable(label.label)} ({describe_count(label.texts, 'text')})" if i == 0 else ""
            counts = (f"{one.uses:,}", f"{one.strongest:,}", f"{one.strength:+.2f}", f"{one.distinctness:.1f}")
            table.add_row(name, printable(one.word), *counts)
    return table


def comparison_table(one: CorpusSummary, other: CorpusSummary, top: int, min_uses: int = 1) -> Table:
    """The words that support a label most in either checkpoint, with both strengths; the greatest change first.

    A word is listed if one of them has `min_uses` of it; both summaries should hold words with fewer, to look it up.
    """
    table = Table(title=f"{title(one)}   ⇄   {title(other)}", title_justify="left", box=None, header_style="bold")
    table.add_column("label", style="cyan", no_wrap=True)
    table.add_column("word", no_wrap=True)
    for name in ("uses", "strength", "uses there", "strength there", "change"):
        table.add_column(name, justify="right")
    labels = dict.fromkeys(label.label for summary in (one, other) for label in summary.labels[:LABELS])
    for label in labels:
        rows = side_by_side(one.find(label), other.find(label), top, min_uses)
        for i, (word, mine, theirs) in enumerate(rows):
            name = printable(label) if i == 0 else ""
            change = strength_of(theirs) - strength_of(mine)
            table.add_row(name, printable(word), *cells(mine), *cells(theirs), f"{change:+.2f}")
    return table


def side_by_side(
    here: LabelWords | None, there: LabelWords | None, top: int, min_uses: int = 1
) -> list[tuple[str, WordSupport | None, WordSupport | None]]:
    """The first words of both, the greatest change of strength first; a label may be missing from one of them."""
    words = [w.word for one in (here, there) if one is not None for w in supporting(one, top, min_uses)]
    found = [(w, here.find(w) if here else None, there.find(w) if there else None) for w in dict.fromkeys(words)]
    return sorted(found, key=lambda pair: -abs(strength_of(pair[2]) - strength_of(pair[1])))


def supporting(label: LabelWords, top: int, min_uses: int = 1) -> list[WordSupport]:
    """The first words that support a label, of those that are used so often."""
    used = [one for one in label.words if one.uses >= min_uses]
    return [one for one in used[:top] if one.strength > 0 and one.distinctness > 0]


def strength_of(word: WordSupport | None) -> float:
    return 0.0 if word is None else word.strength


def cells(word: WordSupport | None) -> tuple[str, str]:
    return ("0", "") if word is None else (f"{word.uses:,}", f"{word.strength:+.2f}")


def title(summary: CorpusSummary) -> str:
    return f"{summary.model}, {summary.method}"


def summary_csv(summaries: Sequence[CorpusSummary], min_uses: int = 1) -> str:
    """All words, used so often, of all labels, methods and checkpoints, a row each."""
    rows: list[tuple[object, ...]] = [CSV_HEADER]
    for summary in summaries:
        for label in summary.labels:
            for one in (one for one in label.words if one.uses >= min_uses):
                numbers = (one.uses, one.strongest, f"{one.strength:.6g}", f"{one.distinctness:.6g}")
                rows.append((summary.model, summary.method, label.label, label.texts, one.word, *numbers))
    return csv_text(rows)


def summary_figure(summaries: Sequence[CorpusSummary], top: int, min_uses: int = 1) -> "Figure":
    """A panel for each label with bars for its words; one bar a checkpoint or method."""
    labels = [label.label for label in summaries[0].labels[:LABELS]]
    figure = new_figure(3.4 * len(labels), 1.2 + 0.24 * top * len(summaries) ** 0.5)
    panels = numpy.atleast_1d(figure.subplots(1, len(labels)))
    for axes, label in zip(panels, labels, strict=True):
        draw_label(axes, [summary.find(label) for summary in summaries], top, min_uses)
        axes.set_title(label, fontsize=9, loc="left")
    if len(summaries) > 1:
        from matplotlib.patches import Patch

        patches = [Patch(color=color(i), label=title(one)) for i, one in enumerate(summaries)]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(summaries), fontsize=7, frameon=False)
    return figure


def draw_label(axes: Any, found: Sequence[LabelWords | None], top: int, min_uses: int = 1) -> None:
    """Bars say how distinctive words are, by which they are ordered."""
    first = next(one for one in found if one is not None)
    words = [word.word for word in supporting(first, top, min_uses)]
    width = 0.8 / len(found)
    for i, label in enumerate(found):
        pairs = [label.find(word) if label else None for word in words]
        heights = [0.0 if one is None else one.distinctness for one in pairs]
        axes.barh([place + i * width for place in range(len(words))], heights, width, color=color(i))
    axes.set_yticks([place + width * (len(found) - 1) / 2 for place in range(len(words))], words, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("standard errors above the mean word", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def color(place: int) -> str:
    return css((SUPPORT, AGAINST)[place % 2])
