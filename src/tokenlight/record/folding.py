"""Methods that read a pass block by block, from the last to the first, and keep no more than a row or a sum of it.

Such a method is a generator. Each `yield` hands it the next block, one for each pass that it reads, and after the first
block of the model nothing:

    row = trace.first_row()
    while block := (yield):
        row = row + row @ block.attention.value.mean(1)
    return row[:, 0]

Where memory is short, blocks come one at a time and are forgotten; a method that returns early spares the rest.
"""

from collections.abc import Generator, Sequence
from typing import Any, Generic, TypeVar

from tokenlight.record.trace import Block

Result = TypeVar("Result")
Fold = Generator[None, Block, Result]  # of a method with one pass; the last thing that it gets is None
PairFold = Generator[None, tuple[Block, Block], Result]  # with two


class Folding(Generic[Result]):
    """A method under way."""

    result: Result
    done: bool = False

    def __init__(self, method: Generator[None, Any, Result]):
        self._method = method
        self._send(None)  # up to the first block

    def feed(self, blocks: Sequence[Block]) -> None:
        """The same block of every pass that the method reads."""
        if not self.done:
            self._send(blocks[0] if len(blocks) == 1 else tuple(blocks))

    def finish(self) -> Result:
        """When there are no more blocks."""
        if not self.done:
            self._send(None)
        if not self.done:
            raise RuntimeError("the method asks for another block after the first of the model, where it got nothing")
        return self.result

    def _send(self, blocks: Any) -> None:
        try:
            self._method.send(blocks)
        except StopIteration as end:
            self.result, self.done = end.value, True
