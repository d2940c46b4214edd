"""The registry of metrics: pure functions whose decorator states what they read and which direction is better."""

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
    compute: Callable[..., Tensor]  # of p (the whole input), p_k (changed inputs) and the metric's options; like p_k


@dataclass(frozen=True)
class Metric:
    """An entry of METRICS: the function and everything that is known about it."""

    name: str
    function: Callable[..., float]
    title: str  # its name in papers
    paper: str
    direction: Literal["higher", "lower"]  # which is better
    # What the function reads: the curve of probabilities while the top units are removed, while only they are kept, or
    # while random ones are ablated; marked tokens; the scores for another class, model or method.
    needs: Needs
    perturbation: Perturbation  # the default where a curve is needed
    # From the metric's options to the points of its curve; None: the perturbation determines them.
    grid_with: Callable[[Mapping[str, Any]], Grid] | None
    weighted: bool  # in a mean, texts are weighted by their number of marked tokens
    points: Points | None  # for metrics that read a curve in the order of the scores
    compares: Compares | None  # for metrics that read other scores: in a benchmark, those for another class or model
    title_format: str  # the title with the option that belongs to it, "Recall@{k}"; empty if there is none
    bounds: tuple[float, float]  # the lowest and highest possible value for a text, a mean and its interval
    binary: bool  # the value for a text is one of the two bounds, or if scores tie, a mean of them
    # From the metric's options and the largest number of marked tokens in a text to the bounds; None: they are fixed.
    bounds_with: Callable[[Mapping[str, Any], int], tuple[float, float]] | None

    def __post_init__(self) -> None:
        reads_ordered_curve = self.needs in ("removed", "kept")
        for argument, kind, value, required in (
            ("points", "perturbation", self.points, reads_ordered_curve),
            ("compares", "agreement", self.compares, self.kind == "agreement"),
        ):
            if (value is not None) is not required:
                given = "has none" if value is None else f"has {value!r}"
                raise RefusedType(
                    f"every {kind} metric needs {argument}=, and no other metric may have it; "
                    f"{self.name} ({self.kind}) {given}"
                )
        low, high = self.bounds
        if not low < high:
            raise RefusedValue(f"bounds= is (lowest value, highest value); {self.name} has {self.bounds}")
        if self.binary and (isinf(low) or isinf(high) or self.weighted):
            raise RefusedType(f"a binary metric has finite bounds= and weighs all texts equally; {self.name} does not")

    @property
    def kind(self) -> str:
        return KINDS[self.needs]

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """The metric's own keywords and their defaults."""
        return keyword_defaults(self.function)

    def title_with(self, options: Mapping[str, Any]) -> str:
        """Its name in papers with these options: Recall@20, PG-2."""
        return self.title_format.format(**{**self.options, **options}) if self.title_format else self.title

    def bounds_for(self, options: Mapping[str, Any], most_marked: int | None) -> tuple[float, float]:
        """The bounds with these options, for texts with at most `most_marked` marked tokens."""
        if self.bounds_with is None or most_marked is None:
            return self.bounds
        return self.bounds_with({**self.options, **options}, most_marked)

    def at_points(self, curves: Tensor, options: Mapping[str, Any]) -> tuple[str, Tensor]:
        """The axis title, and the averaged values for curves [..., point]; kept curves leave out the whole input."""
        if self.points is None:
            raise RefusedValue(f"metric '{self.name}' reads no curve, so it has no points")
        accepted = keyword_defaults(self.points.compute)
        point_options = {name: value for name, value in options.items() if name in accepted}
        changed = curves[..., 1:] if self.needs == "kept" else curves
        return self.points.axis, self.points.compute(curves[..., :1], changed, **point_options)


METRICS: dict[str, Metric] = {}  # every metric by its identifier
ALIASES: dict[str, str] = {}  # identifiers, and names in papers in lower case -> identifier


def keyword_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only parameters of a function and their defaults."""
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
    title_format: str = "",
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
            title_format=title_format,
            bounds=bounds,
            binary=binary,
            bounds_with=bounds_with,
        )
        ALIASES.update({name: name, title.lower(): name})
        return function

    return register


def find_metric(name: str) -> Metric:
    """Find a metric by its identifier or its name in papers, in any case; the error lists all identifiers."""
    return METRICS[look_up(name, ALIASES, "metric", METRICS)]


def metrics_between(compared: Compares) -> tuple[str, ...]:
    """The names of the metrics that compare explanations of two classes, or of two models."""
    return tuple(name for name, entry in METRICS.items() if entry.compares == compared)


# Importing these modules registers their metrics.
from tokenlight.metrics import agreement as agreement  # noqa: E402
from tokenlight.metrics import answers as answers  # noqa: E402
from tokenlight.metrics import curves as curves  # noqa: E402
from tokenlight.metrics import evidence as evidence  # noqa: E402
