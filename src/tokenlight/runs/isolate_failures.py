"""Processes items together; after an error, splits them in halves until the items that fail are isolated."""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from tokenlight._compat.torch_internals import is_out_of_memory
from tokenlight.common.error_location import reason_to_skip

Item = TypeVar("Item")
Result = TypeVar("Result")


def isolate_failures(
    items: Sequence[Item],
    process: Callable[[Sequence[Item]], Sequence[Result]],
    set_aside: Callable[[Item, Exception, str], Result],
    strict: bool = False,
) -> list[Result]:
    """The results of `process` for all items; if it fails, of each half, down to single items, which are set aside.

    `set_aside` gets the item, the error and the reason as text. Errors that are not caused by an item are raised; with
    `strict`, unforeseen errors are raised as well.
    """
    try:
        return list(process(items))
    except Exception as error:
        reason = reason_to_skip(error, strict)
        if len(items) == 1:
            return [set_aside(items[0], error, reason)]
        ran_out_of_memory = is_out_of_memory(error)
    if ran_out_of_memory:  # only after the except block: the error keeps the tensors of the failed attempt alive
        free_memory()
    middle = len(items) // 2
    return [
        result
        for half in (items[:middle], items[middle:])
        for result in isolate_failures(half, process, set_aside, strict)
    ]


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
