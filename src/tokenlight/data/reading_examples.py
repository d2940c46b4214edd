"""Evaluation data of any source as examples. A bad row is handed on with its reason."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from tokenlight.data.answers import EVIDENCE, answer_columns, read_evidence
from tokenlight.data.columns import Columns, read_row, resolve_columns
from tokenlight.data.examples import BadRow, Example, TableRow
from tokenlight.data.minimal_pairs import pair_columns, read_pair
from tokenlight.data.reading_texts import TextColumns, describe_other_number, has_free_columns
from tokenlight.data.reading_texts import read_row as read_prompt
from tokenlight.data.row_readers import CASE, Rows
from tokenlight.data.source import Column, DataSource
from tokenlight.data.subject_verb import ANNOTATED, read_annotated, read_case
from tokenlight.foundation.blame import reason_to_skip
from tokenlight.tasks import TASKS
from tokenlight.text.rows import Gap
from tokenlight.text.sources import find_documents

Reader = Callable[[TableRow], Example | BadRow]
COLUMNS: tuple[Column, ...] = ("label",)  # that are read beside the texts
PREVIEW = 100  # rows among which the first good one is looked for


def read_examples(source: DataSource, gap: Gap | None = "end") -> Iterator[Example | BadRow]:
    """Examples and bad rows in their order.

    Data for language models becomes prefixes, or with gap="inside" texts with MASK_MARK; gap=None is for models that
    answer with no word.
    """
    source.refuse_columns(COLUMNS, "evaluation")
    return source.select(all_examples(source, gap))


def all_examples(source: DataSource, gap: Gap | None) -> Iterator[Example | BadRow]:
    row = None
    for table in source.tables("surrogateescape"):  # of bytes that are not UTF-8, only their own row is bad
        for row in table_examples(table, partial(choose_reader, source=source, gap=gap), has_free_columns(source)):
            yield row
    if row is None:
        raise ValueError(f"{source.name}: expected rows of data, found none")


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
        raise ValueError(f"{source.name} holds words to predict, for models of the tasks {tasks}")
    return gap


def first_example(source: DataSource, gap: Gap | None) -> Example | None:
    """An example of the data, to see what it holds; an empty source is an error here already."""
    some = islice(read_examples(source, gap), PREVIEW)
    return next((row for row in some if isinstance(row, Example)), None)
