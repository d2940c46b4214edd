"""The registry: a metric is a pure function with a decorator that says what it needs and which way is better."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isinf
from typing import Any, Literal

from torch import Tensor

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.registry import look_up
from tokenlight.metrics.perturbation import Grid, Perturbation

Needs = Literal["removed", "kept", "ablated", "marks", "others"]
Compares = Literal["classes", "models"]
KINDS = {
    "removed": "perturbation",
    "kept": "perturbation",
    "ablated": "perturbation",
    "marks": "evidence",
    "others": "agreement",
}


@dataclass(frozen=True)
class Points:
    """What a metric averages over the points of a curve, as a chart shows it."""

    axis: str
    of: Callable[..., Tensor]  # p of the whole input and p_k of changed ones, with options of the metric -> p_k's shape


@dataclass(frozen=True)
class Metric:
    """An entry of METRICS: the function and everything that is known about it."""

    name: str
    function: Callable[..., float]
    title: str  # what papers call it
    paper: str
    direction: Literal["higher", "lower"]  # which is better
    # What the function reads: the curve of probabilities while the top units are removed, while they alone are kept, or
    # with random ones ablated; marked tokens; the scores of another class, model or method.
    needs: Needs
    perturbation: Perturbation  # the default where a curve is needed
    grid_with: (
        Callable[[Mapping[str, Any]], Grid] | None
    )  # where options decide its points; None: the perturbation does
    weighted: bool  # texts count by their number of marked tokens in a mean
    points: Points | None  # of metrics that read a curve in the order of the scores
    compares: Compares | None  # of metrics that read other scores: whose scores these are in a benchmark
    numbered: str  # the title with the option that belongs to it, "Recall@{k}"; empty where none does
    bounds: tuple[float, float]  # the lowest and the highest value of a text, and so of a mean and its interval
    binary: bool  # a text has one of the two bounds as its value, or where scores tie, a mean of them
    # Where options decide the bounds: of the metric's options and the number of marked tokens that no text exceeds.
    bounds_with: Callable[[Mapping[str, Any], int], tuple[float, float]] | None

    def __post_init__(self) -> None:
        drawn = self.needs in ("removed", "kept")
        for fact, kind, given, wanted in (
            ("points", "perturbation", self.points, drawn),
            ("compares", "agreement", self.compares, self.kind == "agreement"),
        ):
            if (given is not None) is not wanted:
                found = "has none" if given is None else f"has {given!r}"
                raise RefusedType(
                    f"{fact}= is what every {kind} metric says and no other; {self.name} ({self.kind}) {found}"
                )
        low, high = self.bounds
        if not low < high:
            raise RefusedValue(f"bounds= is the lowest and the highest value; {self.name} has {self.bounds}")
        if self.binary and (isinf(low) or isinf(high) or self.weighted):
            raise RefusedType(f"a binary metric has finite bounds= and counts texts alike; {self.name} does not")

    @property
    def kind(self) -> str:
        return KINDS[self.needs]

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """The metric's own keywords and their defaults."""
        return keywords(self.function)

    def title_with(self, options: Mapping[str, Any]) -> str:
        """What papers call it with these options: Recall@20, PG-2."""
        return self.numbered.format(**{**self.options, **options}) if self.numbered else self.title

    def bounds_for(self, options: Mapping[str, Any], most_marked: int | None) -> tuple[float, float]:
        """The bounds with these options, for texts of which none has more marked tokens than `most_marked`."""
        if self.bounds_with is None or most_marked is None:
            return self.bounds
        return self.bounds_with({**self.options, **options}, most_marked)

    def at_points(self, curves: Tensor, options: Mapping[str, Any]) -> tuple[str, Tensor]:
        """What is averaged, for curves [..., point], and its name; the whole input is no point of a kept curve."""
        if self.points is None:
            raise RefusedValue(f"metric '{self.name}' reads no curve, so it has no points")
        own = {name: value for name, value in options.items() if name in keywords(self.points.of)}
        changed = curves[..., 1:] if self.needs == "kept" else curves
        return self.points.axis, self.points.of(curves[..., :1], changed, **own)


METRICS: dict[str, Metric] = {}  # every metric by its identifier
ALIASES: dict[str, str] = {}  # papers' names in lower case -> identifier


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Its keyword-only parameters and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def metric(
    *,
    title: str,
    paper: str,
    direction: Literal["higher", "lower"],
    needs: Needs,
    perturbation: Perturbation | None = None,
    grid_with: Callable[[Mapping[str, Any]], Grid] | None = None,
    weighted: bool = False,
    points: Points | None = None,
    compares: Compares | None = None,
    numbered: str = "",
    bounds: tuple[float, float] = (-inf, inf),
    binary: bool = False,
    bounds_with: Callable[[Mapping[str, Any], int], tuple[float, float]] | None = None,
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Register a metric under its function's name."""

    def register(function: Callable[..., float]) -> Callable[..., float]:
        name = function.__name__
        METRICS[name] = Metric(
            name=name,
            function=function,
            title=title,
            paper=paper,
            direction=direction,
            needs=needs,
            perturbation=perturbation or Perturbation(),
            grid_with=grid_with,
            weighted=weighted,
            points=points,
            compares=compares,
            numbered=numbered,
            bounds=bounds,
            binary=binary,
            bounds_with=bounds_with,
        )
        ALIASES.update({name: name, title.lower(): name})
        return function

    return register


def find_metric(name: str) -> Metric:
    """By identifier or by a paper's name, in any case; a wrong name lists the right ones."""
    return METRICS[look_up(name, ALIASES, "metric", METRICS)]


def metrics_between(compared: Compares) -> tuple[str, ...]:
    """The names of the metrics that compare explanations of two classes, or of two models."""
    return tuple(name for name, entry in METRICS.items() if entry.compares == compared)


# Importing a kind registers its metrics.
from tokenlight.metrics import agreement as agreement  # noqa: E402
from tokenlight.metrics import answers as answers  # noqa: E402
from tokenlight.metrics import curves as curves  # noqa: E402
from tokenlight.metrics import evidence as evidence  # noqa: E402
