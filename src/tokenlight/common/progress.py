"""Progress bars in terminals, notebooks and logs, and callbacks at every pass."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from tokenlight.common.console import SafeConsole

PASSES_PER_UPDATE = 10  # of a bar


def in_notebook() -> bool:
    """Whether IPython is loaded and runs a kernel; in a terminal its shell has none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show_html(html: str, replaceable: bool = False) -> Any:
    """Show HTML below the cell; a replaceable one is returned as a handle, whose `update` takes new HTML."""
    from IPython.display import HTML, display

    return display(HTML(html), display_id=True) if replaceable else display(HTML(html))


class NotebookBar:
    """A progress bar below the cell, removed at the end."""

    label: str
    total: int | None
    done: float
    passes: int
    handle: Any

    def __init__(self, label: str, total: int | None, done: float) -> None:
        self.label, self.total, self.done = label, total, done
        self.passes, self.handle = 0, None

    def advance(self, amount: float) -> None:
        self.done += amount
        if self.handle is not None:
            self.draw()

    def note_pass(self) -> None:
        self.passes += 1
        if self.handle is not None and self.passes % PASSES_PER_UPDATE == 0:
            self.draw()

    def start(self) -> None:
        self.handle = show_html(self.html(), replaceable=True)

    def draw(self) -> None:
        from IPython.display import HTML

        if self.handle is not None:
            self.handle.update(HTML(self.html()))

    def stop(self) -> None:
        from IPython.display import HTML

        if self.handle is not None:
            self.handle.update(HTML(""))

    def html(self) -> str:
        passes = f", {self.passes:,} passes" if self.passes else ""
        if self.total is None:
            return f"{self.label}: {self.done:,.0f}{passes}"
        bar = f'<progress value="{self.done:g}" max="{self.total}"></progress>'
        return f"{self.label} {bar} {self.done:,.0f} of {self.total:,}{passes}"


Item = TypeVar("Item")
DELAY = 2.0  # seconds before a bar appears
PassCallback = ContextVar[Callable[[], None] | None]
FORWARD: PassCallback = ContextVar("tokenlight_forward", default=None)
BACKWARD: PassCallback = ContextVar("tokenlight_backward", default=None)
STEP: PassCallback = ContextVar("tokenlight_step", default=None)


def track(items: Sequence[Item], label: str, sizes: Iterable[int] | None = None, show: bool = True) -> Iterator[Item]:
    """Yield the items with a progress bar; `sizes` are their weights in it, such as the texts of a batch."""
    weights = [1] * len(items) if sizes is None else list(sizes)
    with count_progress(label, sum(weights), show=show) as advance:
        for item, weight in zip(items, weights, strict=True):
            yield item
            advance(weight)


@contextmanager
def count_progress(
    label: str, total: int | None, done: int = 0, show: bool = True, at_once: bool = False
) -> Iterator[Callable[[float], None]]:
    """Show a progress bar; the yielded function takes each amount of finished work. `total` None: unknown.

    With `at_once` the bar is shown from the start and counts the model's passes, because a step may take minutes.
    """
    bar = make_bar(label, total, done) if show else None
    start_time, running = time.monotonic(), False

    def start_if_due() -> None:
        nonlocal running
        if bar is not None and not running and (at_once or time.monotonic() - start_time > DELAY):
            bar.start()
            running = True

    def advance(amount: float) -> None:
        if bar is not None:
            bar.advance(amount)
        start_if_due()

    try:
        if bar is not None and at_once:
            start_if_due()
            with on_forward_pass(bar.note_pass):
                yield advance
        else:
            yield advance
    finally:
        if bar is not None and running:
            bar.stop()


def make_bar(label: str, total: int | None, done: int) -> "TerminalBar | NotebookBar | None":
    """A bar for the notebook or terminal; None if the output is neither."""
    if in_notebook():
        return NotebookBar(label, total, done)
    console = SafeConsole(stderr=True)
    return TerminalBar(label, total, done, console) if console.is_terminal else None


class TerminalBar:
    """A progress bar in the terminal, removed at the end."""

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
        # A step may take a minute, so the remaining time is estimated over a longer period.
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


def on_forward_pass(call: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `call` before every forward pass of this thread, to count passes or to stop by raising."""
    return with_callback(FORWARD, call)


def on_backward_pass(call: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `call` before every backward pass: a target of several parts, such as an answer, has one for each part."""
    return with_callback(BACKWARD, call)


def on_step(call: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `call` before every step of other long computations, such as a maximum flow."""
    return with_callback(STEP, call)


@contextmanager
def with_callback(callback: PassCallback, call: Callable[[], None]) -> Iterator[None]:
    outer = callback.get()

    def call_all() -> None:
        if outer is not None:
            outer()
        call()

    token = callback.set(call_all)
    try:
        yield
    finally:
        callback.reset(token)


def report_forward_pass() -> None:
    """Call the callback of `on_forward_pass`, if there is one."""
    if (call := FORWARD.get()) is not None:
        call()


def report_backward_pass() -> None:
    if (call := BACKWARD.get()) is not None:
        call()


def report_step() -> None:
    if (call := STEP.get()) is not None:
        call()


LINE_INTERVAL = 60.0  # seconds
RATE_PERIOD = 1800.0  # seconds over which the rate is estimated


class Rate(ProgressColumn):
    """Column with the rate, such as '41.3 texts/s'."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} texts/s" if task.speed else "")


@contextmanager
def track_pace(total: int | None, done: int, show: bool) -> Iterator[Callable[[float], None]]:
    """Show the pace of a long run: a bar, or a line per minute in a log. The yielded function takes counts of texts."""
    if show and in_notebook():
        with count_progress("explaining", total, done) as advance:
            yield advance
        return
    console = SafeConsole(stderr=True)
    if not show or not console.is_terminal:
        yield line_printer(total, done) if show else lambda amount: None
        return
    columns = (TextColumn("explaining"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, speed_estimate_period=RATE_PERIOD) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda amount: bar.advance(task, amount)


def line_printer(total: int | None, done: int) -> Callable[[float], None]:
    start_time = last = time.monotonic()
    finished = 0.0

    def advance(amount: float) -> None:
        nonlocal last, finished
        finished += amount
        now = time.monotonic()
        if now - last >= LINE_INTERVAL:
            last = now
            print(
                format_progress(done + round(finished), total, finished / (now - start_time)),
                file=sys.stderr,
                flush=True,
            )

    return advance


def format_progress(done: int, total: int | None, rate: float) -> str:
    """Progress line, such as '1,000 of 20,000 texts, 41.3 texts/s, 7:40 left'."""
    if total is None:
        return f"{done:,} texts, {rate:.1f} texts/s"
    minutes, seconds = divmod(round((total - done) / max(rate, 1e-9)), 60)
    hours, minutes = divmod(minutes, 60)
    remaining = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    return f"{done:,} of {total:,} texts, {rate:.1f} texts/s, {remaining} left"
