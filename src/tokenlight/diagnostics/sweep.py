"""The sweep over families: checks of methods on a tiny model of each, in separate processes."""

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
FIRST_WORD = 5  # ids below are special tokens


def check_family(kind: str, task: str) -> ModelCheck:
    """Check a family in double precision, where rounding hides no error, and in single precision, which is common."""
    return replace(check_family_in_double(kind, task), kind=kind, task=task, text=is_text(kind))


def check_family_in_double(kind: str, task: str) -> ModelCheck:
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
    check = check_model(double, rows)
    outcomes = tuple(outcome.or_worse(try_method(single, rows, outcome.method)) for outcome in check.outcomes)
    return replace(check, outcomes=outcomes)


def texts() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    words = [torch.randint(FIRST_WORD, VOCABULARY - 1, (length,), generator=generator) for length in LENGTHS]
    for ids in words:
        ids[-1] = IDS["eos_token_id"]  # some heads read this token
    return tuple(words)


def run(model: PreTrainedModel, row: Tensor) -> None:
    """Run a model; refuse outputs that are not finite or do not depend on the tokens."""
    plain = PlainModel.of(model)
    answers = [plain.logits(Batch(ids[None], torch.ones_like(ids[None]))) for ids in (row, row.roll(1))]
    if not answers[0]:
        raise NotBuilt("its output has no logits")
    for name, logits in answers[0].items():
        if not torch.isfinite(logits).all():
            raise NotBuilt(f"its {name} are not finite")
        if torch.equal(logits, answers[1][name]):
            raise NotBuilt(f"its {name} do not depend on the tokens")


def reason(error: Exception) -> str:
    return message_line(error) if isinstance(error, NotBuilt | ImportError) else describe_error(error)


LIMIT = 120.0  # seconds for a model; most need two


def sweep(
    kinds: Sequence[str] = (), *, jobs: int = 1, limit: float = LIMIT, on_result: Callable[[ModelCheck], None] = print
) -> list[ModelCheck]:
    """Check every model type, or the given ones, with every task that tokenlight supports."""
    known = all_types()
    selected = [look_up(kind, {name: name for name in known}, "model type", known) for kind in kinds] or list(known)
    pairs = [(kind, task) for kind in selected for task in known[kind]]
    workers: SimpleQueue[Worker] = SimpleQueue()
    all_workers = [Worker(limit) for _ in range(min(jobs, len(pairs)))]
    for worker in all_workers:
        workers.put(worker)

    def check(pair: tuple[str, str]) -> ModelCheck:
        worker = workers.get()
        try:
            return worker.check(*pair)
        finally:
            workers.put(worker)

    results: list[ModelCheck] = []
    try:
        for result in in_threads(check, pairs, len(all_workers)):
            on_result(result)
            results.append(result)
    finally:
        for worker in all_workers:
            worker.stop()
    return results


def in_threads(function: Callable[[Any], ModelCheck], items: Sequence[Any], threads: int) -> Iterator[ModelCheck]:
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, items)


@dataclass
class Worker:
    """A process that checks families one by one; it is replaced if it dies or takes too long."""

    limit: float
    process: Any = None
    connection: Any = field(default=None)

    def check(self, kind: str, task: str) -> ModelCheck:
        if self.process is None:
            self.start()
        try:
            self.connection.send((kind, task))
            if self.connection.poll(self.limit):
                return self.connection.recv()
            problem = f"took more than {self.limit:.0f} s"
        except (EOFError, OSError):
            problem = "its process died"
        self.stop()
        return ModelCheck(kind, task, problem=f"does not run: {problem}")

    def start(self) -> None:
        context = get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.process = context.Process(target=work, args=(child_connection,), daemon=True)
        self.process.start()
        child_connection.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def work(connection: Connection) -> None:
    """Run in the process: check families until the connection is closed."""
    import torch
    from transformers.utils.logging import set_verbosity_error

    torch.set_num_threads(1)
    set_verbosity_error()
    warnings.simplefilter("ignore")
    while True:
        try:
            kind, task = connection.recv()
        except EOFError:
            return
        try:
            result = check_family(kind, task)
        except Exception as error:
            result = ModelCheck(kind, task, problem=f"the check itself failed: {describe_error(error)}")
        connection.send(result)
