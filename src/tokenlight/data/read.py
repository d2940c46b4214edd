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
    LABELS,
    Columns,
    answer_columns,
    documents_of,
    evidence_of,
    pair_columns,
    plain_name,
    read_pair,
    read_row,
    resolve_columns,
    split_reply,
    text_problem,
)
from tokenlight.data.data_source import Column, Data, DataSource
from tokenlight.data.examples import BadRow, Example, TableRow
from tokenlight.data.readers import AGREEMENT, CASE, READERS, Rows
from tokenlight.data.sampling import draw_numbers, select_items
from tokenlight.data.subject_verb import ANNOTATED, read_annotated, read_case
from tokenlight.heads.parses import SPACY_PIPELINE, Parse, conllu_parses, jsonl_parses, spacy_parses
from tokenlight.tasks import TASKS
from tokenlight.text.documents import find_documents, with_documents
from tokenlight.text.tokenize import read_chat
from tokenlight.text.tokenized_text import Chat, Gap, Text

COLUMNS: tuple[Column, ...] = ("id", "target", "foil", "answer", "documents")  # read in addition to the texts
VALUES: tuple[Column, ...] = ("id", "target", "foil")  # columns of strings or integers


def check_corpus(source: DataSource) -> None:
    """Refuse a source that is not a corpus to explain."""
    source.refuse_columns(COLUMNS, "explaining a corpus")
    if (source.answer or source.documents) and (source.target or source.foil or source.pair):
        raise RefusedValue("an answer to a prompt is explained by itself: leave pair, target and foil out")
    for path in source.files:
        if (kind := source.kind_of(path)) in AGREEMENT:
            accepted = ", ".join(name for name in READERS if name not in AGREEMENT)
            raise RefusedValue(f"{path}: a corpus of kind {kind!r} cannot be explained; kinds: {accepted}")


def read_texts(source: DataSource) -> Iterator[Example | BadRow]:
    """The texts and bad rows of a corpus, in order."""
    check_corpus(source)
    # surrogateescape keeps bytes that are not UTF-8, so that only their own row is bad, not the whole file.
    tables = source.tables("surrogateescape")
    return source.select(row for table in tables for row in table_texts(source, table))


@dataclass(frozen=True)
class TextColumns:
    """The columns of the text or pair, and of a language model's answer to it."""

    texts: tuple[str, ...]
    answer: str | None = None


def table_texts(source: DataSource, rows: Rows) -> Iterator[Example | BadRow]:
    """The rows as examples. The first row with texts decides the columns; with free columns, each row its own."""
    columns_by_names: dict[tuple[str, ...], TextColumns] = {}  # by the column names of a row
    columns: TextColumns | None = None
    expected_texts = 0  # texts in each row: 1 or 2; 0 before the first row
    free_columns = has_free_columns(source)
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
            continue
        names = tuple(row.values)
        try:
            if columns is None or (free_columns and names not in columns_by_names):
                columns_by_names[names] = text_columns(source, list(names), row.where)
            columns = columns_by_names[names] if free_columns else columns or columns_by_names[names]
        except Exception as error:
            if not free_columns:
                raise
            if columns is None:
                yield BadRow(row.where, reason_to_skip(error))  # later rows may have other columns
                continue
        expected_texts = expected_texts or len(columns.texts)
        if len(columns.texts) != expected_texts:
            yield BadRow(row.where, describe_text_count_mismatch(columns.texts, expected_texts))
            continue
        yield read_prompt(source, row, columns)


def describe_text_count_mismatch(columns: Sequence[str], expected_texts: int) -> str:
    """Why a row with two texts among rows with one text is bad, and the reverse."""
    words = {1: "one text", 2: "two texts"}
    found_words, expected_words = words[len(columns)], words[expected_texts]
    return (
        f"has {found_words} ({', '.join(columns)}), where the rows before it have {expected_words}: "
        "keep these in separate files"
    )


def has_free_columns(source: DataSource) -> bool:
    """Whether each row has columns of its own, as objects in memory and JSON lines do."""
    return source.in_memory or any(source.kind_of(path) == "jsonl" for path in source.files)


def text_columns(source: DataSource, available: list[str], where: str) -> TextColumns:
    """The columns of text and answer, by given or by common names. All columns that the caller named must exist."""
    for name in (source.id, source.target, source.foil, source.documents):
        if name is not None and name not in available:
            raise RefusedValue(f"{where} has no column {name!r}; it has {', '.join(available)}")
    may_have_answers = source.pair is None and source.target is None
    if may_have_answers and (prompt_and_answer := answer_columns(available, source.text, source.answer, where)):
        return TextColumns(prompt_and_answer[:1], prompt_and_answer[1])
    # Labels are not read, so it does not matter which column has them.
    candidates = [
        name for name in available if plain_name(name) not in LABELS or name in (source.text, *(source.pair or ()))
    ]
    return TextColumns(resolve_columns(candidates, source.text, source.pair, None, where).texts)


