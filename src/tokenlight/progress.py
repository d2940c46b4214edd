"""A progress bar that only appears when something takes longer than two seconds."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
PATIENCE = 2.0  # seconds


def track(items: Sequence[Item], label: str, sizes: Iterable[int] | None = None, show: bool = True) -> Iterator[Item]:
    """Yield the items; `sizes` says how much each counts (texts in a batch)."""
    weights = [1] * len(items) if sizes is None else list(sizes)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal))
    task = bar.add_task(label, total=sum(weights))
    began, running = time.monotonic(), False
    try:
        for item, weight in zip(items, weights, strict=True):
            yield item
            bar.advance(task, weight)
            if not running and time.monotonic() - began > PATIENCE:
                bar.start()
                running = True
    finally:
        if running:
            bar.stop()
