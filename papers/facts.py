"""What a paper contains, as data: the scripts, the tests and the paper's page in the docs all read it from here.

Each paper has a module `papers/PAPER/facts.py` with one `Paper`. Published numbers are stored under the paper's own
names of methods and data sets, in the paper's own order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["table", "figure", "equation", "algorithm", "protocol", "appendix"]


Published = float | str | None  # a number, a number as the paper prints it, or none


def as_printed(numbers: str) -> tuple[str, ...]:
    """Numbers of a paper that prints some with fewer digits than others: "0.30 0.3"."""
    return tuple(numbers.split())


@dataclass(frozen=True)
class PublishedTable:
    """The numbers of a table, a row per method; None where the paper has no number.

    A float is shown with three digits behind the point, a string as it is.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Published, ...]]

    def __post_init__(self) -> None:
        for name, numbers in self.rows.items():
            if len(numbers) != len(self.columns):
                raise ValueError(f"row {name!r} has {len(numbers)} numbers for {len(self.columns)} columns")

    def column(self, name: str) -> dict[str, Published]:
        """The numbers of one column by row."""
        index = self.columns.index(name)
        return {row: numbers[index] for row, numbers in self.rows.items()}


@dataclass(frozen=True)
class Item:
    """A table, figure, equation, algorithm, protocol or appendix of a paper, and what it is in tokenlight."""

    kind: Kind
    number: str  # as the paper writes it: "1", "13–14", "D"
    content: str  # what it shows or defines, in our own words
    here: str  # what in tokenlight it is, as Markdown; for equations the method and its options
    script: str | None = None  # module of the paper's folder that makes it
    differs: str = ""  # what is different here, and why; "" if nothing is
    published: PublishedTable | None = None

    @property
    def title(self) -> str:
        plural = "s" if any(mark in self.number for mark in "–,") else ""
        return f"{self.kind.capitalize()}{plural} {self.number}"


@dataclass(frozen=True)
class Checkpoint:
    """A model that the paper used, with its data."""

    model: str  # name on the Hub
    data: str  # hf:NAME or hf:NAME:CONFIG, or the name of a file that has to be fetched by hand
    split: str | None = None
    train_split: str | None = None  # the part that head masks are counted on
    note: str = ""
    sample: int | None = None  # examples that the paper drew at random; None: all of the split
    fetch: str = ""  # where data that are not on the Hub can be fetched by hand


@dataclass(frozen=True)
class Paper:
    """A paper: where it is published, what is in it, and which checkpoints and data it used."""

    folder: str  # of `papers/`
    short: str  # as people call it: "Mask-LRP"
    citation: str
    link: str
    release: str | None  # address of the authors' code
    items: tuple[Item, ...]
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)

    def item(self, kind: Kind, number: str) -> Item:
        for item in self.items:
            if (item.kind, item.number) == (kind, number):
                return item
        raise KeyError(f"{self.short} has no {kind} {number} in papers/{self.folder}/facts.py")

    def numbers(self, kind: Kind, number: str) -> PublishedTable:
        published = self.item(kind, number).published
        if published is None:
            raise KeyError(f"papers/{self.folder}/facts.py holds no numbers of {kind} {number}")
        return published
