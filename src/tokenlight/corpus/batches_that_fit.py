"""Batches of a token budget; one that does not fit in memory is halved and tried again, down to a single text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tokenlight.foundation.blame import reason_to_skip
from tokenlight.foundation.torch_internals import is_out_of_memory
from tokenlight.runs.halving import by_halves
from tokenlight.text.batches import length_batches
from tokenlight.text.rows import Row

Found = TypeVar("Found")


@dataclass(frozen=True)
class Failure:
    """Why a text cannot be explained."""

    reason: str


def in_batches(
    rows: Sequence[Row],
    tokens: int,
    exact: bool,
    run: Callable[[list[int]], Sequence[Found]],
    tell: Callable[[list[int]], None] = lambda done: None,
    strict: bool = False,
) -> list[Found | Failure]:
    """`run` on numbers of rows, similar lengths together, at most `tokens` at once with padding; in the rows' order.

    `tell` hears of every batch that is done. With `strict`, unforeseen errors are raised.
    """
    found: dict[int, Found | Failure] = {}
    for batch in length_batches([len(row) for row in rows], tokens, exact):
        found |= zip(batch, attempt(batch, rows, run, strict), strict=True)
        tell(batch)
    return [found[i] for i in range(len(rows))]


def attempt(
    batch: list[int], rows: Sequence[Row], run: Callable[[list[int]], Sequence[Found]], strict: bool = False
) -> list[Found | Failure]:
    def failure(place: int, error: Exception, reason: str) -> Found | Failure:
        if is_out_of_memory(error):
            reason = f"its {len(rows[place])} tokens do not fit in memory"
        return Failure(reason)

    return by_halves(batch, lambda places: run(list(places)), failure, strict)


def or_failure(make: Callable[[], Found | Failure], strict: bool) -> Found | Failure:
    """What is made of one row, or why it cannot be."""
    try:
        return make()
    except Exception as error:
        return Failure(reason_to_skip(error, strict))
