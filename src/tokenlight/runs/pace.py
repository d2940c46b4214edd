"""How far a long run is, how fast it goes and how long it will take: a bar on a terminal, a line a minute in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from tokenlight.foundation.console import SafeConsole
from tokenlight.foundation.notebook import in_notebook
from tokenlight.foundation.progress import counting

LINE_EVERY = 60.0  # seconds
REMEMBERED = 1800.0  # seconds over which the rate is estimated


class Rate(ProgressColumn):
    """'41.3 texts/s'"""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} texts/s" if task.speed else "")


@contextmanager
def pacing(total: int | None, done: int, show: bool) -> Iterator[Callable[[float], None]]:
    """Call what is given with each number of texts that is done; `done` were there before."""
    if show and in_notebook():
        with counting("explaining", total, done) as advance:
            yield advance
        return
    console = SafeConsole(stderr=True)
    if not show or not console.is_terminal:
        yield line_printer(total, done) if show else lambda amount: None
        return
    columns = (TextColumn("explaining"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, speed_estimate_period=REMEMBERED) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda amount: bar.advance(task, amount)


def line_printer(total: int | None, done: int) -> Callable[[float], None]:
    began = last = time.monotonic()
    finished = 0.0

    def advance(amount: float) -> None:
        nonlocal last, finished
        finished += amount
        now = time.monotonic()
        if now - last >= LINE_EVERY:
            last = now
            print(describe(done + round(finished), total, finished / (now - began)), file=sys.stderr, flush=True)

    return advance


def describe(done: int, total: int | None, rate: float) -> str:
    """'1,000 of 20,000 texts, 41.3 texts/s, 7:40 left'"""
    if total is None:
        return f"{done:,} texts, {rate:.1f} texts/s"
    minutes, seconds = divmod(round((total - done) / max(rate, 1e-9)), 60)
    hours, minutes = divmod(minutes, 60)
    left = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    return f"{done:,} of {total:,} texts, {rate:.1f} texts/s, {left} left"
