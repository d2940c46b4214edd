"""All methods and all measures on one chunk of examples: explained together, the changed inputs evaluated together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tokenlight.bench.cases import Case, Item, in_order, sort_out
from tokenlight.bench.protocol import Protocol, other_class
from tokenlight.bench.robustness import likeness_of
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.running import Job
from tokenlight.metrics.evaluate import Curve, Measure, compare, measure_curve, trace_curves
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.metrics.probability import TOKENS
from tokenlight.results.explanation import Explanation
from tokenlight.runs.store import Record

EXPLAINED_AT_ONCE = 4096  # tokens, padding included
Explained = dict[str, list[Explanation]]  # label -> for each case


@dataclass(frozen=True)
class Plan:
    """What is done to every example."""

    explainer: Explainer  # as the protocol reads texts
    protocol: Protocol
    jobs: Mapping[str, Job]  # by label
    seeds: tuple[tuple[Explainer, Mapping[str, Job]], ...] = ()  # models to compare with
    inverse: bool = False  # the methods' scores turned round: the control that should be worst

    def measures(self, needs: str) -> list[Measure]:
        """Those that read curves or marks, or compare classes or models."""
        if needs == "curves":
            return [m for m in self.protocol.measures if m.entry.kind == "perturbation"]
        return [m for m in self.protocol.measures if needs in (m.entry.needs, m.entry.compares)]


def run_chunk(plan: Plan, items: Sequence[Item]) -> tuple[list[Record], list[Case], Explained]:
    """A record for every item in order, and the explanations behind them."""
    cases, records = sort_out(plan.explainer, plan.protocol, items)
    explained: Explained = {}
    if cases:
        explained = explain_cases(plan, cases, [case.target for case in cases])
        records += measure_cases(plan, cases, explained)
    return list(in_order(records)), cases, explained


def explain_cases(plan: Plan, cases: Sequence[Case], targets: list[Any]) -> Explained:
    """Every method on every case; one pass per rule table."""
    foils = [case.foil for case in cases]
    return explain(plan, plan.explainer, plan.jobs, cases, targets, foils)


def explain(
    plan: Plan, explainer: Explainer, jobs: Mapping[str, Job], cases: Sequence[Case], targets: Any, foils: Any
) -> Explained:
    longest = max(len(case.draft.row) for case in cases)
    found: Explained = explainer.explain_jobs(
        [case.draft.example.text for case in cases],
        jobs,
        target=targets,
        foil=foils,
        batch_size=max(1, min(32, EXPLAINED_AT_ONCE // longest)),
        progress=False,
        prepare=plan.protocol.prepare(explainer.tokenizer),
    )
    adjusted = {label: [plan.protocol.adjust(e) for e in results] for label, results in found.items()}
    if not plan.inverse:
        return adjusted
    absolute = any(measure.settled.absolute for measure in plan.measures("curves"))
    return {label: [turn_round(e, absolute) for e in results] for label, results in adjusted.items()}


def turn_round(explanation: Explanation, absolute: bool) -> Explanation:
    """The opposite order; where the order goes by |score|, the opposite of that."""
    scores = explanation.scores
    turned = scores.abs().max() - scores.abs() if absolute else -scores
    return replace(explanation, scores=turned)


def measure_cases(plan: Plan, cases: Sequence[Case], explained: Explained) -> list[Record]:
    """The cases' records with every method's values and curves."""
    together = [e for results in explained.values() for e in results]  # method after method
    times = len(explained)
    curves = draw(plan, together, [case.target for case in cases] * times, [case.foil for case in cases] * times)
    others = other_explanations(plan, cases)
    models = [explained_by_prediction(plan, cases, explained), *explained_by_seeds(plan, cases)] if plan.seeds else []
    alike = [likeness_of(models, i, plan.measures("models")) for i in range(len(cases))] if models else []
    records = []
    for i, case in enumerate(cases):
        methods = {}
        for m, (label, results) in enumerate(explained.items()):
            own = {perturbation: lines[m * len(cases) + i] for perturbation, lines in curves.items()}
            values = curve_values(plan, own)
            values |= values_beside(plan.measures("marks"), results[i], case.draft.marks)
            if others:  # not for the inverse: turned round twice, it agrees as before
                values |= values_beside(plan.measures("classes"), results[i], others[label][i])
            values |= alike[i][1].get(label, {}) if alike else {}
            methods[label] = {"values": values, "curves": curve_points(plan, own)}
        pairs = {"pairs": alike[i][0]} if alike else {}
        records.append(case.record | pairs | {"methods": methods})
    return records


def draw(
    plan: Plan, explanations: Sequence[Explanation], targets: list[Any], foils: list[Any]
) -> dict[Perturbation, list[Curve]]:
    wanted = [measure.settled for measure in plan.measures("curves")]
    return trace_curves(plan.explainer, explanations, wanted, targets, foils, TOKENS, False)


def curve_values(plan: Plan, curves: Mapping[Perturbation, Curve]) -> dict[str, float]:
    return {m.label: measure_curve(m, curves[m.settled]) for m in plan.measures("curves")}


def curve_points(plan: Plan, curves: Mapping[Perturbation, Curve]) -> dict[str, list[float]]:
    """Each distinct curve under the first measure that reads it."""
    names: dict[Perturbation, str] = {}
    for measure in plan.measures("curves"):
        names.setdefault(measure.settled, measure.label)
    return {name: [float(f"{p:.6g}") for p in curves[one].probabilities.tolist()] for one, name in names.items()}


def values_beside(
    measures: Sequence[Measure], one: Explanation, second: Tensor | Explanation | None
) -> dict[str, float]:
    return {measure.label: compare(measure, one, second) for measure in measures}


def other_explanations(plan: Plan, cases: Sequence[Case]) -> Explained | None:
    """The same for another class, where a measure compares classes."""
    if plan.inverse or not plan.measures("classes"):
        return None
    return explain_cases(plan, cases, [other_class(case.target) for case in cases])


def explained_by_prediction(plan: Plan, cases: Sequence[Case], explained: Explained) -> Explained:
    if plan.protocol.target == "predicted":
        return explained
    return explain(plan, plan.explainer, plan.jobs, cases, None, None)


def explained_by_seeds(plan: Plan, cases: Sequence[Case]) -> list[Explained]:
    """The other models' own predictions, explained."""
    return [explain(plan, explainer, jobs, cases, None, None) for explainer, jobs in plan.seeds]