def read_prompt(source: DataSource, row: TableRow, columns: TextColumns) -> Example | BadRow:
    try:
        return read_answer(source, row, columns, read_text(source, row, columns))
    except Exception as error:
        return BadRow(row.where, reason_to_skip(error))


def read_text(source: DataSource, row: TableRow, columns: TextColumns) -> Example:
    values = [read_value(row, name) for name in columns.texts]
    text: Any = values[0] if len(values) == 1 else tuple(values)
    example = Example(row.id, text, where=row.where)
    for role in VALUES:
        column = getattr(source, role)
        if column is None:
            continue
        value: Any = row.values.get(column)
        if reason := value_problem(value):
            raise RefusedValue(f"{column}: {reason}")
        converted = int(value) if isinstance(value, float) else value
        example = replace(example, **{role: str(converted) if role == "id" else converted})
    return example


def read_value(row: TableRow, column: str) -> str | Chat:
    """The text in a column, or the chat if the column has a list of messages."""
    value: Any = row.values.get(column)
    if value is None:
        columns = "" if column in row.values else f"; the row has {', '.join(row.values) or 'no columns'}"
        raise RefusedValue(f"no value under {column!r}{columns}")
    try:
        text = read_chat(value) if isinstance(value, list) else value
    except ValueError as error:
        raise RefusedValue(f"{column}: {error}") from error
    if reason := text_problem(text):
        raise RefusedValue(f"{column}: {reason}")
    return text


def read_answer(source: DataSource, row: TableRow, columns: TextColumns, example: Example) -> Example:
    """Add the answer, from its own column or from the last message of a chat, and the documents of the prompt."""
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
    """Why a value is not a string or an integer; None if it is."""
    if value is None or value == "":
        return "no value"
    is_whole_float = isinstance(value, float) and value.is_integer()  # integers in a column with missing values
    is_valid = isinstance(value, str | int) and not isinstance(value, bool)
    return None if is_valid or is_whole_float else f"expected a name or a whole number, found {value!r}"


Reader = Callable[[TableRow], Example | BadRow]
EXAMPLE_COLUMNS: tuple[Column, ...] = ("label",)  # read in addition to the texts
PREVIEW = 100  # rows that are searched for the first example


def read_examples(source: DataSource, gap: Gap | None = "end") -> Iterator[Example | BadRow]:
    """The examples and bad rows of a data set, in order.

    Minimal pairs and agreement data become prefixes, or texts with MASK_MARK if gap="inside"; they are refused if
    gap=None, which is for models that do not predict words.
    """
    source.refuse_columns(EXAMPLE_COLUMNS, "evaluation")
    return source.select(all_examples(source, gap))


def all_examples(source: DataSource, gap: Gap | None) -> Iterator[Example | BadRow]:
    row = None
    for table in source.tables("surrogateescape"):  # bytes that are not UTF-8 make only their own row bad
        for row in table_examples(table, partial(choose_reader, source=source, gap=gap), has_free_columns(source)):
            yield row
    if row is None:
        raise RefusedValue(f"{source.name}: expected rows of data, found none")


def table_examples(rows: Rows, choose: Callable[[list[str]], Reader], free_columns: bool) -> Iterator[Example | BadRow]:
    """The rows as examples. The first readable row decides the columns; with `free_columns`, each row its own."""
    readers: dict[tuple[str, ...], Reader] = {}  # by the column names of a row
    reader: Reader | None = None
    expected_texts = 0  # texts in each row: 1 or 2; 0 before the first row
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
            continue
        names = tuple(row.values)
        try:
            if reader is None or (free_columns and names not in readers):
                readers[names] = choose(list(names))
            reader = readers[names] if free_columns else reader or readers[names]
        except Exception as error:
            if not free_columns:
                raise
            if reader is None:
                yield BadRow(row.where, reason_to_skip(error))
                continue
        columns = text_columns_of(reader)
        expected_texts = expected_texts or len(columns)
        if len(columns) != expected_texts:
            yield BadRow(row.where, describe_text_count_mismatch(columns, expected_texts))
            continue
        try:
            result = reader(row)
        except Exception as error:
            result = BadRow(row.where, reason_to_skip(error))
        yield replace(result, where=row.where) if isinstance(result, Example) else result


def text_columns_of(reader: Reader) -> tuple[str, ...]:
    """The one or two text columns of a reader; minimal pairs and agreement data count as one."""
    columns = reader.keywords.get("columns") if isinstance(reader, partial) else None
    return columns.texts if isinstance(columns, Columns) else (CASE,)


