"""Private interfaces of Ray."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from ray.data import DataContext, ReadTask
from ray.data.block import BlockMetadata


def reading_task(read: Callable[[], Iterable[Any]]) -> ReadTask:
    """A task of Ray Data that reads blocks of unknown size."""
    return ReadTask(read, BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None))


def under(settings: DataContext) -> AbstractContextManager[None]:
    """Set these as Ray Data's settings inside the context."""
    return DataContext.current(settings)
