"""Objects that tests send to Ray's workers; the module imports little, because every worker imports it."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class KillsOneWorker:
    """A hook of a model that kills one worker process, after the first results were written."""

    results: Path
    killed: Path  # a file, created when the worker is killed

    def __call__(self, *_: Any) -> None:
        if not any(self.results.glob("part-*")):
            return
        try:
            self.killed.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class FailsAtSecondChunk:
    """A task that needs no model and fails at the second chunk."""

    explainers: tuple[Any, ...] = ()

    def process(self, chunk: Any, advance: Any) -> int:
        if chunk.number == 1:
            raise OSError("the disk is full")
        return chunk.number
