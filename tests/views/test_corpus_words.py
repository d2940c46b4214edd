"""The words of a corpus as table, CSV and figure; two checkpoints side by side."""

import csv
import io
from typing import Any

from rich.console import Console
from rich.table import Table

from tokenlight.results.tables import CorpusSummary, LabelWords, WordSupport
from tokenlight.views.corpus_words import comparison_table, summary_csv, summary_figure, summary_table
from tokenlight.views.drawing import save

NEGATIVE = (
    WordSupport("not", 1, 1, 1.0, 2.0),
    WordSupport("dull", 1, 1, 1.0, 2.0),
    WordSupport("film", 1, 0, -1.0, -3.0),
)
POSITIVE = (
    WordSupport("good", 3, 2, 0.75, 2.25),
    WordSupport("key", 1, 0, 0.5, 1.5),
    WordSupport("a", 1, 0, 0.25, -0.25),
    WordSupport("movie", 1, 0, -0.5, -0.5),
)
CHANGED = (
    WordSupport("key", 1, 0, 0.5, 1.0),
    WordSupport("movie", 1, 1, 0.5, 1.0),
    WordSupport("good", 3, 1, 0.25 / 3, 0.5),
)
ONE = CorpusSummary("model", "lrp", (LabelWords("negative", 3, NEGATIVE), LabelWords("positive", 2, POSITIVE)))
TWO = CorpusSummary("other", "lrp", (LabelWords("negative", 3, NEGATIVE[:1]), LabelWords("positive", 2, CHANGED)))


def printed(table: Table) -> list[list[str]]:
    file = io.StringIO()
    Console(file=file, width=200).print(table)
    return [line.split() for line in file.getvalue().splitlines()]


def test_the_table_has_the_words_that_support_a_label():
    lines = printed(summary_table(ONE, 2))
    assert ["positive", "(2", "texts)", "good", "3", "2", "+0.75", "2.2"] in lines
    assert ["key", "1", "0", "+0.50", "1.5"] in lines
    assert ["negative", "(3", "texts)", "not", "1", "1", "+1.00", "2.0"] in lines
    everything = printed(summary_table(ONE, 9))
    assert not any("movie" in line or "film" in line for line in everything)  # they speak against
    assert not any(line[:1] == ["a"] for line in everything)  # less than words do as a rule


def test_the_file_has_all_words():
    rows = list(csv.DictReader(io.StringIO(summary_csv([ONE]))))
    assert len(rows) == len(NEGATIVE) + len(POSITIVE)
    assert rows[-1] == {
        "model": "model",
        "method": "lrp",
        "label": "positive",
        "texts": "2",
        "word": "movie",
        "uses": "1",
        "strongest": "0",
        "strength": "-0.5",
        "distinctness": "-0.5",
    }


def test_the_figure_has_a_panel_for_each_label():
    figure = summary_figure([ONE], 2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["negative", "positive"]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["good", "key"]
    assert figure.axes[1].dataLim.x1 == 2.25


def test_two_checkpoints_side_by_side():
    lines = printed(comparison_table(ONE, TWO, 3))
    first = next(line for line in lines if line[:1] == ["positive"])
    assert first == ["positive", "movie", "1", "-0.50", "1", "+0.50", "+1.00"]  # the greatest change
    assert ["good", "3", "+0.75", "3", "+0.08", "-0.67"] in lines
    assert ["negative", "dull", "1", "+1.00", "0", "-1.00"] in lines
    figure = summary_figure([ONE, TWO], 3)
    assert len(figure.axes[1].patches) == 4  # two words, a bar for each checkpoint
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["model, lrp", "other, lrp"]


def test_words_that_are_rare_in_one_checkpoint_are_not_called_unused_there():
    rare = (WordSupport("good", 1, 1, 0.5, 2.0), WordSupport("key", 1, 0, 0.25, 1.0))
    other = CorpusSummary("other", "lrp", (LabelWords("positive", 1, rare),))
    lines = printed(comparison_table(ONE, other, 3, min_uses=2))
    assert ["positive", "good", "3", "+0.75", "1", "+0.50", "-0.25"] in lines
    assert not any("key" in line for line in lines)  # neither checkpoint has it twice
    figure = summary_figure([ONE, other], 3, min_uses=2)
    bars: list[Any] = list(figure.axes[1].patches)
    assert [bar.get_width() for bar in bars] == [2.25, 2.0]
    words = [row["word"] for row in csv.DictReader(io.StringIO(summary_csv([ONE, other], min_uses=2)))]
    assert words == ["good"]


def test_a_label_that_only_the_other_checkpoint_has_is_shown():
    neutral = CorpusSummary("other", "lrp", (LabelWords("neutral", 1, POSITIVE),))
    assert ["neutral", "good", "0", "3", "+0.75", "+0.75"] in printed(comparison_table(ONE, neutral, 1))


def test_dollar_signs_are_not_formulas(tmp_path):
    words = (WordSupport("$", 2, 1, 1.0, 2.0), WordSupport("a", 1, 0, 0.5, 1.0))
    for label in (r"$\frac$", "$5 to $10"):  # wrong as a formula, and one that would be drawn as such
        one, other = (CorpusSummary(f"m{label}", "lrp", (LabelWords(label, 1, words),)) for _ in range(2))
        figure = summary_figure([one, other], 5)
        save(figure, tmp_path / "money.svg")
        drawn = (tmp_path / "money.svg").read_text()  # with the letters of each text in a comment
        assert all(f"<!-- {text} -->" in drawn for text in ("$", label, f"m{label}, lrp"))


def test_a_carriage_return_in_a_label_does_not_end_a_row_of_the_file():
    summary = CorpusSummary("model\r", "lrp", (LabelWords("positive\r", 1, POSITIVE),))
    written = summary_csv([summary])
    rows = list(csv.DictReader(io.StringIO(written, newline="")))
    assert [(row["model"], row["label"]) for row in rows] == [("model\r", "positive\r")] * len(POSITIVE)
    assert "\r\n" not in written
