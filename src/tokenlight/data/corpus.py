"""The texts of a corpus of any size: read one at a time, in the same order whenever they are read."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import count, islice
from pathlib import Path
from typing import Any

from tokenlight.data.columns import LABELS, settle_columns
from tokenlight.data.examples import BadRow, TableRow
from tokenlight.data.large_files import (
    count_rows,
    files_in,
    large_fields,
    memory_rows,
    refuse_utf16,
    text_problem,
    value_problem,
)
from tokenlight.data.row_readers import READERS, Rows, guess_kind, hub_rows
from tokenlight.foundation.files import hash_file
from tokenlight.runs.hashing import hash_source
from tokenlight.text.rows import Text


@dataclass(frozen=True)
class TextRow:
    """A text to explain."""

    number: int  # in the corpus, from 0
    id: str  # the line or record, or the data's own name for it
    where: str
    text: Text
    target: str | int | None = None  # where a column says what is explained
    foil: str | int | None = None


@dataclass(frozen=True)
class BadText:
    """A row that cannot be explained, and why."""

    number: int
    where: str
    reason: str


@dataclass(frozen=True)
class Part:
    """Rows that are done together, and lost together when the process is killed."""

    number: int
    rows: tuple[TextRow | BadText, ...]


@dataclass(frozen=True)
class Corpus:
    """What is read: a file, a folder of files of one kind, "hf:NAME", or texts in memory; and which columns."""

    data: str | Path | Sequence[Any]
    text: str | None = None
    pair: tuple[str, str] | None = None
    id: str | None = None
    target: str | None = None
    foil: str | None = None
    kind: str | None = None
    split: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is a positive number of rows, found {self.limit}")
        if self.split is not None and not self.on_hub:
            raise ValueError(f"{self.name} is no Hugging Face dataset and has no split {self.split!r}: leave it out")
        for path in self.files:
            refuse_utf16(path)
            self.kind_of(path)

    @property
    def on_hub(self) -> bool:
        return isinstance(self.data, str) and self.data.startswith("hf:")

    @property
    def in_memory(self) -> bool:
        return not isinstance(self.data, str | Path)

    @property
    def name(self) -> str:
        return f"{len(self.data)} texts in memory" if not isinstance(self.data, str | Path) else str(self.data)

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

    def parts(self, size: int) -> Iterator[Part]:
        """All rows, `size` at a time."""
        rows = self.rows()
        for number in count():
            some = tuple(islice(rows, size))
            if not some:
                return
            yield Part(number, some)

    def rows(self) -> Iterator[TextRow | BadText]:
        """Texts and bad rows in their order."""
        found = (row for table in self.tables() for row in self.with_columns(table))
        for number, (row, names) in enumerate(islice(found, self.limit)):
            yield self.read_row(number, row, names)

    def tables(self) -> Iterator[Rows]:
        """Each has columns of its own."""
        if not isinstance(self.data, str | Path):
            yield memory_rows(self.data)
        elif self.on_hub:
            yield hub_rows(str(self.data), self.split)
        for path in self.files:
            # Bytes that are not UTF-8 come through as marks, so that only their own row is bad.
            with large_fields():
                yield READERS[self.kind_of(path)](path, "surrogateescape")

    def with_columns(self, rows: Rows) -> Iterator[tuple[TableRow | BadRow, tuple[str, ...]]]:
        """The rows with the columns of their texts, which the first one that has them decides."""
        names: tuple[str, ...] = ()
        for row in rows:
            if isinstance(row, TableRow) and not names:
                try:
                    names = self.text_columns(list(row.values), row.where)
                except ValueError as error:
                    if not self.free_columns:
                        raise
                    row = BadRow(row.where, str(error))  # another may have them
            yield row, names

    @property
    def free_columns(self) -> bool:
        """Every row says for itself which columns it has."""
        return self.in_memory or any(self.kind_of(path) == "jsonl" for path in self.files)

    def text_columns(self, found: list[str], where: str) -> tuple[str, ...]:
        """One, or two for a pair; all named columns must be there."""
        for name in (self.id, self.target, self.foil):
            if name is not None and name not in found:
                raise ValueError(f"{where} has no column {name!r}; it has {', '.join(found)}")
        # Which of several columns holds the labels is no question here.
        known = [name for name in found if name.lower() not in LABELS or name in (self.text, *(self.pair or ()))]
        return settle_columns(known, self.text, self.pair, None, where).texts

    def read_row(self, number: int, row: TableRow | BadRow, names: tuple[str, ...]) -> TextRow | BadText:
        if isinstance(row, BadRow):
            return BadText(number, row.where, row.reason)
        parts = [row.values.get(name) for name in names]
        for name, part in zip(names, parts, strict=True):
            if reason := text_problem(part):
                return BadText(number, row.where, f"{name}: {reason}")
        text: Any = parts[0] if len(parts) == 1 else tuple(parts)
        named: dict[str, Any] = {"id": row.id}
        for role in ("id", "target", "foil"):
            column = getattr(self, role)
            if column is None:
                continue
            value = row.values.get(column)
            if reason := value_problem(value):
                return BadText(number, row.where, f"{column}: {reason}")
            named[role] = int(value) if isinstance(value, float) else value
        return TextRow(number, str(named.pop("id")), row.where, text, **named)

    def kind_of(self, path: Path) -> str:
        kind = self.kind or guess_kind(path)
        if kind not in READERS:
            raise ValueError(f"{path}: a corpus of kind {kind!r} cannot be explained; kinds: {', '.join(READERS)}")
        return kind

    def count(self) -> int | None:
        """How many rows there are, for the time that is left; None where nobody knows it."""
        if self.on_hub:
            return self.limit
        if not isinstance(self.data, str | Path):
            total = len(self.data)
        else:
            total = sum(count_rows(path, self.kind_of(path)) for path in self.files)
        return total if self.limit is None else min(total, self.limit)

    def describe(self) -> dict[str, Any]:
        """Everything that says which texts these are; the files by their bytes."""
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "data"}
        hub = self.name if self.on_hub else None
        size = sum(path.stat().st_size for path in self.files)
        return {"source": self.name, **columns, "hub": hub, "bytes": size, "sha256": self.hash()}

    def hash(self) -> str | None:
        if not isinstance(self.data, str | Path) or self.on_hub:
            return hash_source(self.data)
        hashes = [hash_file(path) for path in self.files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()
