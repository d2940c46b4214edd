"""Where examples come from: a file, a dataset on the Hub, or examples in memory; always in the same order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenlight.data.examples import BadRow, Example
from tokenlight.data.reading import read_examples
from tokenlight.data.row_readers import guess_kind
from tokenlight.runs.hashing import hash_source
from tokenlight.tasks.task import Gap

PREVIEW = 100  # rows among which the first good one is looked for


@dataclass(frozen=True)
class Source:
    """What is read, and how; it can be read again from the start."""

    data: str | Path | Sequence[Example]
    text: str | None = None
    pair: tuple[str, str] | None = None
    label: str | None = None
    kind: str | None = None
    split: str | None = None
    limit: int | None = None

    def read(self, gap: Gap | None) -> Iterator[Example | BadRow]:
        if not isinstance(self.data, str | Path):
            return iter(self.data[: self.limit])
        columns = {"text": self.text, "pair": self.pair, "label": self.label}
        return read_examples(self.data, **columns, kind=self.kind, split=self.split, gap=gap, limit=self.limit)

    def first(self, gap: Gap | None) -> Example | None:
        """An example of the data, to see what it holds; an empty source is an error here already."""
        row = None
        for number, row in enumerate(self.read(gap)):
            if isinstance(row, Example) or number == PREVIEW:
                break
        if row is None:
            raise ValueError(f"{self.name}: expected rows of data, found none")
        return row if isinstance(row, Example) else None

    def count(self, gap: Gap | None) -> int | None:
        """How many rows there are, for the time that is left; None where it would take long to find out."""
        if isinstance(self.data, str | Path):
            on_hub = str(self.data).startswith("hf:")
            if on_hub or (self.kind or guess_kind(Path(self.data))) == "lgd":  # those are parsed while they are read
                return None
        return sum(1 for _ in self.read(gap))

    @property
    def name(self) -> str:
        return str(self.data) if isinstance(self.data, str | Path) else f"{len(self.data)} examples in memory"

    def describe(self) -> dict[str, Any]:
        columns = {"text": self.text, "pair": self.pair and list(self.pair), "label": self.label}
        places = {"source": self.name, "kind": self.kind, "split": self.split, "limit": self.limit}
        hub = self.name if self.name.startswith("hf:") else None
        return {**places, **columns, "hub": hub, "sha256": hash_source(self.data)}
