"""Data in parts of so many rows: what is done together, and lost together when the process is killed."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice

from tokenlight.data.examples import BadRow, Example, NumberedRow


@dataclass(frozen=True)
class Chunk:
    """Rows with their numbers in the data."""

    number: int  # of the part
    rows: tuple[NumberedRow, ...]


def in_chunks(
    read: Callable[[], Iterator[Example | BadRow]],
    size: int,
    done: Collection[int] = (),
    row_numbers: Callable[[], Iterable[int]] = count,
) -> Iterator[Chunk]:
    """All rows, `size` at a time, without the parts that are done; `row_numbers` says which rows of the data they are.

    A part is known by its place among the parts, so a run that goes on must read the same rows.
    """
    rows = zip(row_numbers(), read(), strict=False)
    for number in count():
        some = tuple(islice(rows, size))
        if not some:
            return
        if number not in done:
            yield Chunk(number, some)
