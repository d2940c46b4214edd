"""Batches of a token budget; one that does not fit in memory is halved and tried again, down to a single text."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from tokenlight.foundation.errors import UnsupportedModelError
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
) -> list[Found | Failure]:
    """`run` on numbers of rows, similar lengths together, at most `tokens` at once with padding; in the rows' order.

    `tell` hears of every batch that is done.
    """
    found: dict[int, Found | Failure] = {}
    for batch in length_batches([len(row) for row in rows], tokens, exact):
        found |= zip(batch, attempt(batch, rows, run), strict=True)
        tell(batch)
    return [found[i] for i in range(len(rows))]


def attempt(
    batch: list[int], rows: Sequence[Row], run: Callable[[list[int]], Sequence[Found]]
) -> list[Found | Failure]:
    try:
        return list(run(batch))
    except UnsupportedModelError:  # no text is at fault
        raise
    except (ValueError, RuntimeError, MemoryError) as error:
        reason = blame(error, rows[batch[0]])
        if reason is None:
            raise
        if len(batch) == 1:
            return [Failure(reason)]
    # Only here is the failed attempt's memory free again: the error held it.
    free_memory()
    middle = len(batch) // 2
    return attempt(batch[:middle], rows, run) + attempt(batch[middle:], rows, run)


def blame(error: Exception, row: Row) -> str | None:
    """The reason if a text may be at fault; None where the program is."""
    if isinstance(error, ValueError):
        return str(error)
    if is_out_of_memory(error):
        return f"its {len(row)} tokens do not fit in memory"
    return None


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
