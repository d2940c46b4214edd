"""Runs several records at once; after an error, halves, to isolate the record at fault."""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from tokenlight._compat.torch_internals import is_out_of_memory
from tokenlight.common.error_location import reason_to_skip

Item = TypeVar("Item")
Found = TypeVar("Found")


def by_halves(
    items: Sequence[Item],
    do: Callable[[Sequence[Item]], Sequence[Found]],
    set_aside: Callable[[Item, Exception, str], Found],
    strict: bool = False,
) -> list[Found]:
    """What `do` makes of all items; where it fails, of each half, down to a single item, which is set aside.

    `set_aside` gets the item, the error and the reason in words. An error that no row is to blame for is raised; with
    `strict`, an unforeseen one as well.
    """
    try:
        return list(do(items))
    except Exception as error:
        reason = reason_to_skip(error, strict)
        if len(items) == 1:
            return [set_aside(items[0], error, reason)]
        full = is_out_of_memory(error)
    if full:  # only here, behind the error, which held what the failed attempt had allocated
        free_memory()
    middle = len(items) // 2
    return [found for half in (items[:middle], items[middle:]) for found in by_halves(half, do, set_aside, strict)]


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
