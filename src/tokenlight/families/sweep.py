"""Many families, each in a process that may hang or die without harm to the others."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from tokenlight.families.one_family import check_family
from tokenlight.families.tiny_models import all_types
from tokenlight.foundation.blame import located
from tokenlight.foundation.registry import look_up
from tokenlight.results.model_check import ModelCheck

LIMIT = 120.0  # seconds for one model; most take two


def sweep(
    kinds: Sequence[str] = (), *, jobs: int = 1, limit: float = LIMIT, on_result: Callable[[ModelCheck], None] = print
) -> list[ModelCheck]:
    """Every model type with every head that tokenlight explains, or those of the given types."""
    known = all_types()
    wanted = [look_up(kind, {one: one for one in known}, "model type", known) for kind in kinds] or list(known)
    pairs = [(kind, task) for kind in wanted for task in known[kind]]
    workers: SimpleQueue[Worker] = SimpleQueue()
    made = [Worker(limit) for _ in range(min(jobs, len(pairs)))]
    for worker in made:
        workers.put(worker)

    def check(pair: tuple[str, str]) -> ModelCheck:
        worker = workers.get()
        try:
            return worker.check(*pair)
        finally:
            workers.put(worker)

    found: list[ModelCheck] = []
    try:
        for result in in_threads(check, pairs, len(made)):
            on_result(result)
            found.append(result)
    finally:
        for worker in made:
            worker.stop()
    return found


def in_threads(function: Callable[[Any], ModelCheck], items: Sequence[Any], threads: int) -> Iterator[ModelCheck]:
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, items)


@dataclass
class Worker:
    """A process that checks one family after another; a new one where the last has died or was too slow."""

    limit: float
    process: Any = None
    line: Any = field(default=None)

    def check(self, kind: str, task: str) -> ModelCheck:
        if self.process is None:
            self.start()
        try:
            self.line.send((kind, task))
            if self.line.poll(self.limit):
                return self.line.recv()
            problem = f"took more than {self.limit:.0f} s"
        except (EOFError, OSError):
            problem = "its process died"
        self.stop()
        return ModelCheck(kind, task, problem=f"does not run: {problem}")

    def start(self) -> None:
        context = get_context("spawn")
        self.line, other = context.Pipe()
        self.process = context.Process(target=work, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def work(line: Connection) -> None:
    """In the process: checks what is asked for until nobody asks any more."""
    import torch
    from transformers.utils.logging import set_verbosity_error

    torch.set_num_threads(1)
    set_verbosity_error()
    warnings.simplefilter("ignore")
    while True:
        try:
            kind, task = line.recv()
        except EOFError:
            return
        try:
            found = check_family(kind, task)
        except Exception as error:
            found = ModelCheck(kind, task, problem=f"the check itself failed: {located(error)}")
        line.send(found)
