"""Runs chunks one after another in this process, or several at once by Ray."""

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
Parts = Callable[[], Iterator[Chunk]]  # a function, since they may be read in another process
Tell = Callable[[float], None]  # hears how many rows are done


class Procedure(Protocol[Result_co]):
    """What is done to every part, the same wherever it runs; Ray's workers get a copy each."""

    @property
    def explainers(self) -> Sequence[Explainer]: ...

    def do(self, part: Chunk, tell: Tell, /) -> Result_co: ...


class Place(Protocol):
    """Where parts are done."""

    @property
    def device(self) -> str: ...

    @property
    def threads(self) -> int: ...

    def run(self, procedure: Procedure[Result], parts: Parts, tell: Tell, ordered: bool = True) -> Iterator[Result]:
        """What is made of every part, in the parts' order or as it gets done."""
        ...


@dataclass(frozen=True)
class ThisProcess:
    """One part after another."""

    device: str
    threads: int

    def run(self, procedure: Procedure[Result], parts: Parts, tell: Tell, ordered: bool = True) -> Iterator[Result]:
        for part in parts():
            with torch_threads(self.threads):
                found = procedure.do(part, tell)
            yield found


@contextmanager
def open_place(workers: Workers, explainer: Explainer) -> Iterator[Place]:
    """Where the workers are; Ray that is started for it ends with it."""
    if workers.engine == "ray":
        from tokenlight.runs.ray_workers import find_workers, running_ray

        with running_ray():
            yield find_workers(workers)
        return
    yield ThisProcess(explainer.model.device.type, workers.threads or torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
