"""Results of the same request are kept, the latest ones, up to so many bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


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

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of so many bytes; those that nobody asked for longest go. What is too large is not kept."""
        self._drop(key)
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