def choose_reader(available: list[str], source: DataSource, gap: Gap | None) -> Reader:
    """The reader of rows with these columns: agreement data, minimal pairs, prompts with answers, or texts."""
    if available == [CASE]:
        return partial(read_case, gap=check_gap(gap, source))
    named_columns = (source.text, source.pair, source.label)
    if named_columns == (None, None, None) and set(ANNOTATED) <= set(available):
        return partial(read_annotated, gap=check_gap(gap, source))
    pair_format = pair_columns(available) if named_columns == (None, None, None) else None
    if pair_format is not None:
        return partial(read_pair, columns=pair_format, gap=check_gap(gap, source))
    prompt_and_answer = (
        answer_columns(available, None, None, source.name) if named_columns == (None, None, None) else None
    )
    if prompt_and_answer is not None:
        return partial(read_answered, source=source, columns=TextColumns(prompt_and_answer[:1], prompt_and_answer[1]))
    return partial(read_row, columns=resolve_columns(available, *named_columns, source.name))


def read_answered(row: TableRow, source: DataSource, columns: TextColumns) -> Example | BadRow:
    """A prompt with its answer, its documents, and the evidence for the answer."""
    example = read_prompt(source, row, columns)
    if isinstance(example, BadRow):
        return example
    if example.reply is None:
        return BadRow(row.where, "there is no answer to the prompt")
    try:
        return replace(example, rests_on=find_documents(example.text, evidence_of(row.values) or None))
    except ValueError as error:
        return BadRow(row.where, str(error))


def check_gap(gap: Gap | None, source: DataSource) -> Gap:
    if gap is None:
        tasks = " and ".join(name for name, task in TASKS.items() if task.gap is not None)
        raise RefusedValue(f"{source.name} holds words to predict, for models of the tasks {tasks}")
    return gap


def first_example(source: DataSource, gap: Gap | None) -> Example | None:
    """The first example, or None if the first rows are all bad; an empty source is refused."""
    first_rows = islice(read_examples(source, gap), PREVIEW)
    return next((row for row in first_rows if isinstance(row, Example)), None)


PARSERS = ("spacy", "conllu", "jsonl")


@dataclass(frozen=True)
class ParsedTextSource:
    """A source of parsed texts, which can be read from any position."""

    source: DataSource
    parser: str
    spacy: str = SPACY_PIPELINE  # the pipeline that parses texts

    @property
    def name(self) -> str:
        """Identifies the data without their folder: two sources with the same name give the same parses."""
        source = self.source
        facts = [self.parser if self.spacy == SPACY_PIPELINE else f"{self.parser} {self.spacy}"]
        facts += [] if source.kind in (None, self.parser) else [f"kind {source.kind}"]
        facts += [] if source.split is None else [f"split {source.split}"]
        facts += [] if source.text is None else [f"column {source.text}"]
        facts += [] if source.pair is None else [f"columns {' and '.join(source.pair)}"]
        facts += [] if source.limit is None else [f"first {source.limit:,}"]
        facts += [] if source.sample is None else [f"sample of {source.sample:,} by seed {source.seed}"]
        digest = source.hash()
        return f"{short_name(source)} ({', '.join(facts)}{'' if digest is None else f'; sha256 {digest[:12]}'})"

    @property
    def count(self) -> int | None:
        """The number of texts, for a progress bar; None if it is not known."""
        if self.parser == "spacy":
            return self.source.count()
        return self.source.limit if self.source.sample is None else len(self._sampled_parses)

    def parses_after(self, done: int) -> Iterator[Parse]:
        """The parses after the first `done`, up to the limit."""
        if self.parser == "spacy":  # skip texts before they are parsed
            return spacy_parses(islice(read_parsed_texts(self.source), done, None), self.spacy)
        if self.source.sample is None:
            return islice(self._read_parses(), done, self.source.limit)
        return select_items(self._read_parses(), self._sampled_parses[done:], self.source.name)

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
    """Parsed texts of a data source. Treebanks and parsed JSON lines contain parses; other texts are parsed by spaCy.

    `parser` overrides the choice. `spacy` is the name or the path of a spaCy pipeline, such as "en_core_web_trf".
    `column` and `limit` are for data that are not a `DataSource`, which has fields for both.
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
    """ "conllu" or "jsonl" if the first file contains parses, else "spacy"."""
    has_parses: dict[str, Callable[[Path], bool]] = {"conllu": lambda path: True, "jsonl": holds_parses}
    for path in source.files[:1]:
        kind = source.kind_of(path)
        if kind in has_parses and has_parses[kind](path):
            return kind
    return "spacy"


def holds_parses(path: Path) -> bool:
    """Whether a file of JSON lines contains parses in the format of the Mask-LRP release."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return '"parsed"' in file.read(1 << 16)


def short_name(source: DataSource) -> str:
    """The name of a file or folder without its parent folders; other sources have their name."""
    return Path(source.name).name if source.files else source.name


def read_parsed_texts(source: DataSource) -> Iterator[Text]:
    """The texts of all rows that have one; a warning counts the others."""
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
