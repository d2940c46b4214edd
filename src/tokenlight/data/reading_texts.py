"""The texts of a corpus of any size: read one at a time; a row that cannot be read spoils no other."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from tokenlight.data.columns import LABELS, settle_columns
from tokenlight.data.examples import BadRow, Example, TableRow
from tokenlight.data.row_readers import AGREEMENT, READERS, Rows
from tokenlight.data.source import Column, Source
from tokenlight.text.rows import check_text

COLUMNS: tuple[Column, ...] = ("id", "target", "foil")  # that are read beside the texts


def check_corpus(source: Source) -> None:
    """Refuse what is no corpus to explain."""
    source.refuse_columns(COLUMNS, "explaining a corpus")
    for path in source.files:
        if (kind := source.kind_of(path)) in AGREEMENT:
            able = ", ".join(one for one in READERS if one not in AGREEMENT)
            raise ValueError(f"{path}: a corpus of kind {kind!r} cannot be explained; kinds: {able}")


def read_texts(source: Source) -> Iterator[Example | BadRow]:
    """Texts and bad rows in their order."""
    check_corpus(source)
    # Bytes that are not UTF-8 come through as marks, so that only their own row is bad.
    tables = source.tables("surrogateescape")
    return islice((row for table in tables for row in table_texts(source, table)), source.limit)


def table_texts(source: Source, rows: Rows) -> Iterator[Example | BadRow]:
    """The rows, read by the columns of texts that the first one has which has any."""
    names: tuple[str, ...] = ()
    for row in rows:
        if isinstance(row, TableRow) and not names:
            try:
                names = text_columns(source, list(row.values), row.where)
            except ValueError as error:
                if not has_free_columns(source):
                    raise
                yield BadRow(row.where, str(error))  # another may have them
                continue
        yield read_text(source, row, names) if isinstance(row, TableRow) else row


def has_free_columns(source: Source) -> bool:
    """Every row says for itself which columns it has."""
    return source.in_memory or any(source.kind_of(path) == "jsonl" for path in source.files)


def text_columns(source: Source, found: list[str], where: str) -> tuple[str, ...]:
    """One, or two for a pair; all named columns must be there."""
    for name in (source.id, source.target, source.foil):
        if name is not None and name not in found:
            raise ValueError(f"{where} has no column {name!r}; it has {', '.join(found)}")
    # Which of several columns holds the labels is no question here.
    known = [name for name in found if name.lower() not in LABELS or name in (source.text, *(source.pair or ()))]
    return settle_columns(known, source.text, source.pair, None, where).texts


def read_text(source: Source, row: TableRow, names: tuple[str, ...]) -> Example | BadRow:
    parts = [row.values.get(name) for name in names]
    for name, part in zip(names, parts, strict=True):
        if reason := text_problem(part):
            return BadRow(row.where, f"{name}: {reason}")
    text: Any = parts[0] if len(parts) == 1 else tuple(parts)
    found = Example(row.id, text, where=row.where)
    for role in COLUMNS:
        column = getattr(source, role)
        if column is None:
            continue
        value: Any = row.values.get(column)
        if reason := value_problem(value):
            return BadRow(row.where, f"{column}: {reason}")
        plain = int(value) if isinstance(value, float) else value
        found = replace(found, **{role: str(plain) if role == "id" else plain})
    return found


def text_problem(text: object) -> str | None:
    """Why this cannot be explained."""
    if isinstance(text, str) and any("\udc80" <= character <= "\udcff" for character in text):
        return "holds bytes that are not UTF-8"
    if isinstance(text, str) and "\0" in text:
        return "holds a NUL character, as no text does"
    try:
        check_text(text)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def value_problem(value: object) -> str | None:
    if value is None or value == "":
        return "no value"
    whole = isinstance(value, float) and value.is_integer()  # whole numbers with gaps are stored as floats
    good = isinstance(value, str | int) and not isinstance(value, bool)
    return None if good or whole else f"expected a name or a whole number, found {value!r}"
