"""A seeded random sample of a data set, without replacement and in data order."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

from tokenlight.common.errors import RefusedValue

Item = TypeVar("Item")


def draw_numbers(total: int, size: int, seed: int) -> tuple[int, ...]:
    """`size` different numbers below `total` (all of them if there are fewer), in ascending order."""
    generator = Random(seed if seed >= 0 else str(seed))  # Random ignores the sign of integers: -1 would be 1
    return tuple(sorted(generator.sample(range(total), min(size, total))))


def select_items(items: Iterable[Item], numbers: Sequence[int], name: str) -> Iterator[Item]:
    """The items with these ascending numbers, counted from 0; nothing is read after the last of them."""
    remaining = iter(numbers)
    number = next(remaining, None)
    if number is None:
        return
    for i, item in enumerate(items):
        if i == number:
            yield item
            number = next(remaining, None)
            if number is None:
                return
    raise RefusedValue(f"{name} ended before its row {number + 1}, which is in the sample: was it changed meanwhile?")
