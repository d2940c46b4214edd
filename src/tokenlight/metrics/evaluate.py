"""Evaluates explanations: all requested metrics, which share the model's answers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.explain.explainer import Explainer
from tokenlight.metrics import Metric, find_metric
from tokenlight.metrics.evidence import check_marks
from tokenlight.metrics.perturbation import Changed, Perturbation, steps
from tokenlight.metrics.probability import ASKING, TOKENS, Asking, ask, log_probabilities, measured_targets_of
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import MeasuredTarget, TargetSpecs, spread
from tokenlight.text.tokenized_text import TokenizedText, Units, check_units

DEFAULT_METRICS = ("aopc", "log_odds", "comprehensiveness", "sufficiency")
FACTS = ("at", "empty", "left", "steps")  # keywords of curve metrics that the curve itself answers


@dataclass(frozen=True)
class Measure:
    """A metric with all its settings; a preset is a tuple of these."""

    metric: str
    perturbation: Perturbation | None = None  # None: the metric's own
    options: Mapping[str, Any] = field(default_factory=dict)
    eligible: Literal["words", "all"] = "words"  # for evidence and agreement: which tokens are compared
    units: Units | None = None  # what is taken away, or compared, as a whole; None: as the perturbation says, or tokens
    name: str = ""  # in the result; the metric's name if not given

    @property
    def entry(self) -> Metric:
        return find_metric(self.metric)

    @property
    def label(self) -> str:
        return self.name or self.entry.name

    @property
    def resolved_perturbation(self) -> Perturbation:
        """The perturbation, turned the way that the metric reads it."""
        own = self.entry.perturbation
        found = self.perturbation or own
        kept, drawn = self.entry.needs == "kept", self.entry.needs == "ablated"
        return replace(
            found,
            grid=found.grid
            if self.entry.grid_with is None
            else self.entry.grid_with({**self.entry.options, **self.options}),
            keep="top" if kept else "rest",
            empty=kept and (found.empty or own.empty),
            ablations=(found.ablations or own.ablations) if drawn else 0,
            units=self.units or found.units,
        )

    def __post_init__(self) -> None:
        entry = self.entry
        known = [name for name in entry.options if name not in FACTS]
        if unknown := sorted(set(self.options) - set(known)):
            has = ", ".join(known) or "none"
            raise RefusedType(f"metric '{entry.name}' has no option {', '.join(unknown)}; its options: {has}")
        if self.units is not None:
            check_units(self.units)
        if self.perturbation is not None and not isinstance(self.perturbation, Perturbation):
            found = self.perturbation
            raise RefusedType(
                f"a perturbation is a tl.Perturbation, such as Perturbation().by('mask'); found {found!r}"
            )
        if self.eligible not in ("words", "all"):
            raise RefusedValue(f"eligible is 'words' or 'all'; found {self.eligible!r}")
        if self.eligible == "all" and entry.kind == "perturbation":
            raise RefusedType(
                f"metric '{entry.name}' takes tokens away: say which in its perturbation, Perturbation(eligible='all')"
            )
        if self.eligible == "all" and self.units not in (None, "tokens"):
            raise RefusedValue(f"eligible='all' compares tokens, so units={self.units!r} has no meaning")
        if self.perturbation is not None and entry.kind != "perturbation":
            raise RefusedType(f"metric '{entry.name}' changes no input, so it has no perturbation")


@dataclass(frozen=True, eq=False)
class Curve:
    """How likely the target is; point 0 is the whole input."""

    log_probabilities: Tensor  # [point] of all tokens of the target together
    shares: Tensor  # [point] of the eligible units: taken away, or there alone
    left: Tensor  # [point] the sum of the scores of units that are there
    steps: int  # tokens of the target
    perturbation: Perturbation

    @property
    def probabilities(self) -> Tensor:
        """[point] of the target; of several tokens the geometric mean, so that long answers count as short ones do."""
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
    """How faithful each explanation is: {metric: value} for each of them.

    A metric is a name, or a `Measure` if you want to change its settings. `perturbation` replaces the default of every
    metric that is given by name. `units` says what is taken away or compared as a whole (tokens, words, sentences or
    sources), unless a `Measure` says so itself. What is measured is the probability of what was explained: the
    predicted class, unless another one was the target, or `target` names one here (one for all or a list, as in
    `explain`). For an answer of several tokens, it is the geometric mean of their probabilities. `marks` says for each
    explanation which tokens matter (bool); `others` holds what to compare it with.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise RefusedType(f"metrics is a list of names: metrics=[{metrics!r}]")
    check_explanations(explanations)
    measures = [one if isinstance(one, Measure) else named(one, perturbation) for one in metrics]
    if units is not None:
        measures = [one if one.units else replace(one, units=units) for one in measures]
    check_labels(measures)
    for needs, given in (("marks", marks), ("others", others)):
        lacking = [measure.label for measure in measures if measure.entry.needs == needs]
        if lacking and given is None:
            raise RefusedValue(f"{', '.join(lacking)} needs {needs}=: one for each explanation")
        if given is not None and len(given) != len(explanations):
            raise RefusedValue(f"{len(given)} {needs} for {len(explanations)} explanations")
    resolved = [measure.resolved_perturbation for measure in measures if measure.entry.kind == "perturbation"]
    drawn = trace_curves(explainer, explanations, resolved, target, foil, Asking(tokens, progress))
    results: list[dict[str, float]] = []
    for i, explanation in enumerate(explanations):
        found = {}
        for measure in measures:
            if measure.entry.kind == "perturbation":
                found[measure.label] = measure_curve(measure, drawn[measure.resolved_perturbation][i])
            else:
                given = marks if measure.entry.needs == "marks" else others
                second = None if given is None else given[i]
                found[measure.label] = compare(measure, explanation, second)
        results.append(found)
    return results


