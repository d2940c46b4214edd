"""A progress bar that only appears when something takes longer than two seconds; bells at every pass."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
PATIENCE = 2.0  # seconds
Bell = ContextVar[Callable[[], None] | None]
FORWARD: Bell = ContextVar("tokenlight_forward", default=None)
BACKWARD: Bell = ContextVar("tokenlight_backward", default=None)


def track(items: Sequence[Item], label: str, sizes: Iterable[int] | None = None, show: bool = True) -> Iterator[Item]:
    """Yield the items; `sizes` says how much each counts (texts in a batch)."""
    weights = [1] * len(items) if sizes is None else list(sizes)
    with counting(label, sum(weights), show=show) as advance:
        for item, weight in zip(items, weights, strict=True):
            yield item
            advance(weight)


@contextmanager
def counting(label: str, total: int | None, done: int = 0, show: bool = True) -> Iterator[Callable[[float], None]]:
    """Call what is given with each amount that is done; `total` is None where nobody knows it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = show and console.is_terminal
    # Steps may take a minute each: the time left is estimated over more than one of them.
    bar = Progress(*columns, console=console, transient=True, disable=not shown, speed_estimate_period=600)
    task = bar.add_task(label, total=total, completed=done)
    began, running = time.monotonic(), False

    def advance(amount: float) -> None:
        nonlocal running
        bar.advance(task, amount)
        if not running and time.monotonic() - began > PATIENCE:
            bar.start()
            running = True

    try:
        yield advance
    finally:
        if running:
            bar.stop()


def at_each_pass(call: Callable[[], None]) -> AbstractContextManager[None]:
    """Inside, `call` is called before every forward pass of this thread: to count them, or to stop them by raising."""
    return hung(FORWARD, call)


def at_each_part(call: Callable[[], None]) -> AbstractContextManager[None]:
    """The same before every backward pass: a target of many parts, such as an answer, has one for each."""
    return hung(BACKWARD, call)


@contextmanager
def hung(bell: Bell, call: Callable[[], None]) -> Iterator[None]:
    outer = bell.get()

    def ring() -> None:
        if outer is not None:
            outer()
        call()

    token = bell.set(ring)
    try:
        yield
    finally:
        bell.reset(token)


def pass_begins() -> None:
    """Tell whoever listens."""
    if (call := FORWARD.get()) is not None:
        call()


def part_begins() -> None:
    if (call := BACKWARD.get()) is not None:
        call()
