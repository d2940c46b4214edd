"""Tables as results: the benchmark, words of a corpus, similarity under shuffled layers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

FEWEST = 10  # texts; with fewer, methods are not compared


@dataclass(frozen=True)
class Column:
    """A metric, as a column of the table."""

    label: str
    title: str
    direction: Literal["higher", "lower"]


@dataclass(frozen=True)
class Cell:
    """A mean with its 95 % interval; a limit is NaN if it is not known, and infinite if the interval has none."""

    mean: float
    low: float
    high: float
    best: bool = False  # the best of the methods; never for a control
    level: bool = False  # not significantly different from the best


@dataclass(frozen=True)
class Line:
    """A method or a control, as a row of the table."""

    label: str
    title: str
    control: str | None  # the description of a control; None for a method
    cells: tuple[Cell, ...]
    spreads: tuple[float, ...] = ()  # standard deviations of the means of several runs; empty for one run


@dataclass(frozen=True)
class Panel:
    """The curves of all methods for one metric that reads curves."""

    column: Column
    axis: str
    quantity: str
    places: tuple[float, ...]  # x coordinates of the points
    curves: Mapping[str, tuple[Cell, ...]]  # label -> points


@dataclass(frozen=True)
class RunFacts:
    """Settings and counts of a run."""

    settings: Mapping[str, Any]  # as in run.json
    examples: int  # measured examples
    right: int  # examples with a right prediction
    judged: int  # examples with a known label or answer
    set_aside: Counter[str]  # reason -> number of skipped rows
    bad: tuple[Mapping[str, Any], ...]  # records of bad rows
    cut: int  # texts that were truncated
    ended: bool  # whether the run is complete, the last control included
    lost: int = 0  # examples that the last control could not be measured on
    copies: int = 0  # measured examples that are the same to the model as an earlier one


@dataclass(frozen=True, eq=False)
class Table:
    """The table of a benchmark: means and intervals, curves, and the values of single examples."""

    columns: tuple[Column, ...]  # one for each metric
    lines: tuple[Line, ...]  # one for each method, then the controls
    panels: tuple[Panel, ...]  # curves, for metrics that have them
    values: np.ndarray  # [example, line, column]; NaN for missing values
    weights: np.ndarray  # [example, column] weights of examples in means
    run: RunFacts  # settings and counts

    @property
    def methods(self) -> list[Line]:
        """The lines that are not controls."""
        return [line for line in self.lines if not line.control]

    @property
    def controls(self) -> list[Line]:
        """Random scores, erasure, and the best method with its order reversed."""
        return [line for line in self.lines if line.control]

    def cell(self, method: str, metric: str) -> Cell:
        """The mean and interval of a method by a metric, both given by their labels in the table."""
        line = next(line for line in self.lines if line.label == method)
        return line.cells[[column.label for column in self.columns].index(metric)]

    def show(self) -> None:
        """Print it; in a notebook, show it as HTML."""
        from tokenlight.common.progress import in_notebook, show_html
        from tokenlight.views.benchmark_table import show_table

        if in_notebook():
            show_html(self._repr_html_())
        else:
            show_table(self)

    def _repr_html_(self) -> str:
        from tokenlight.views.benchmark_table import table_html

        return table_html(self)

    def __repr__(self) -> str:
        return f"<Table: {len(self.methods)} methods and {len(self.controls)} controls × {len(self.columns)} metrics>"

    def to_markdown(self) -> str:
        """As a table in Markdown."""
        from tokenlight.views.benchmark_table import markdown

        return markdown(self)

    def to_latex(self) -> str:
        """As a table for a paper."""
        from tokenlight.views.benchmark_table import latex

        return latex(self)

    def to_csv(self) -> str:
        """A row for each method and metric, with mean and interval."""
        from tokenlight.views.benchmark_table import comma_separated

        return comma_separated(self)


@dataclass(frozen=True)
class WordSupport:
    """A word in the texts that were explained for one label, in lower case."""

    word: str
    uses: int
    strongest: int  # uses in which no other word of the text has a higher score
    strength: float  # mean over uses of score / largest |score| of a word in the text
    distinctness: float  # strength minus the mean of all words, in standard errors for this number of uses


@dataclass(frozen=True)
class LabelWords:
    """The words of one label, the most distinctive first."""

    label: str
    texts: int
    words: tuple[WordSupport, ...]

    def find(self, word: str) -> WordSupport | None:
        """The word with this spelling, or None."""
        return next((support for support in self.words if support.word == word), None)


@dataclass(frozen=True)
class CorpusSummary:
    """The words that support each label, by one method and model on a corpus; the most frequent label first."""

    model: str
    method: str
    labels: tuple[LabelWords, ...]

    def find(self, label: str) -> LabelWords | None:
        """The words of a label, or None."""
        return next((label_words for label_words in self.labels if label_words.label == label), None)


Similarities = Mapping[str, list[tuple[str, float]]]  # method -> (layer, similarity), from the top layer down