def draw_curves(
    explainer: Explainer,
    explanations: Sequence[Explanation],
    perturbation: Perturbation | None = None,
    *,
    target: TargetSpecs = None,
    foil: TargetSpecs = None,
    asking: Asking = ASKING,
) -> list[Curve]:
    """The whole curve of each explanation."""
    resolved = perturbation or Perturbation()
    return trace_curves(explainer, explanations, [resolved], target, foil, asking)[resolved]


def named(metric: str, perturbation: Perturbation | None) -> Measure:
    entry = find_metric(metric)
    return Measure(entry.name, perturbation if entry.kind == "perturbation" else None)


def check_labels(measures: Sequence[Measure]) -> None:
    labels = [measure.label for measure in measures]
    if not labels:
        raise RefusedValue("name at least one metric")
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise RefusedValue(f"{', '.join(twice)} is asked for twice: give each Measure a name of its own")


def trace_curves(
    explainer: Explainer,
    explanations: Sequence[Explanation],
    resolved: Sequence[Perturbation],
    target: TargetSpecs = None,
    foil: TargetSpecs = None,
    asking: Asking = ASKING,
) -> dict[Perturbation, list[Curve]]:
    """For each perturbation the curves of all explanations, from one collection of questions to the model."""
    if not resolved:
        return {}
    instrumented = asking.instrumented or InstrumentedModel(explainer.model)
    tokenized_texts = rows_of(explainer, explanations, asking.tokenized_texts)
    targets, foils = spread(target, len(tokenized_texts), "target"), spread(foil, len(tokenized_texts), "foil")
    measured_targets = measured_targets_of(explainer, instrumented, tokenized_texts, explanations, targets, foils)
    fitted = {one: one.fit(explainer.inner, explainer.tokenizer) for one in dict.fromkeys(resolved)}
    lines = [
        steps(tokenized_text, e.scores, one, measured_target.protected)
        for one in fitted.values()
        for tokenized_text, e, measured_target in zip(tokenized_texts, explanations, measured_targets, strict=True)
    ]
    asked: list[MeasuredTarget] = measured_targets * len(fitted)
    questions = [
        ask(explainer, point, measured_target)
        for line, measured_target in zip(lines, asked, strict=True)
        for point in line
    ]
    found = log_probabilities(explainer, questions, replace(asking, instrumented=instrumented)).split(
        [len(line) for line in lines]
    )
    drawn = iter(zip(found, lines, asked, strict=True))
    return {
        wanted_one: [make_curve(*next(drawn), resolved_perturbation) for _ in explanations]
        for wanted_one, resolved_perturbation in fitted.items()
    }


