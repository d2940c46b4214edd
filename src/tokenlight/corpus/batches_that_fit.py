"""Batches of a token budget; one that does not fit in memory is halved and tried again, down to a single text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tokenlight.foundation.blame import reason_to_skip
from tokenlight.foundation.torch_internals import is_out_of_memory
from tokenlight.runs.halving import by_halves
from tokenlight.text.batches import length_batches
from tokenlight.text.rows import TokenizedText

Found = TypeVar("Found")


@dataclass(frozen=True)
class Failure:
    """Why a text cannot be explained."""

    reason: str


def in_batches(
    tokenized_texts: Sequence[TokenizedText],
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
    for batch in length_batches([len(tokenized_text) for tokenized_text in tokenized_texts], tokens, exact):
        found |= zip(batch, attempt(batch, tokenized_texts, run, strict), strict=True)
        tell(batch)
    return [found[i] for i in range(len(tokenized_texts))]


def attempt(
    batch: list[int],
    tokenized_texts: Sequence[TokenizedText],
    run: Callable[[list[int]], Sequence[Found]],
    strict: bool = False,
) -> list[Found | Failure]:
    def failure(place: int, error: Exception, reason: str) -> Found | Failure:
        if is_out_of_memory(error):
            reason = f"its {len(tokenized_texts[place])} tokens do not fit in memory"
        return Failure(reason)

    return by_halves(batch, lambda places: run(list(places)), failure, strict)


def or_failure(make: Callable[[], Found | Failure], strict: bool) -> Found | Failure:
    """What is made of one row, or why it cannot be."""
    try:
        return make()
    except Exception as error:
        return Failure(reason_to_skip(error, strict))
