"""Where data is read from and which columns it has: a file, a folder, the Hub or memory."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import hash_file, refuse_lone_returns
from tokenlight.data.examples import Example
from tokenlight.data.readers import (
    KINDS,
    READERS,
    Rows,
    count_hub_rows,
    files_in,
    guess_kind,
    has_lines,
    hub_rows,
    memory_rows,
    quick_count,
    refuse_utf16,
)
from tokenlight.data.sampling import draw_numbers, pick
from tokenlight.text.tokenized_text import Text

Item = TypeVar("Item")
Data = str | Path | Sequence[Text | Mapping[str, object] | Example]
Column = Literal["text", "pair", "label", "id", "target", "foil", "answer", "documents"]
ALWAYS_READ: tuple[Column, ...] = ("text", "pair")
OTHERS: tuple[Column, ...] = ("label", "id", "target", "foil", "answer", "documents")


@dataclass(frozen=True)
class DataSource:
    """What is read: a file, a folder of files of one kind, "hf:NAME", or texts, pairs, rows or examples in memory.

    Columns have to be named only if their names are not common ones. `kind` is for a file whose name does not say what
    it holds, `split` for datasets of the Hub. `limit` reads the first rows only; `sample` reads so many random ones of
    all rows, drawn by `seed` and without replacement, in the order of the data. A source can be read again from the
    start.
    """

    data: Data
    _: KW_ONLY
    text: str | None = None
    pair: tuple[str, str] | None = None
    label: str | None = None  # the gold class
    id: str | None = None  # the data's own name for a row
    target: str | None = None  # what is explained
    foil: str | None = None
    answer: str | None = None  # what a language model answered to the text
    documents: str | None = None  # passages that the prompt is made of
    kind: str | None = None
    split: str | None = None
    limit: int | None = None
    sample: int | None = None
    seed: int = 0  # of the sample

    def __post_init__(self) -> None:
        for name in ("limit", "sample"):
            rows = getattr(self, name)
            if rows is not None and (not is_whole(rows) or rows < 1):
                raise RefusedValue(f"{name} is a positive number of rows, found {rows!r}")
        if not is_whole(self.seed):  # without one, every reading would draw other rows
            raise RefusedValue(f"seed is a whole number, found {self.seed!r}")
        if self.limit is not None and self.sample is not None:
            raise RefusedValue(
                f"expected limit (the first rows) or sample (random ones of all rows), found limit={self.limit} and "
                f"sample={self.sample}: leave one of them out"
            )
        if self.pair is not None and len(self.pair) != 2:
            raise RefusedValue(f"a pair has two columns, found {self.pair!r}")
        if self.split is not None and not self.on_hub:
            raise RefusedValue(
                f"{self.name} is not a Hugging Face dataset and has no split {self.split!r}: leave it out"
            )
        for path in self.files:
            refuse_utf16(path)
            if has_lines(path, self.kind_of(path)):
                refuse_lone_returns(path)

    @property
    def on_hub(self) -> bool:
        return isinstance(self.data, str) and self.data.startswith("hf:")

    @property
    def in_memory(self) -> bool:
        return not isinstance(self.data, str | Path)

    @property
    def name(self) -> str:
        return str(self.data) if isinstance(self.data, str | Path) else f"{len(self.data)} texts in memory"

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, or those of the folder by name."""
        if not isinstance(self.data, str | Path) or self.on_hub:
            return ()
        path = Path(self.data).resolve()  # bad rows name it in the same way wherever they are read
        if path.is_dir():
            return files_in(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {self.data}; a Hugging Face dataset is written hf:NAME")
        return (path,)

    def kind_of(self, path: Path) -> str:
        kind = KINDS.get(f".{self.kind}", self.kind) if self.kind else guess_kind(path)  # also as names end: txt
        if kind not in READERS:
            raise RefusedValue(f"{path}: there is no kind of data {kind!r}; kinds: {', '.join(READERS)}")
        return kind

    def tables(self, errors: str = "strict") -> Iterator[Rows]:
        """The rows of each file, which has columns of its own; `errors` is for bytes that are not UTF-8."""
        if not isinstance(self.data, str | Path):
            yield memory_rows(self.data)
        elif self.on_hub:
            yield hub_rows(str(self.data), self.split)
        for path in self.files:
            yield READERS[self.kind_of(path)](path, errors)

    def count(self) -> int | None:
        """How many rows are read, to estimate the time that is left; None if not known."""
        if self.sample is not None:
            return len(self.sampled_rows)
        if self.on_hub:
            return self.limit
        total = self._rows_in_all()
        return total if self.limit is None else min(total, self.limit)

    def select(self, rows: Iterator[Item]) -> Iterator[Item]:
        """Of all rows of the data, those that are read: the first ones up to the limit, or the sample."""
        return islice(rows, self.limit) if self.sample is None else pick(rows, self.sampled_rows, self.name)

    def row_numbers(self) -> Iterable[int]:
        """The numbers in the data, from 0, of the rows that are read."""
        return count_up() if self.sample is None else self.sampled_rows

    @cached_property
    def sampled_rows(self) -> tuple[int, ...]:
        """The numbers of the rows in the sample, ascending. Data that do not say how long they are are read once."""
        if self.sample is None:
            raise RefusedValue("this source has no sample")
        total = self._rows_in_all()
        if total < 1:
            raise RefusedValue(f"{self.name}: expected rows of data, found none")
        return draw_numbers(total, self.sample, self.seed)

    def _rows_in_all(self) -> int:
        if not isinstance(self.data, str | Path):
            return len(self.data)
        return count_hub_rows(str(self.data), self.split) if self.on_hub else sum(map(self._rows_in, self.files))

    def _rows_in(self, path: Path) -> int:
        kind = self.kind_of(path)
        quick = quick_count(path, kind)
        return sum(1 for _ in READERS[kind](path, "surrogateescape")) if quick is None else quick

    def refuse_columns(self, read: Sequence[Column], who: str) -> None:
        """Columns that were named and would not be read."""
        for role in OTHERS:
            if role not in read and getattr(self, role) is not None:
                raise RefusedValue(f"{who} reads no column {role}={getattr(self, role)!r}: leave it out")

    def describe(self, read: Sequence[Column]) -> dict[str, Any]:
        """Everything that says which rows these are, and which columns of them are read; the files by their bytes."""
        kinds = [self.kind_of(path) for path in self.files]  # the same bytes under another name may be other rows
        kind = kinds[0] if len(set(kinds)) == 1 else kinds or self.kind
        places = {"source": self.name, "kind": kind, "split": self.split, "limit": self.limit}
        if self.sample is not None:
            places |= {"sample": self.sample, "seed": self.seed}
        columns = {role: getattr(self, role) for role in (*ALWAYS_READ, *read)}
        return {**places, **columns, "hub": self.name if self.on_hub else None, "sha256": self.hash()}

    def hash(self) -> str | None:
        """Of the files, or of what is in memory; a dataset on the Hub has a name alone."""
        if self.on_hub:
            return None
        if not isinstance(self.data, str | Path):
            digest = hashlib.sha256()
            for one in self.data:
                digest.update(repr(one).encode())
            return digest.hexdigest()
        hashes = [hash_file(path) for path in self.files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def as_source(given: Data | DataSource) -> DataSource:
    return given if isinstance(given, DataSource) else DataSource(given)
