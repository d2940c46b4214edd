"""Batches of a token budget; one that does not fit in memory is halved and tried again, down to a single text."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from tokenlight.foundation.blame import reason_to_skip
from tokenlight.foundation.torch_internals import is_out_of_memory
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
    try:
        return list(run(batch))
    except Exception as error:
        reason = reason_to_skip(error, strict)
        if len(batch) == 1:
            short = is_out_of_memory(error)
            return [Failure(f"its {len(rows[batch[0]])} tokens do not fit in memory" if short else reason)]
    # Only here is the failed attempt's memory free again: the error held it.
    free_memory()
    middle = len(batch) // 2
    return attempt(batch[:middle], rows, run, strict) + attempt(batch[middle:], rows, run, strict)


def or_failure(make: Callable[[], Found | Failure], strict: bool) -> Found | Failure:
    """What is made of one row, or why it cannot be."""
    try:
        return make()
    except Exception as error:
        return Failure(reason_to_skip(error, strict))


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
