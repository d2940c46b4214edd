"""Results of benchmarks/peers.py, as a table for the terminal and as Markdown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

COLUMNS = ("library", "method", "texts/s", "from – to", "peak MB", "ours is", "agreement")


@dataclass(frozen=True)
class Result:
    """The result of a method of a library on a model, or an error."""

    model: str
    peer: str
    versions: dict[str, str] = field(default_factory=dict)
    method: str = ""
    reason: str | None = None
    texts: int = 0
    per_second: float = 0.0
    slowest: float = 0.0
    fastest: float = 0.0
    peak: int = 0  # bytes above the loaded model
    beside: str = ""  # the method of ours that its speed is compared with
    times_as_fast: float | None = None  # ours
    agreement: float | None = None  # None: we have no such method

    def cells(self) -> list[str]:
        if self.reason:
            return [self.peer, self.method, "–", "", "", "", self.reason]
        speed = "" if self.times_as_fast is None else f"{self.times_as_fast:.2f} × as fast"
        other = "" if self.beside == self.method or not speed else f" ({self.beside})"
        return [
            self.peer,
            self.method,
            f"{self.per_second:.3g}",
            f"{self.slowest:.3g} – {self.fastest:.3g}",
            f"{self.peak / 1e6:.0f}",
            speed + other,
            "" if self.agreement is None else f"{self.agreement:.5f}",
        ]


def pearson(first: Sequence[float], second: Sequence[float]) -> float:
    if len(first) != len(second):
        raise ValueError(f"the same text has {len(first)} tokens here and {len(second)} there")
    return statistics.correlation(first, second)


def agreement(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Pearson over the tokens of a text, mean over texts."""
    return statistics.fmean(pearson(a, b) for a, b in zip(ours, theirs, strict=True))


def show(results: Sequence[Result]) -> None:
    console = Console(width=160)
    for model in dict.fromkeys(result.model for result in results):
        some = [result for result in results if result.model == model]
        table = Table(*COLUMNS, title=model)
        for result in some:
            table.add_row(*result.cells())
        console.print(table)
    for model in dict.fromkeys(result.model for result in results):
        print(f"\n**{model}**\n")
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for result in results:
            if result.model == model:
                print(f"| {' | '.join(result.cells())} |")
    versions = {name: value for result in results for name, value in sorted(result.versions.items())}
    print("\n" + ", ".join(f"{name} {value}" for name, value in versions.items()))
