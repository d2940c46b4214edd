"""Evaluates explanations with several metrics, which share the model's outputs on changed inputs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.explain.explainer import Explainer
from tokenlight.metrics import Metric, find_metric
from tokenlight.metrics.evidence import check_marks
from tokenlight.metrics.perturbation import Perturbation, PerturbedText, perturb
from tokenlight.metrics.probability import (
    DEFAULT_OPTIONS,
    TOKENS,
    EvaluationOptions,
    complete_targets,
    log_probabilities,
    make_changed_input,
)
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import ResolvedTarget, TargetSpecs, spread
from tokenlight.text.tokenized_text import TokenizedText, Units, check_units

DEFAULT_METRICS = ("aopc", "log_odds", "comprehensiveness", "sufficiency")
FACTS = ("at", "empty", "left", "steps")  # keywords of curve metrics whose values come from the curve


@dataclass(frozen=True)
class Measure:
    """A metric with all its settings; a preset is a tuple of these."""

    metric: str
    perturbation: Perturbation | None = None  # None: the metric's own
    options: Mapping[str, Any] = field(default_factory=dict)
    eligible: Literal["words", "all"] = "words"  # for evidence and agreement: which tokens are compared
    units: Units | None = None  # what is removed or compared as a whole; None: the perturbation's units, or tokens
    name: str = ""  # key in the result; empty: the metric's name

    @property
    def entry(self) -> Metric:
        return find_metric(self.metric)

    @property
    def label(self) -> str:
        return self.name or self.entry.name

    @property
    def resolved_perturbation(self) -> Perturbation:
        """The perturbation with the settings that the metric requires."""
        entry = self.entry
        default = entry.perturbation
        given = self.perturbation or default
        kept = entry.needs == "kept"
        return replace(
            given,
            grid=given.grid if entry.grid_with is None else entry.grid_with({**entry.options, **self.options}),
            keep="top" if kept else "rest",
            empty=kept and (given.empty or default.empty),
            ablations=(given.ablations or default.ablations) if entry.needs == "ablated" else 0,
            units=self.units or given.units,
        )

    def __post_init__(self) -> None:
        entry = self.entry
        known = [name for name in entry.options if name not in FACTS]
        if unknown := sorted(set(self.options) - set(known)):
            listed = ", ".join(known) or "none"
            raise RefusedType(f"metric '{entry.name}' has no option {', '.join(unknown)}; its options: {listed}")
        if self.units is not None:
            check_units(self.units)
        if self.perturbation is not None and not isinstance(self.perturbation, Perturbation):
            given = self.perturbation
            raise RefusedType(
                f"a perturbation is a tl.Perturbation, such as Perturbation(removal='mask'); found {given!r}"
            )
        if self.eligible not in ("words", "all"):
            raise RefusedValue(f"eligible is 'words' or 'all'; found {self.eligible!r}")
        if self.eligible == "all" and entry.kind == "perturbation":
            raise RefusedType(
                f"metric '{entry.name}' removes tokens: set eligible in its perturbation, Perturbation(eligible='all')"
            )
        if self.eligible == "all" and self.units not in (None, "tokens"):
            raise RefusedValue(f"eligible='all' compares tokens, so units={self.units!r} has no effect")
        if self.perturbation is not None and entry.kind != "perturbation":
            raise RefusedType(f"metric '{entry.name}' changes no input, so it has no perturbation")


@dataclass(frozen=True, eq=False)
class Curve:
    """The target's probability at each point of a perturbation; point 0 is the whole input."""

    log_probabilities: Tensor  # [point] summed over the tokens of the target
    shares: Tensor  # [point] of the eligible units: removed, or kept with keep="top"
    left: Tensor  # [point] the sum of the scores of the units that are left
    steps: int  # tokens of the target
    perturbation: Perturbation

    @property
    def probabilities(self) -> Tensor:
        """[point] of the target; for several tokens the geometric mean, which does not depend on their number."""
        return (self.log_probabilities / self.steps).exp()


