"""A progress bar that only appears when something takes longer than two seconds; bells at every pass."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tokenlight.foundation.console import SafeConsole
from tokenlight.foundation.notebook import NotebookBar, in_notebook

Item = TypeVar("Item")
PATIENCE = 2.0  # seconds
PassCallback = ContextVar[Callable[[], None] | None]
FORWARD: PassCallback = ContextVar("tokenlight_forward", default=None)
BACKWARD: PassCallback = ContextVar("tokenlight_backward", default=None)
STEP: PassCallback = ContextVar("tokenlight_step", default=None)


def track(items: Sequence[Item], label: str, sizes: Iterable[int] | None = None, show: bool = True) -> Iterator[Item]:
    """Yield the items; `sizes` says how much each counts (texts in a batch)."""
    weights = [1] * len(items) if sizes is None else list(sizes)
    with counting(label, sum(weights), show=show) as advance:
        for item, weight in zip(items, weights, strict=True):
            yield item
            advance(weight)


@contextmanager
def counting(
    label: str, total: int | None, done: int = 0, show: bool = True, at_once: bool = False
) -> Iterator[Callable[[float], None]]:
    """Call what is given with each amount that is done; `total` is None where nobody knows it.

    With `at_once` the bar is there from the start and counts the model's passes, since an amount may take minutes.
    """
    bar = find_bar(label, total, done) if show else None
    began, running = time.monotonic(), False

    def look_at_clock() -> None:
        nonlocal running
        if bar is not None and not running and (at_once or time.monotonic() - began > PATIENCE):
            bar.start()
            running = True

    def advance(amount: float) -> None:
        if bar is not None:
            bar.advance(amount)
        look_at_clock()

    try:
        if bar is not None and at_once:
            look_at_clock()
            with at_each_pass(bar.note_pass):
                yield advance
        else:
            yield advance
    finally:
        if bar is not None and running:
            bar.stop()


def find_bar(label: str, total: int | None, done: int) -> "TerminalBar | NotebookBar | None":
    """The one that suits the place; where nobody looks there is none."""
    if in_notebook():
        return NotebookBar(label, total, done)
    console = SafeConsole(stderr=True)
    return TerminalBar(label, total, done, console) if console.is_terminal else None


class TerminalBar:
    """Gone when the work is done."""

    bar: Progress
    task: TaskID
    passes: int

    def __init__(self, label: str, total: int | None, done: int, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[passes]}"),
            TimeRemainingColumn(),
        )
        # Steps may take a minute each: the time left is estimated over more than one of them.
        self.bar = Progress(*columns, console=console, transient=True, speed_estimate_period=600)
        self.task = self.bar.add_task(label, total=total, completed=done, passes="")
        self.passes = 0

    def advance(self, amount: float) -> None:
        self.bar.advance(self.task, amount)

    def note_pass(self) -> None:
        self.passes += 1
        self.bar.update(self.task, passes=f"{self.passes:,} passes")

    def start(self) -> None:
        self.bar.start()

    def stop(self) -> None:
        self.bar.stop()


def at_each_pass(call: Callable[[], None]) -> AbstractContextManager[None]:
    """Inside, `call` is called before every forward pass of this thread: to count them, or to stop them by raising."""
    return with_callback(FORWARD, call)


def at_each_part(call: Callable[[], None]) -> AbstractContextManager[None]:
    """The same before every backward pass: a target of many parts, such as an answer, has one for each."""
    return with_callback(BACKWARD, call)


def at_each_step(call: Callable[[], None]) -> AbstractContextManager[None]:
    """The same before every step of a computation beside the model's passes, such as one maximum flow."""
    return with_callback(STEP, call)


@contextmanager
def with_callback(callback: PassCallback, call: Callable[[], None]) -> Iterator[None]:
    outer = callback.get()

    def ring() -> None:
        if outer is not None:
            outer()
        call()

    token = callback.set(ring)
    try:
        yield
    finally:
        callback.reset(token)


def pass_begins() -> None:
    """Tell whoever listens."""
    if (call := FORWARD.get()) is not None:
        call()


def part_begins() -> None:
    if (call := BACKWARD.get()) is not None:
        call()


def step_begins() -> None:
    if (call := STEP.get()) is not None:
        call()
