"""Evaluation data of any source as examples. A bad row is handed on with its reason."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from tokenlight.data.columns import read_row, settle_columns
from tokenlight.data.examples import BadRow, Example, TableRow
from tokenlight.data.minimal_pairs import pair_columns, read_pair
from tokenlight.data.row_readers import CASE, Rows
from tokenlight.data.source import Column, Source
from tokenlight.data.subject_verb import read_case
from tokenlight.tasks import TASKS
from tokenlight.text.rows import Gap

Reader = Callable[[TableRow], Example | BadRow]
COLUMNS: tuple[Column, ...] = ("label",)  # that are read beside the texts
PREVIEW = 100  # rows among which the first good one is looked for


def read_examples(source: Source, gap: Gap | None = "end") -> Iterator[Example | BadRow]:
    """Examples and bad rows in their order.

    Data for language models becomes prefixes, or with gap="inside" texts with MASK_MARK; gap=None is for models that
    answer with no word.
    """
    source.refuse_columns(COLUMNS, "evaluation")
    return islice(all_examples(source, gap), source.limit)


def all_examples(source: Source, gap: Gap | None) -> Iterator[Example | BadRow]:
    row = None
    for table in source.tables():
        for row in table_examples(table, partial(choose_reader, source=source, gap=gap)):
            yield row
    if row is None:
        raise ValueError(f"{source.name}: expected rows of data, found none")


def table_examples(rows: Rows, choose: Callable[[list[str]], Reader]) -> Iterator[Example | BadRow]:
    """Rows, read by the columns that the first good one has."""
    read: Reader | None = None
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
            continue
        read = read or choose(list(row.values))
        found = read(row)
        yield replace(found, where=row.where) if isinstance(found, Example) else found


def choose_reader(found: list[str], source: Source, gap: Gap | None) -> Reader:
    """How rows with these columns are read: as verbs and subjects, minimal pairs, or texts with labels or answers."""
    if found == [CASE]:
        return partial(read_case, gap=check_gap(gap, source))
    named = (source.text, source.pair, source.label)
    minimal = pair_columns(found) if named == (None, None, None) else None
    if minimal is not None:
        return partial(read_pair, columns=minimal, gap=check_gap(gap, source))
    return partial(read_row, columns=settle_columns(found, *named, source.name))


def check_gap(gap: Gap | None, source: Source) -> Gap:
    if gap is None:
        tasks = " and ".join(name for name, task in TASKS.items() if task.gap is not None)
        raise ValueError(f"{source.name} holds words to predict, for models of the tasks {tasks}")
    return gap


def first_example(source: Source, gap: Gap | None) -> Example | None:
    """An example of the data, to see what it holds; an empty source is an error here already."""
    some = islice(read_examples(source, gap), PREVIEW)
    return next((row for row in some if isinstance(row, Example)), None)