def evaluate(
    explainer: Explainer,
    explanations: Sequence[Explanation],
    metrics: Sequence[str | Measure] = DEFAULT_METRICS,
    *,
    perturbation: Perturbation | None = None,
    units: Units | None = None,
    marks: Sequence[Tensor] | None = None,
    others: Sequence[Explanation | Tensor] | None = None,
    target: TargetSpecs = None,
    foil: TargetSpecs = None,
    tokens: int = TOKENS,
    progress: bool = False,
) -> list[dict[str, float]]:
    """Measure how faithful explanations are: {metric: value} for each of them.

    A metric is a name, or a `Measure` if you want to change its settings. `perturbation` replaces the default of every
    metric that is given by name. `units` states what is removed or compared as a whole (tokens, words, sentences or
    documents), unless a `Measure` has units of its own. Metrics that remove units measure the probability of the
    explained target, or of `target` if it is given (one for all explanations or a list, as in `explain`). For an answer
    of several tokens, it is the geometric mean of their probabilities. `marks` has a boolean tensor for each
    explanation, which is True at tokens that matter; `others` has what each explanation is compared with.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise RefusedType(f"metrics is a list of names: metrics=[{metrics!r}]")
    check_explanations(explanations)
    measures = [metric if isinstance(metric, Measure) else measure_by_name(metric, perturbation) for metric in metrics]
    if units is not None:
        measures = [measure if measure.units else replace(measure, units=units) for measure in measures]
    check_labels(measures)
    for needs, given in (("marks", marks), ("others", others)):
        labels = [measure.label for measure in measures if measure.entry.needs == needs]
        if labels and given is None:
            raise RefusedValue(f"{', '.join(labels)} needs {needs}=: one for each explanation")
        if given is not None and len(given) != len(explanations):
            raise RefusedValue(f"{len(given)} {needs} for {len(explanations)} explanations")
    perturbations = [measure.resolved_perturbation for measure in measures if measure.entry.kind == "perturbation"]
    options = EvaluationOptions(tokens, progress)
    curves = measure_curves(explainer, explanations, perturbations, target, foil, options)
    results: list[dict[str, float]] = []
    for i, explanation in enumerate(explanations):
        values = {}
        for measure in measures:
            if measure.entry.kind == "perturbation":
                values[measure.label] = evaluate_curve(measure, curves[measure.resolved_perturbation][i])
            else:
                given = marks if measure.entry.needs == "marks" else others
                compared_with = None if given is None else given[i]
                values[measure.label] = evaluate_scores(measure, explanation, compared_with)
        results.append(values)
    return results


def draw_curves(
    explainer: Explainer,
    explanations: Sequence[Explanation],
    perturbation: Perturbation | None = None,
    *,
    target: TargetSpecs = None,
    foil: TargetSpecs = None,
    options: EvaluationOptions = DEFAULT_OPTIONS,
) -> list[Curve]:
    """The curve of each explanation under one perturbation."""
    perturbation = perturbation or Perturbation()
    return measure_curves(explainer, explanations, [perturbation], target, foil, options)[perturbation]


def measure_by_name(metric: str, perturbation: Perturbation | None) -> Measure:
    """The metric with its default settings, and with this perturbation if it has one."""
    entry = find_metric(metric)
    return Measure(entry.name, perturbation if entry.kind == "perturbation" else None)


def check_labels(measures: Sequence[Measure]) -> None:
    """Refuse an empty list, and two measures with the same label."""
    labels = [measure.label for measure in measures]
    if not labels:
        raise RefusedValue("name at least one metric")
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise RefusedValue(f"{', '.join(repeated)} is requested twice: give each Measure a name of its own")


def measure_curves(
    explainer: Explainer,
    explanations: Sequence[Explanation],
    perturbations: Sequence[Perturbation],
    target: TargetSpecs = None,
    foil: TargetSpecs = None,
    options: EvaluationOptions = DEFAULT_OPTIONS,
) -> dict[Perturbation, list[Curve]]:
    """For each perturbation, the curves of all explanations. All changed inputs run together, equal ones once."""
    if not perturbations:
        return {}
    instrumented = options.instrumented or InstrumentedModel(explainer.model)
    tokenized_texts = encode_explained(explainer, explanations, options.tokenized_texts)
    targets, foils = spread(target, len(tokenized_texts), "target"), spread(foil, len(tokenized_texts), "foil")
    resolved_targets = complete_targets(explainer, instrumented, tokenized_texts, explanations, targets, foils)
    fitted = {
        perturbation: perturbation.fit(explainer.inner, explainer.tokenizer)
        for perturbation in dict.fromkeys(perturbations)
    }
    points_by_curve = [
        perturb(tokenized_text, e.scores, perturbation, target.protected)
        for perturbation in fitted.values()
        for tokenized_text, e, target in zip(tokenized_texts, explanations, resolved_targets, strict=True)
    ]
    target_by_curve: list[ResolvedTarget] = resolved_targets * len(fitted)
    inputs = [
        make_changed_input(explainer, point, target)
        for points, target in zip(points_by_curve, target_by_curve, strict=True)
        for point in points
    ]
    values = log_probabilities(explainer, inputs, replace(options, instrumented=instrumented))
    values_by_curve = values.split([len(points) for points in points_by_curve])
    curves = iter(zip(values_by_curve, points_by_curve, target_by_curve, strict=True))
    return {
        perturbation: [make_curve(*next(curves), fitted_perturbation) for _ in explanations]
        for perturbation, fitted_perturbation in fitted.items()
    }


def make_curve(
    values: Tensor, points: Sequence[PerturbedText], target: ResolvedTarget, perturbation: Perturbation
) -> Curve:
    shares, left = torch.tensor([(point.share, point.left) for point in points], dtype=torch.float64).unbind(1)
    return Curve(values, shares, left, target.steps, perturbation)


def encode_explained(
    explainer: Explainer, explanations: Sequence[Explanation], known: Sequence[TokenizedText] | None = None
) -> list[TokenizedText]:
    """The explained texts, tokenized for this model, with the explanations' documents; `known` ones are reused.

    Explanations whose tokens this model's tokenizer does not give are refused.
    """
    check_explanations(explanations)
    if known is None:
        distinct = list(dict.fromkeys(e.text for e in explanations))
        encoded = dict(zip(distinct, explainer.encode(distinct), strict=True))
        known = [encoded[e.text] for e in explanations]
    for tokenized_text, e in zip(known, explanations, strict=True):
        if tokenized_text.tokens != e.tokens:
            raise RefusedValue(
                f"the explanation has the tokens {e.tokens}, but this model reads {tokenized_text.tokens}: "
                "evaluate it with the model that was explained"
            )
    return [
        replace(tokenized_text, documents=e.documents) for tokenized_text, e in zip(known, explanations, strict=True)
    ]


def check_explanations(explanations: Any) -> None:
    """Refuse anything but a list of explanations that has at least one."""
    if isinstance(explanations, str) or not isinstance(explanations, Collection) or not len(explanations):
        raise RefusedValue("expected a list of at least one explanation")
    if wrong := [element for element in explanations if not isinstance(element, Explanation)]:
        raise RefusedType(f"expected explanations, found {type(wrong[0]).__name__}")


def evaluate_curve(measure: Measure, curve: Curve) -> float:
    """The value of a metric that reads a curve."""
    facts = {"at": curve.shares, "empty": curve.perturbation.empty, "left": curve.left, "steps": curve.steps}
    known = {name: value for name, value in facts.items() if name in measure.entry.options}
    return measure.entry.function(curve.probabilities, **known, **measure.options)


def convert_to_tensor(measure: Measure, given: Any) -> Tensor:
    """Marks or scores as a tensor. Anything that torch cannot convert is refused."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        needs, kind = measure.entry.needs, type(given).__name__
        raise RefusedType(f"{measure.label}: {needs} has one value for each token; found {kind}: {error}") from error


