"""Reads examples, texts of a corpus, and parsed texts from a data source."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from tokenlight.common.error_location import reason_to_skip
from tokenlight.common.errors import RefusedValue
from tokenlight.common.formatting import describe_count
from tokenlight.data.columns import (
    EVIDENCE,
    LABELS,
    Columns,
    answer_columns,
    documents_of,
    pair_columns,
    read_evidence,
    read_pair,
    read_row,
    resolve_columns,
    split_reply,
    text_problem,
)
from tokenlight.data.data_source import Column, Data, DataSource
from tokenlight.data.examples import BadRow, Example, TableRow
from tokenlight.data.readers import AGREEMENT, CASE, READERS, Rows
from tokenlight.data.sampling import draw_numbers, pick
from tokenlight.data.subject_verb import ANNOTATED, read_annotated, read_case
from tokenlight.heads.parses import SPACY_PIPELINE, Parse, conllu_parses, jsonl_parses, spacy_parses
from tokenlight.tasks import TASKS
from tokenlight.text.documents import find_documents, with_documents
from tokenlight.text.tokenize import read_chat
from tokenlight.text.tokenized_text import Chat, Gap, Text

COLUMNS: tuple[Column, ...] = ("id", "target", "foil", "answer", "documents")  # that are read beside the texts
VALUES: tuple[Column, ...] = ("id", "target", "foil")  # each a name or a number


def check_corpus(source: DataSource) -> None:
    """Refuse what is no corpus to explain."""
    source.refuse_columns(COLUMNS, "explaining a corpus")
    if (source.answer or source.documents) and (source.target or source.foil or source.pair):
        raise RefusedValue("an answer to a prompt is explained by itself: leave pair, target and foil out")
    for path in source.files:
        if (kind := source.kind_of(path)) in AGREEMENT:
            able = ", ".join(one for one in READERS if one not in AGREEMENT)
            raise RefusedValue(f"{path}: a corpus of kind {kind!r} cannot be explained; kinds: {able}")


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
        yield read_prompt(source, row, columns)


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
            raise RefusedValue(f"{where} has no column {name!r}; it has {', '.join(found)}")
    alone = source.pair is None and source.target is None
    if alone and (answered := answer_columns(found, source.text, source.answer, where)):
        return TextColumns(answered[:1], answered[1])
    # Which of several columns holds the labels is no question here.
    known = [name for name in found if name.lower() not in LABELS or name in (source.text, *(source.pair or ()))]
    return TextColumns(resolve_columns(known, source.text, source.pair, None, where).texts)


def read_prompt(source: DataSource, row: TableRow, columns: TextColumns) -> Example | BadRow:
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
            raise RefusedValue(f"{column}: {reason}")
        plain = int(value) if isinstance(value, float) else value
        found = replace(found, **{role: str(plain) if role == "id" else plain})
    return found


def read_value(row: TableRow, column: str) -> str | Chat:
    """A text, or a chat where the column holds a list of messages."""
    value: Any = row.values.get(column)
    if value is None:
        others = "" if column in row.values else f"; the row has {', '.join(row.values) or 'no columns'}"
        raise RefusedValue(f"no value under {column!r}{others}")
    try:
        text = read_chat(value) if isinstance(value, list) else value
    except ValueError as error:
        raise RefusedValue(f"{column}: {error}") from error
    if reason := text_problem(text):
        raise RefusedValue(f"{column}: {reason}")
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
        raise RefusedValue(f"{columns.answer}: expected the answer as a text, found messages")
    text, documents = with_documents(text, documents_of(row.values, source.documents, row.where))
    return replace(example, text=text, reply=reply, documents=documents)


def value_problem(value: object) -> str | None:
    if value is None or value == "":
        return "no value"
    whole = isinstance(value, float) and value.is_integer()  # whole numbers with gaps are stored as floats
    good = isinstance(value, str | int) and not isinstance(value, bool)
    return None if good or whole else f"expected a name or a whole number, found {value!r}"


Reader = Callable[[TableRow], Example | BadRow]
EXAMPLE_COLUMNS: tuple[Column, ...] = ("label",)  # that are read beside the texts
PREVIEW = 100  # rows among which the first good one is looked for


def read_examples(source: DataSource, gap: Gap | None = "end") -> Iterator[Example | BadRow]:
    """Examples and bad rows in their order.

    Data for language models becomes prefixes, or with gap="inside" texts with MASK_MARK; gap=None is for models that
    answer with no word.
    """
    source.refuse_columns(EXAMPLE_COLUMNS, "evaluation")
    return source.select(all_examples(source, gap))


def all_examples(source: DataSource, gap: Gap | None) -> Iterator[Example | BadRow]:
    row = None
    for table in source.tables("surrogateescape"):  # of bytes that are not UTF-8, only their own row is bad
        for row in table_examples(table, partial(choose_reader, source=source, gap=gap), has_free_columns(source)):
            yield row
    if row is None:
        raise RefusedValue(f"{source.name}: expected rows of data, found none")


def table_examples(rows: Rows, choose: Callable[[list[str]], Reader], free: bool) -> Iterator[Example | BadRow]:
    """Rows, read by the columns that the first good one has; with `free` columns, others may have others."""
    readers: dict[tuple[str, ...], Reader] = {}  # by the columns of a row
    read: Reader | None = None
    texts = 0  # of a row
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
            continue
        names = tuple(row.values)
        try:
            if read is None or (free and names not in readers):
                readers[names] = choose(list(names))
            read = readers[names] if free else read or readers[names]
        except Exception as error:
            if not free:
                raise
            if read is None:
                yield BadRow(row.where, reason_to_skip(error))
                continue
        columns = texts_of(read)
        texts = texts or len(columns)
        if len(columns) != texts:
            yield BadRow(row.where, describe_other_number(columns, texts))
            continue
        try:
            found = read(row)
        except Exception as error:
            found = BadRow(row.where, reason_to_skip(error))
        yield replace(found, where=row.where) if isinstance(found, Example) else found


def texts_of(reader: Reader) -> tuple[str, ...]:
    """The columns with texts that it reads, one or two; data for language models has one."""
    columns = reader.keywords.get("columns") if isinstance(reader, partial) else None
    return columns.texts if isinstance(columns, Columns) else (CASE,)


def choose_reader(found: list[str], source: DataSource, gap: Gap | None) -> Reader:
    """How rows with these columns are read: as verbs and subjects, minimal pairs, prompts with answers, or texts."""
    if found == [CASE]:
        return partial(read_case, gap=check_gap(gap, source))
    named = (source.text, source.pair, source.label)
    if named == (None, None, None) and set(ANNOTATED) <= set(found):
        return partial(read_annotated, gap=check_gap(gap, source))
    minimal = pair_columns(found) if named == (None, None, None) else None
    if minimal is not None:
        return partial(read_pair, columns=minimal, gap=check_gap(gap, source))
    answered = answer_columns(found, None, None, source.name) if named == (None, None, None) else None
    if answered is not None:
        return partial(read_answered, source=source, columns=TextColumns(answered[:1], answered[1]))
    return partial(read_row, columns=resolve_columns(found, *named, source.name))


def read_answered(row: TableRow, source: DataSource, columns: TextColumns) -> Example | BadRow:
    """A prompt with its answer, its documents, and the evidence for the answer."""
    found = read_prompt(source, row, columns)
    if isinstance(found, BadRow):
        return found
    if found.reply is None:
        return BadRow(row.where, "there is no answer to the prompt")
    try:
        evidence = read_evidence(row.values.get(EVIDENCE))
        return replace(found, rests_on=find_documents(found.text, evidence or None))
    except ValueError as error:
        return BadRow(row.where, str(error))


def check_gap(gap: Gap | None, source: DataSource) -> Gap:
    if gap is None:
        tasks = " and ".join(name for name, task in TASKS.items() if task.gap is not None)
        raise RefusedValue(f"{source.name} holds words to predict, for models of the tasks {tasks}")
    return gap


def first_example(source: DataSource, gap: Gap | None) -> Example | None:
    """An example of the data, to see what it holds; an empty source is an error here already."""
    some = islice(read_examples(source, gap), PREVIEW)
    return next((row for row in some if isinstance(row, Example)), None)


PARSERS = ("spacy", "conllu", "jsonl")


@dataclass(frozen=True)
class ParsedTextSource:
    """Texts or parses that can be read from any place on."""

    source: DataSource
    parser: str
    spacy: str = SPACY_PIPELINE  # the pipeline that parses texts

    @property
    def name(self) -> str:
        """What is read, without where it lies: two runs with the same name read the same."""
        source = self.source
        read = [self.parser if self.spacy == SPACY_PIPELINE else f"{self.parser} {self.spacy}"]
        read += [] if source.kind in (None, self.parser) else [f"kind {source.kind}"]
        read += [] if source.split is None else [f"split {source.split}"]
        read += [] if source.text is None else [f"column {source.text}"]
        read += [] if source.pair is None else [f"columns {' and '.join(source.pair)}"]
        read += [] if source.limit is None else [f"first {source.limit:,}"]
        read += [] if source.sample is None else [f"sample of {source.sample:,} by seed {source.seed}"]
        digest = source.hash()
        return f"{short_name(source)} ({', '.join(read)}{'' if digest is None else f'; sha256 {digest[:12]}'})"

    @property
    def count(self) -> int | None:
        """How many texts there are, for a progress bar; None if not known."""
        if self.parser == "spacy":
            return self.source.count()
        return self.source.limit if self.source.sample is None else len(self._sampled_parses)

    def behind(self, done: int) -> Iterator[Parse]:
        """The parses behind the first `done`, up to the limit."""
        if self.parser == "spacy":  # texts that are counted already need no parse
            return spacy_parses(islice(read_parsed_texts(self.source), done, None), self.spacy)
        if self.source.sample is None:
            return islice(self._read_parses(), done, self.source.limit)
        return pick(self._read_parses(), self._sampled_parses[done:], self.source.name)

    @cached_property
    def _sampled_parses(self) -> tuple[int, ...]:
        """The numbers of the parses in the sample, ascending; the file is read once to count them."""
        total = sum(1 for _ in self._read_parses())
        return draw_numbers(total, self.source.sample or total, self.source.seed)

    def _read_parses(self) -> Iterator[Parse]:
        [path] = self.source.files
        return (
            conllu_parses(path) if self.parser == "conllu" else jsonl_parses(path, self.source.text or self.source.pair)
        )


def parse_source(
    data: Data | DataSource,
    parser: str | None = None,
    column: str | None = None,
    limit: int | None = None,
    spacy: str | None = None,
) -> ParsedTextSource:
    """Without a parser: treebanks and parsed JSON lines hold their parses, any other text goes to spaCy.

    `spacy` is the name or the path of a spaCy pipeline, such as "en_core_web_trf". `column` and `limit` are for data
    that are not a `DataSource`, which names its columns and rows itself.
    """
    if not isinstance(data, DataSource):
        kind = parser if parser in ("conllu", "jsonl") else None
        data = DataSource(data, text=column, limit=limit, kind=kind)
    parser = guess_parser(data) if parser is None else parser
    if parser not in PARSERS:
        raise RefusedValue(f"a parser is one of {', '.join(PARSERS)}; found {parser!r}")
    if parser != "spacy" and len(data.files) != 1:
        raise RefusedValue(f"{data.name}: expected one file with parses in the format {parser!r}")
    if spacy is not None and parser != "spacy":
        raise RefusedValue(f"{data.name} holds parses ({parser}), and needs no spaCy pipeline {spacy!r}: leave it out")
    return ParsedTextSource(data, parser, spacy or SPACY_PIPELINE)


def guess_parser(source: DataSource) -> str:
    kinds: dict[str, Callable[[Path], bool]] = {"conllu": lambda path: True, "jsonl": holds_parses}
    for path in source.files[:1]:
        kind = source.kind_of(path)
        if kind in kinds and kinds[kind](path):
            return kind
    return "spacy"


def holds_parses(path: Path) -> bool:
    """Whether a file of JSON lines holds parses in the format of the Mask-LRP release."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return '"parsed"' in file.read(1 << 16)


def short_name(source: DataSource) -> str:
    """Of a file or a folder, without where it lies."""
    return Path(source.name).name if source.files else source.name


def read_parsed_texts(source: DataSource) -> Iterator[Text]:
    """Of the rows that have one; a warning counts the others."""
    bad: list[BadRow] = []
    for example in read_examples(source):
        if isinstance(example, BadRow):
            bad.append(example)
        else:
            yield example.text
    if bad:
        first = f"The first: {bad[0].where}: {bad[0].reason}"
        skipped = f"{describe_count(len(bad), 'row')} of {short_name(source)} skipped"
        warnings.warn(f"{skipped}. {first}", RuntimeWarning, stacklevel=2)
