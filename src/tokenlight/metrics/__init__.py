"""The registry: a metric is a pure function with a decorator that says what it needs and which way is better."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tokenlight.foundation.registry import look_up
from tokenlight.metrics.perturbation import Perturbation

Needs = Literal["removed", "kept", "marks", "others"]
KINDS = {"removed": "perturbation", "kept": "perturbation", "marks": "evidence", "others": "agreement"}


@dataclass(frozen=True)
class Metric:
    """An entry of METRICS: the function and everything that is known about it."""

    name: str
    function: Callable[..., float]
    title: str  # what papers call it
    paper: str
    direction: Literal["higher", "lower"]  # which is better
    # What the function reads: the curve of probabilities while the top tokens are removed, or while they alone are
    # kept; marked tokens; the scores of another class, model or method.
    needs: Needs
    perturbation: Perturbation  # the default where a curve is needed
    weighted: bool  # texts count by their number of marked tokens in a mean

    @property
    def kind(self) -> str:
        return KINDS[self.needs]

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """The metric's own keywords and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


METRICS: dict[str, Metric] = {}
ALIASES: dict[str, str] = {}  # papers' names in lower case -> identifier


def metric(
    *,
    title: str,
    paper: str,
    direction: Literal["higher", "lower"],
    needs: Needs,
    perturbation: Perturbation | None = None,
    weighted: bool = False,
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Register a metric under its function's name."""

    def register(function: Callable[..., float]) -> Callable[..., float]:
        name = function.__name__
        METRICS[name] = Metric(name, function, title, paper, direction, needs, perturbation or Perturbation(), weighted)
        ALIASES.update({name: name, title.lower(): name})
        return function

    return register


def find_metric(name: str) -> Metric:
    """By identifier or by a paper's name, in any case; a wrong name lists the right ones."""
    return METRICS[look_up(name, ALIASES, "metric", METRICS)]


# Importing a kind registers its metrics.
from tokenlight.metrics import agreement as agreement  # noqa: E402
from tokenlight.metrics import curves as curves  # noqa: E402
from tokenlight.metrics import evidence as evidence  # noqa: E402
