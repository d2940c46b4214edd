"""Where data is read from and which columns it has: a file, a folder, the Hub or memory."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.files import hash_file, refuse_lone_returns
from tokenlight.data.examples import Example
from tokenlight.data.readers import (
    KINDS,
    READERS,
    Rows,
    count_hub_rows,
    count_without_parsing,
    files_in,
    guess_kind,
    hub_rows,
    is_line_based,
    memory_rows,
    refuse_utf16,
)
from tokenlight.data.sampling import draw_numbers, select_items
from tokenlight.text.tokenize import refuse_table
from tokenlight.text.tokenized_text import Text

Item = TypeVar("Item")
Data = str | Path | Sequence[Text | Mapping[str, object] | Example]
Column = Literal["text", "pair", "label", "id", "target", "foil", "answer", "documents"]
ALWAYS_READ: tuple[Column, ...] = ("text", "pair")
OTHERS: tuple[Column, ...] = ("label", "id", "target", "foil", "answer", "documents")


@dataclass(frozen=True)
class DataSource:
    """Where examples are read from: a file, a folder of files of one kind, "hf:NAME", or objects in memory.

    Objects in memory are texts, pairs, rows or examples. Columns have to be named only if their names are not common
    ones. `kind` is the format of a file whose name does not show it, `split` is for data sets of the Hub. `limit` reads
    the first rows only; `sample` reads that many random rows, drawn without replacement by `seed`, in the order of the
    data. A source can be read any number of times.
    """

    data: Data
    _: KW_ONLY
    text: str | None = None
    pair: tuple[str, str] | None = None
    label: str | None = None  # the gold class
    id: str | None = None  # the identifier of a row
    target: str | None = None
    foil: str | None = None
    answer: str | None = None  # the answer of a language model to the text
    documents: str | None = None  # the documents in the prompt
    kind: str | None = None
    split: str | None = None
    limit: int | None = None
    sample: int | None = None
    seed: int = 0  # of the sample

    def __post_init__(self) -> None:
        check_data(self.data)
        for name in ("limit", "sample"):
            count = getattr(self, name)
            if count is not None and (not is_whole(count) or count < 1):
                raise RefusedValue(f"{name} is a positive number of rows, found {count!r}")
        if not is_whole(self.seed):  # without a fixed seed, every pass over the data would draw other rows
            raise RefusedValue(f"seed must be a whole number, found {self.seed!r}")
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
            if is_line_based(path, self.kind_of(path)):
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
        """The file, or the files of the folder, sorted by name; empty for data of the Hub or in memory."""
        if not isinstance(self.data, str | Path) or self.on_hub:
            return ()
        path = Path(
            self.data
        ).resolve()  # absolute, so that the locations of bad rows do not depend on the working directory
        if path.is_dir():
            return files_in(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {self.data}; a Hugging Face dataset is written hf:NAME")
        return (path,)

    def kind_of(self, path: Path) -> str:
        kind = (
            KINDS.get(f".{self.kind}", self.kind) if self.kind else guess_kind(path)
        )  # file name endings are accepted too: txt
        if kind not in READERS:
            raise RefusedValue(f"{path}: there is no kind of data {kind!r}; kinds: {', '.join(READERS)}")
        return kind

    def tables(self, errors: str = "strict") -> Iterator[Rows]:
        """The rows of each file, whose columns may differ; `errors` is for bytes that are not UTF-8, as for `open`."""
        if not isinstance(self.data, str | Path):
            yield memory_rows(self.data)
        elif self.on_hub:
            yield hub_rows(str(self.data), self.split)
        for path in self.files:
            yield READERS[self.kind_of(path)](path, errors)

    def count(self) -> int | None:
        """The number of rows that are read, to estimate the remaining time; None if it is not known."""
        if self.sample is not None:
            return len(self.sampled_rows)
        if self.on_hub:
            return self.limit
        total = self._count_all_rows()
        return total if self.limit is None else min(total, self.limit)

    def select(self, rows: Iterator[Item]) -> Iterator[Item]:
        """From all rows of the data, select those that are read: the first ones up to the limit, or the sample."""
        return islice(rows, self.limit) if self.sample is None else select_items(rows, self.sampled_rows, self.name)

    def row_numbers(self) -> Iterable[int]:
        """The numbers, from 0, of the rows that are read."""
        return count_up() if self.sample is None else self.sampled_rows

    @cached_property
    def sampled_rows(self) -> tuple[int, ...]:
        """The numbers of the rows in the sample, ascending. Data of unknown length are read once to count them."""
        if self.sample is None:
            raise RefusedValue("this source has no sample")
        total = self._count_all_rows()
        if total < 1:
            raise RefusedValue(f"{self.name}: expected rows of data, found none")
        return draw_numbers(total, self.sample, self.seed)

    def _count_all_rows(self) -> int:
        if not isinstance(self.data, str | Path):
            return len(self.data)
        return count_hub_rows(str(self.data), self.split) if self.on_hub else sum(map(self._count_rows_of, self.files))

    def _count_rows_of(self, path: Path) -> int:
        kind = self.kind_of(path)
        count = count_without_parsing(path, kind)
        return sum(1 for _ in READERS[kind](path, "surrogateescape")) if count is None else count

    def refuse_columns(self, read: Sequence[Column], reader: str) -> None:
        """Refuse columns that the caller named and that `reader` would ignore."""
        for role in OTHERS:
            if role not in read and getattr(self, role) is not None:
                raise RefusedValue(f"{reader} reads no column {role}={getattr(self, role)!r}: leave it out")

    def describe(self, read: Sequence[Column]) -> dict[str, Any]:
        """Everything that identifies the rows and columns that are read; files are identified by their hashes."""
        kinds = [self.kind_of(path) for path in self.files]  # the kind decides how the same bytes are read
        kind = kinds[0] if len(set(kinds)) == 1 else kinds or self.kind
        rows = {"source": self.name, "kind": kind, "split": self.split, "limit": self.limit}
        if self.sample is not None:
            rows |= {"sample": self.sample, "seed": self.seed}
        columns = {role: getattr(self, role) for role in (*ALWAYS_READ, *read)}
        return {**rows, **columns, "hub": self.name if self.on_hub else None, "sha256": self.hash()}

    def hash(self) -> str | None:
        """The sha256 of the files or of the objects in memory; None for a data set of the Hub."""
        if self.on_hub:
            return None
        if not isinstance(self.data, str | Path):
            digest = hashlib.sha256()
            for item in self.data:
                digest.update(repr(item).encode())
            return digest.hexdigest()
        hashes = [hash_file(path) for path in self.files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def check_data(data: Any) -> None:
    """Refuse what is no list of rows: iterating over it gives keys, names of columns, or rows in no fixed order."""
    refuse_table(data)
    is_list = all(hasattr(data, name) for name in ("__len__", "__getitem__", "__iter__"))
    if not isinstance(data, Path) and (not is_list or isinstance(data, bytes | Mapping)):
        raise RefusedType(
            "data are a file, a folder, hf:NAME, or a list of texts, pairs, rows or examples; found "
            f"{type(data).__name__}"
        )


def is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def as_source(given: Data | DataSource) -> DataSource:
    return given if isinstance(given, DataSource) else DataSource(given)