def make_curve(
    found: Tensor, line: Sequence[Changed], measured_target: MeasuredTarget, resolved_perturbation: Perturbation
) -> Curve:
    shares, left = torch.tensor([(point.share, point.left) for point in line], dtype=torch.float64).unbind(1)
    return Curve(found, shares, left, measured_target.steps, resolved_perturbation)


def rows_of(
    explainer: Explainer, explanations: Sequence[Explanation], known: Sequence[TokenizedText] | None = None
) -> list[TokenizedText]:
    """The texts as this model reads them, each tokenized once, or not again where they are known."""
    check_explanations(explanations)
    if known is None:
        distinct = list(dict.fromkeys(e.text for e in explanations))
        read = dict(zip(distinct, explainer.encode(distinct), strict=True))
        known = [read[e.text] for e in explanations]
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
    if isinstance(explanations, str) or not isinstance(explanations, Collection) or not len(explanations):
        raise RefusedValue("expected a list of explanations, with one or more in it")
    if wrong := [one for one in explanations if not isinstance(one, Explanation)]:
        raise RefusedType(f"expected explanations, found {type(wrong[0]).__name__}")


def measure_curve(measure: Measure, curve: Curve) -> float:
    facts = {"at": curve.shares, "empty": curve.perturbation.empty, "left": curve.left, "steps": curve.steps}
    known = {name: value for name, value in facts.items() if name in measure.entry.options}
    return measure.entry.function(curve.probabilities, **known, **measure.options)


def as_values(measure: Measure, given: Any) -> Tensor:
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        needs, kind = measure.entry.needs, type(given).__name__
        raise RefusedType(f"{measure.label}: {needs} are one value for each token; found {kind}: {error}") from error


def compare(measure: Measure, explanation: Explanation, second: Explanation | Tensor | None) -> float:
    """Evidence or agreement, over the eligible tokens."""
    values = second.scores if isinstance(second, Explanation) else as_values(measure, second)
    if isinstance(second, Explanation) and second.tokens != explanation.tokens:
        raise RefusedValue(f"{measure.label} compares explanations of one text; the second one is of {second.text!r}")
    if len(values) != len(explanation.scores):
        raise RefusedValue(f"{measure.label}: {len(values)} values for a text of {len(explanation.scores)} tokens")
    if measure.eligible == "all":
        return measure.entry.function(explanation.scores, values, **measure.options)
    if measure.entry.needs == "marks":
        check_marks(explanation.scores, values)
    if measure.entry.needs == "marks" and values[explanation.special].any():
        raise RefusedValue(f"{measure.label}: a special token is marked; mark words, or use eligible='all'")
    if measure.units in (None, "tokens"):
        words = ~explanation.special
        return measure.entry.function(explanation.scores[words], values[words], **measure.options)
    units = explanation.units(measure.units)
    join = torch.any if measure.entry.needs == "marks" else torch.sum  # a unit is marked where a token of it is
    scores, others = (
        torch.stack([f(v[u]) for u in units]) for f, v in ((torch.sum, explanation.scores), (join, values))
    )
    return measure.entry.function(scores, others, **measure.options)


def count_marked(measure: Measure, explanation: Explanation, marks: Tensor) -> int:
    """How many units are marked, as the measure counts them: what the text weighs in a micro-average."""
    if measure.units in (None, "tokens"):
        return int(marks.sum())
    return sum(bool(marks[unit].any()) for unit in explanation.units(measure.units))
