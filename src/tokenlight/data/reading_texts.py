"""The texts of a corpus of any size: read one at a time; a row that cannot be read spoils no other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenlight.data.answers import answer_columns, documents_of, split_reply
from tokenlight.data.columns import LABELS, resolve_columns, text_problem
from tokenlight.data.examples import BadRow, Example, TableRow
from tokenlight.data.row_readers import AGREEMENT, READERS, Rows
from tokenlight.data.source import Column, DataSource
from tokenlight.foundation.blame import reason_to_skip
from tokenlight.text.chats import read_chat
from tokenlight.text.documents import with_documents
from tokenlight.text.rows import Chat

COLUMNS: tuple[Column, ...] = ("id", "target", "foil", "answer", "documents")  # that are read beside the texts
VALUES: tuple[Column, ...] = ("id", "target", "foil")  # each a name or a number


def check_corpus(source: DataSource) -> None:
    """Refuse what is no corpus to explain."""
    source.refuse_columns(COLUMNS, "explaining a corpus")
    if (source.answer or source.documents) and (source.target or source.foil or source.pair):
        raise ValueError("an answer to a prompt is explained by itself: leave pair, target and foil out")
    for path in source.files:
        if (kind := source.kind_of(path)) in AGREEMENT:
            able = ", ".join(one for one in READERS if one not in AGREEMENT)
            raise ValueError(f"{path}: a corpus of kind {kind!r} cannot be explained; kinds: {able}")


def read_texts(source: DataSource) -> Iterator[Example | BadRow]:
    """Texts and bad rows in their order."""
    check_corpus(source)
    # Bytes that are not UTF-8 come through as marks, so that only their own row is bad.
    tables = source.tables("surrogateescape")
    return source.select(row for table in tables for row in table_texts(source, table))


@dataclass(frozen=True)
class TextColumns:
    """Which columns hold the text or the pair, and a language model's answer to it."""

    texts: tuple[str, ...]
    answer: str | None = None


def table_texts(source: DataSource, rows: Rows) -> Iterator[Example | BadRow]:
    """The rows, read by the columns that the first one has which has texts; in JSON, others may have other columns."""
    settled: dict[tuple[str, ...], TextColumns] = {}  # by the columns of a row
    columns: TextColumns | None = None
    texts = 0  # of a row
    free = has_free_columns(source)
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
            continue
        names = tuple(row.values)
        try:
            if columns is None or (free and names not in settled):
                settled[names] = text_columns(source, list(names), row.where)
            columns = settled[names] if free else columns or settled[names]
        except Exception as error:
            if not free:
                raise
            if columns is None:
                yield BadRow(row.where, reason_to_skip(error))  # another may have them
                continue
        texts = texts or len(columns.texts)
        if len(columns.texts) != texts:
            yield BadRow(row.where, describe_other_number(columns.texts, texts))
            continue
        yield read_row(source, row, columns)


def describe_other_number(columns: Sequence[str], texts: int) -> str:
    """Why a row is bad that has two texts among rows that have one, or the other way round."""
    count = {1: "one text", 2: "two texts"}
    found, expected = count[len(columns)], count[texts]
    return f"has {found} ({', '.join(columns)}), where the rows before it have {expected}: keep these in separate files"


def has_free_columns(source: DataSource) -> bool:
    """Every row says for itself which columns it has."""
    return source.in_memory or any(source.kind_of(path) == "jsonl" for path in source.files)


def text_columns(source: DataSource, found: list[str], where: str) -> TextColumns:
    """All named columns must be there."""
    for name in (source.id, source.target, source.foil, source.documents):
        if name is not None and name not in found:
            raise ValueError(f"{where} has no column {name!r}; it has {', '.join(found)}")
    alone = source.pair is None and source.target is None
    if alone and (answered := answer_columns(found, source.text, source.answer, where)):
        return TextColumns(answered[:1], answered[1])
    # Which of several columns holds the labels is no question here.
    known = [name for name in found if name.lower() not in LABELS or name in (source.text, *(source.pair or ()))]
    return TextColumns(resolve_columns(known, source.text, source.pair, None, where).texts)


def read_row(source: DataSource, row: TableRow, columns: TextColumns) -> Example | BadRow:
    try:
        return read_answer(source, row, columns, read_text(source, row, columns))
    except Exception as error:
        return BadRow(row.where, reason_to_skip(error))


def read_text(source: DataSource, row: TableRow, columns: TextColumns) -> Example:
    parts = [read_value(row, name) for name in columns.texts]
    text: Any = parts[0] if len(parts) == 1 else tuple(parts)
    found = Example(row.id, text, where=row.where)
    for role in VALUES:
        column = getattr(source, role)
        if column is None:
            continue
        value: Any = row.values.get(column)
        if reason := value_problem(value):
            raise ValueError(f"{column}: {reason}")
        plain = int(value) if isinstance(value, float) else value
        found = replace(found, **{role: str(plain) if role == "id" else plain})
    return found


def read_value(row: TableRow, column: str) -> str | Chat:
    """A text, or a chat where the column holds a list of messages."""
    value: Any = row.values.get(column)
    if value is None:
        others = "" if column in row.values else f"; the row has {', '.join(row.values) or 'no columns'}"
        raise ValueError(f"no value under {column!r}{others}")
    try:
        text = read_chat(value) if isinstance(value, list) else value
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from error
    if reason := text_problem(text):
        raise ValueError(f"{column}: {reason}")
    return text


def read_answer(source: DataSource, row: TableRow, columns: TextColumns, example: Example) -> Example:
    """The answer to a prompt, in its own column or as the last message of a chat; and the documents of the prompt."""
    text, reply = example.text, None
    if isinstance(text, tuple):
        return example
    if example.target is None and row.values.get(columns.answer or "") is None:
        text, reply = split_reply(text)
    if reply is None and columns.answer is None:
        return example
    if reply is None:
        reply = read_value(row, columns.answer or "")
    if not isinstance(reply, str):
        raise ValueError(f"{columns.answer}: expected the answer as a text, found messages")
    text, documents = with_documents(text, documents_of(row.values, source.documents, row.where))
    return replace(example, text=text, reply=reply, documents=documents)


def value_problem(value: object) -> str | None:
    if value is None or value == "":
        return "no value"
    whole = isinstance(value, float) and value.is_integer()  # whole numbers with gaps are stored as floats
    good = isinstance(value, str | int) and not isinstance(value, bool)
    return None if good or whole else f"expected a name or a whole number, found {value!r}"
