"""Results of the same request are kept, the latest ones, up to so many bytes."""

import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from tokenlight.explain.explainer import Explainer
from tokenlight.tasks.task import Task

# What results refer to and what is there in any case: the model and its tokenizer, code, and what Python makes once.
CODE = (type, Enum, FunctionType, BuiltinFunctionType, ModuleType)
SHARED = (Explainer, nn.Module, PreTrainedTokenizerBase, Task, *CODE)
POINTER = 8  # bytes
SMALL_NUMBERS = range(-5, 257)


def size_of(value: Any) -> int:
    """Bytes in memory of a value and all that it holds, each object counted once."""
    waiting, known, size = [value], set[int](), 0
    while waiting:
        found = waiting.pop()
        if id(found) in known or is_shared(found):
            continue
        known.add(id(found))
        size += sys.getsizeof(found) + (POINTER * len(fields(found)) if is_dataclass(found) else 0)
        if isinstance(found, Tensor):
            storage = found.untyped_storage()
            if storage.data_ptr() not in known:  # a view keeps all of it
                known.add(storage.data_ptr())
                size += storage.nbytes()
        elif isinstance(found, numpy.ndarray):
            size += 0 if found.base is None else found.nbytes  # what it owns is in its own size
        else:
            waiting += members(found)
    return size


def is_shared(value: Any) -> bool:
    return value is None or isinstance(value, SHARED) or (isinstance(value, int) and value in SMALL_NUMBERS)


def members(value: Any) -> Iterable[Any]:
    """The objects that one refers to."""
    if isinstance(value, str | bytes | int | float | complex):
        return
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    if is_dataclass(value):  # by its fields: asking for its __dict__ would make one
        yield from (getattr(value, one.name) for one in fields(value))
        return
    if hasattr(value, "__dict__"):
        yield vars(value)
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield getattr(value, name)


@dataclass
class Cache:
    """Read and written by the one thread that computes."""

    limit: int = 64 * 2**20  # bytes
    size: int = 0
    _kept: OrderedDict[Hashable, tuple[Any, int]] = field(default_factory=OrderedDict)

    def get(self, key: Hashable) -> Any:
        """What was kept, or None."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Hashable, value: Any) -> None:
        """Keep a value; those that nobody asked for longest go. What is too large is not kept."""
        self._drop(key)
        size = size_of((key, value))
        if size > self.limit:
            return
        self._kept[key] = (value, size)
        self.size += size
        while self.size > self.limit:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        self._kept.clear()
        self.size = 0

    def _drop(self, key: Hashable) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self.size -= size

    def __len__(self) -> int:
        return len(self._kept)
