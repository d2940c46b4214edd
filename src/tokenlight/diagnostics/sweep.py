"""The sweep over families: every method on a tiny model of each, in processes of their own."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.error_location import describe_error, message_line
from tokenlight.common.registry import look_up
from tokenlight.diagnostics.checks import check_model, try_method
from tokenlight.diagnostics.reference_model import PlainModel
from tokenlight.diagnostics.tiny_models import IDS, VOCABULARY, NotBuilt, all_types, is_text, tiny_model
from tokenlight.results.model_report import ModelCheck
from tokenlight.text.batch import Batch

LENGTHS = (12, 9)
FIRST_WORD = 5  # ids below mean something special


def check_family(kind: str, task: str) -> ModelCheck:
    """In double precision, where rounding hides nothing; and in single precision, in which people have their models."""
    return replace(checked(kind, task), kind=kind, task=task, text=is_text(kind))


def checked(kind: str, task: str) -> ModelCheck:
    rows = texts()
    try:
        single = tiny_model(kind, task)
    except Exception as error:
        return ModelCheck(kind, problem=f"not built: {reason(error)}")
    try:
        run(single, rows[0])
    except Exception as error:
        return ModelCheck(kind, problem=f"does not run on token ids alone: {reason(error)}")
    double = tiny_model(kind, task).double()
    try:
        run(double, rows[0])
    except Exception:
        return check_model(single, rows)
    found = check_model(double, rows)
    outcomes = tuple(one.or_worse(try_method(single, rows, one.method)) for one in found.outcomes)
    return replace(found, outcomes=outcomes)


def texts() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    words = [torch.randint(FIRST_WORD, VOCABULARY - 1, (length,), generator=generator) for length in LENGTHS]
    for row in words:
        row[-1] = IDS["eos_token_id"]  # some heads read there
    return tuple(words)


def run(model: PreTrainedModel, row: Tensor) -> None:
    """Its own answer, which must be finite and depend on what it reads."""
    plain = PlainModel.of(model)
    answers = [plain.answers(Batch(ids[None], torch.ones_like(ids[None]))) for ids in (row, row.roll(1))]
    if not answers[0]:
        raise NotBuilt("its output has no logits")
    for name, logits in answers[0].items():
        if not torch.isfinite(logits).all():
            raise NotBuilt(f"its {name} are not finite")
        if torch.equal(logits, answers[1][name]):
            raise NotBuilt(f"its {name} do not depend on the tokens")


def reason(error: Exception) -> str:
    return message_line(error) if isinstance(error, NotBuilt | ImportError) else describe_error(error)


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
            found = ModelCheck(kind, task, problem=f"the check itself failed: {describe_error(error)}")
        line.send(found)
