"""Tables as results: the benchmark, words of a corpus, similarity under shuffled layers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

FEWEST = 10  # texts: with fewer, no method is told from another


@dataclass(frozen=True)
class Column:
    """A metric."""

    label: str
    title: str
    direction: Literal["higher", "lower"]


@dataclass(frozen=True)
class Cell:
    """A mean with its 95 % interval; a limit is NaN where it is not known, and infinite where there is none."""

    mean: float
    low: float
    high: float
    best: bool = False  # of the methods; a control is never called the best
    level: bool = False  # cannot be told from the best: the paired difference may be 0


@dataclass(frozen=True)
class Line:
    """A method."""

    label: str
    title: str
    control: str | None  # what a control is; None for a method
    cells: tuple[Cell, ...]
    spreads: tuple[float, ...] = ()  # of several runs, the standard deviation of their means; empty for one run


@dataclass(frozen=True)
class Panel:
    """The curves of all methods for one metric, whose value is about the mean of the points."""

    column: Column
    axis: str
    quantity: str
    places: tuple[float, ...]
    curves: Mapping[str, tuple[Cell, ...]]  # label -> points


@dataclass(frozen=True)
class RunFacts:
    """What was run, and what became of its rows."""

    settings: Mapping[str, Any]  # as run.json has them
    examples: int  # that were measured
    right: int  # examples that the model gets right
    judged: int  # examples whose right answer is known
    set_aside: Counter[str]  # reason -> rows
    bad: tuple[Mapping[str, Any], ...]  # records of rows that could not be used
    cut: int  # texts that were too long
    ended: bool  # whether the last control was measured as well
    lost: int = 0  # examples that the last control could not be measured on
    copies: int = 0  # measured examples that are the same to the model as an earlier one


@dataclass(frozen=True, eq=False)
class Table:
    """Everything that the views show, and the numbers behind it."""

    columns: tuple[Column, ...]  # one for each metric
    lines: tuple[Line, ...]  # one for each method, then the controls
    panels: tuple[Panel, ...]  # curves, for metrics that have them
    values: np.ndarray  # [example, line, column]; NaN where there is none
    weights: np.ndarray  # [example, column]: how much an example counts in a mean
    run: RunFacts  # what was run, and what became of its rows

    @property
    def methods(self) -> list[Line]:
        """The lines that are not controls."""
        return [line for line in self.lines if not line.control]

    @property
    def controls(self) -> list[Line]:
        """Random scores, erasure, and the best method with its order reversed."""
        return [line for line in self.lines if line.control]

    def cell(self, method: str, metric: str) -> Cell:
        """The mean and interval of a method by a metric, both named as in the table."""
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
    """A word in texts that were explained for one label; upper and lower case are the same."""

    word: str
    uses: int
    strongest: int  # how often no other word of the text supported the label more
    strength: float  # mean over uses of score / largest |score| of a word in that text: 1 is the strongest support
    distinctness: float  # standard errors by which that is above the mean of all words, for a word used as often


@dataclass(frozen=True)
class LabelWords:
    """The words of one label, the most distinctive first."""

    label: str
    texts: int
    words: tuple[WordSupport, ...]

    def find(self, word: str) -> WordSupport | None:
        return next((one for one in self.words if one.word == word), None)


@dataclass(frozen=True)
class CorpusSummary:
    """What one method says about one model on a corpus; the most frequent label first."""

    model: str
    method: str
    labels: tuple[LabelWords, ...]

    def find(self, label: str) -> LabelWords | None:
        return next((one for one in self.labels if one.label == label), None)


Similarities = Mapping[str, list[tuple[str, float]]]  # method -> (layer, similarity), from the head down