def evaluate_scores(measure: Measure, explanation: Explanation, compared_with: Explanation | Tensor | None) -> float:
    """The value of a metric of evidence or agreement, over the eligible tokens."""
    if isinstance(compared_with, Explanation):
        values = compared_with.scores
        if compared_with.tokens != explanation.tokens:
            raise RefusedValue(
                f"{measure.label} compares explanations of the same text; the second is of {compared_with.text!r}"
            )
    else:
        values = convert_to_tensor(measure, compared_with)
    if len(values) != len(explanation.scores):
        raise RefusedValue(f"{measure.label}: {len(values)} values for a text of {len(explanation.scores)} tokens")
    if measure.eligible == "all":
        return measure.entry.function(explanation.scores, values, **measure.options)
    if measure.entry.needs == "marks":
        check_marks(explanation.scores, values)
    if measure.entry.needs == "marks" and values[explanation.special].any():
        raise RefusedValue(f"{measure.label}: a special token is marked; mark words only, or use eligible='all'")
    if measure.units in (None, "tokens"):
        words = ~explanation.special
        return measure.entry.function(explanation.scores[words], values[words], **measure.options)
    units = explanation.units(measure.units)
    combine = torch.any if measure.entry.needs == "marks" else torch.sum  # a unit is marked if one of its tokens is
    unit_scores = torch.stack([explanation.scores[unit].sum() for unit in units])
    unit_values = torch.stack([combine(values[unit]) for unit in units])
    return measure.entry.function(unit_scores, unit_values, **measure.options)


def count_marked(measure: Measure, explanation: Explanation, marks: Tensor) -> int:
    """The number of marked units, in the units of the measure: the weight of the text in a micro-average."""
    if measure.units in (None, "tokens"):
        return int(marks.sum())
    return sum(bool(marks[unit].any()) for unit in explanation.units(measure.units))
