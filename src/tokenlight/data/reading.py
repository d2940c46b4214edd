"""Evaluation data from files and datasets of many kinds as examples. A bad row is handed on with its reason."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from tokenlight.data.columns import read_row, settle_columns
from tokenlight.data.examples import MASK_MARK, BadRow, Example, TableRow, fill_mask
from tokenlight.data.minimal_pairs import pair_columns, read_pair
from tokenlight.data.row_readers import READERS, Rows, guess_kind, hub_rows
from tokenlight.data.subject_verb import AgreementCase, agreement_examples, lgd_cases, treebank_cases
from tokenlight.tasks import TASKS
from tokenlight.tasks.task import Gap

__all__ = ["MASK_MARK", "BadRow", "Example", "fill_mask", "read_examples"]

Reader = Callable[[TableRow], Example | BadRow]
AGREEMENT: dict[str, Callable[[Path], Iterator[AgreementCase | BadRow]]] = {"conllu": treebank_cases, "lgd": lgd_cases}


def read_examples(
    source: str | Path,
    *,
    text: str | None = None,
    pair: tuple[str, str] | None = None,
    label: str | None = None,
    kind: str | None = None,
    split: str | None = None,
    gap: Gap | None = "end",
    limit: int | None = None,
) -> Iterator[Example | BadRow]:
    """Examples and bad rows of a file or of "hf:NAME[:config]" in their order, at most `limit` rows.

    `text`, `pair` and `label` name columns where the common names do not fit; `kind` is the kind of file where its
    name does not say it; `split` belongs to Hugging Face datasets. Data for language models becomes prefixes, or
    with gap="inside" texts with MASK_MARK; gap=None is for models that answer with no word.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is a positive number of rows, found {limit}")
    if pair is not None and len(pair) != 2:
        raise ValueError(f"a pair has two columns, found {pair!r}")
    choose = partial(choose_reader, source=source, text=text, pair=pair, label=label, gap=gap)
    if str(source).startswith("hf:"):
        return islice(table_examples(hub_rows(str(source), split), source, choose), limit)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; a Hugging Face dataset is written hf:NAME")
    if split is not None:
        raise ValueError(f"{path} is a file and has no split {split!r}: leave it out")
    kind = kind or guess_kind(path)
    if kind in AGREEMENT:
        cases = AGREEMENT[kind](path)
        return islice(agreement_examples(cases, check_gap(gap, source)), limit)
    if kind not in READERS:
        raise ValueError(f"there is no kind of data {kind!r}; kinds: {', '.join([*READERS, *AGREEMENT])}")
    return islice(table_examples(READERS[kind](path), source, choose), limit)


def table_examples(rows: Rows, source: object, choose: Callable[[list[str]], Reader]) -> Iterator[Example | BadRow]:
    """Rows, read by the columns that the first good one has."""
    read: Reader | None = None
    row = None
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        read = read or choose(list(row.values))
        yield read(row)
    if row is None:
        raise ValueError(f"{source}: expected rows of data, found none")


def choose_reader(
    found: list[str], source: object, text: str | None, pair: tuple[str, str] | None, label: str | None, gap: Gap | None
) -> Reader:
    """How rows with these columns are read: as minimal pairs, or as texts with labels or answers."""
    minimal = pair_columns(found) if (text, pair, label) == (None, None, None) else None
    if minimal is not None:
        return partial(read_pair, columns=minimal, gap=check_gap(gap, source))
    return partial(read_row, columns=settle_columns(found, text, pair, label, str(source)))


def check_gap(gap: Gap | None, source: object) -> Gap:
    if gap is None:
        tasks = " and ".join(name for name, task in TASKS.items() if task.gap is not None)
        raise ValueError(f"{source} holds words to predict, for models of the tasks {tasks}")
    return gap
