"""Engines process the chunks of a data set: one after another in this process, or several at once under Ray."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from tokenlight.data.examples import Chunk
from tokenlight.explain.explainer import Explainer
from tokenlight.runs.workers import Workers

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
ReadChunks = Callable[[], Iterator[Chunk]]  # a function, since another process may read the chunks
Advance = Callable[[float], None]  # is called with a number of rows when they are done


class ChunkTask(Protocol[Result_co]):
    """The work on each chunk, the same in every engine; each worker of Ray gets a copy."""

    @property
    def explainers(self) -> Sequence[Explainer]: ...

    def process(self, chunk: Chunk, advance: Advance, /) -> Result_co: ...


class Engine(Protocol):
    """Processes chunks on a device with a number of torch threads."""

    @property
    def device(self) -> str: ...

    @property
    def threads(self) -> int: ...

    def run(
        self, task: ChunkTask[Result], read_chunks: ReadChunks, advance: Advance, ordered: bool = True
    ) -> Iterator[Result]:
        """The result for each chunk, in the order of the chunks, or of completion if not `ordered`."""
        ...


@dataclass(frozen=True)
class LocalEngine:
    """Processes one chunk after another in this process."""

    device: str
    threads: int

    def run(
        self, task: ChunkTask[Result], read_chunks: ReadChunks, advance: Advance, ordered: bool = True
    ) -> Iterator[Result]:
        for chunk in read_chunks():
            with torch_threads(self.threads):
                result = task.process(chunk, advance)
            yield result


@contextmanager
def open_engine(workers: Workers, explainer: Explainer) -> Iterator[Engine]:
    """The engine that `workers` names. If Ray is started for it, Ray is shut down at the end."""
    if workers.engine == "ray":
        from tokenlight.runs.ray_workers import choose_ray_engine, running_ray

        with running_ray():
            yield choose_ray_engine(workers)
        return
    yield LocalEngine(explainer.model.device.type, workers.threads or torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch threads inside the context, and restore it afterwards."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
