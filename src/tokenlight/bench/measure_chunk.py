"""Measures all methods with all metrics on one chunk of the data, and keeps examples for the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tokenlight.bench.cases import Case, bad_row, in_order, select_together
from tokenlight.bench.protocol import Protocol, other_class
from tokenlight.bench.robustness import similarities_of_seeds
from tokenlight.common.error_location import is_unforeseen, own_code, refuse_own_code
from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.common.notes import note_code
from tokenlight.data.examples import Chunk, NumberedRow
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.options import Resources, RunOptions
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.evaluate import Curve, Measure, count_marked, evaluate_curve, evaluate_scores, measure_curves
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.metrics.probability import EvaluationOptions
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.results.saved import CONVERSION, expect
from tokenlight.runs.engines import Advance
from tokenlight.runs.isolate_failures import isolate_failures
from tokenlight.runs.run_folder import Record
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.text.tokenized_text import TokenizedText

EXAMPLES_FILE = "examples.json"
MAX_EXAMPLES = 4
MAX_TOKENS = 80  # of an example for the report


def keep_examples(folder: Path, cases: Sequence[Case], explained: Mapping[str, Sequence[Explanation]]) -> None:
    """Store the first short examples of the run, by row number, so that measuring a chunk again changes nothing."""
    path = folder / EXAMPLES_FILE
    stored = read_stored(path) if path.exists() else {}
    before = len(stored)
    for i, case in enumerate(cases):
        number = str(case.draft.number)
        if len(stored) < MAX_EXAMPLES and number not in stored and len(case.draft.tokenized_text) <= MAX_TOKENS:
            stored[number] = [example_dict(results[i], label) for label, results in explained.items()]
    if not stored and cases:  # all examples are long: keep the shortest
        i = min(range(len(cases)), key=lambda i: len(cases[i].draft.tokenized_text))
        stored[str(cases[i].draft.number)] = [example_dict(results[i], label) for label, results in explained.items()]
    if len(stored) > before:
        write_atomically(path, json.dumps(stored, ensure_ascii=False) + "\n")


def example_dict(explanation: Explanation, label: str) -> dict[str, Any]:
    """An explanation as a dict, with the method's label and without the note that the method ignores the target."""
    notes = tuple(note for note in explanation.notes if note_code(note) != "target_ignored")
    title = explanation.method_title if label == explanation.method else ""
    return replace(explanation, method=label, method_title=title, notes=notes).to_dict()


def read_kept_examples(folder: Path) -> list[list[Explanation]]:
    """For each kept example, the explanations of all methods."""
    path = folder / EXAMPLES_FILE
    if not path.exists():
        return []
    stored = read_stored(path)
    try:
        return [
            [Explanation.from_dict(explanation) for explanation in explanations] for explanations in stored.values()
        ]
    except CONVERSION as error:
        raise damaged_examples(path, error) from error


def read_stored(path: Path) -> dict[str, list[Any]]:
    """The content of the file of examples: dicts of explanations by row number."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        expect(isinstance(stored, dict), "examples", "an object", stored)
        for explanations in stored.values():
            expect(isinstance(explanations, list), "examples", "a list for each row", explanations)
    except (ValueError, RecursionError) as error:
        raise damaged_examples(path, error) from error
    return stored


def damaged_examples(path: Path, error: Exception) -> ValueError:
    return RefusedValue(
        f"{path} cannot be used ({error}). It holds examples for the report, and no results: delete it, then the same "
        "call or command goes on without them"
    )


BATCH_TOKENS = 4096  # padding included
MAX_UNFORESEEN = 10  # if so many rows fail with unforeseen errors, and none succeeds, the first error is raised
Explained = dict[str, list[Explanation]]  # by label, for each case


@dataclass(frozen=True)
class MeasuredChunk:
    """The records of all rows in order, with the cases and their explanations."""

    records: list[Record]
    cases: list[Case]
    explained: Explained

    @property
    def reasons(self) -> list[str]:
        """The reasons of bad rows."""
        return [record["bad"] for record in self.records if "bad" in record]


@dataclass(frozen=True)
class MeasuringPlan:
    """How each chunk is measured."""

    explainer: Explainer  # fitted to the protocol
    protocol: Protocol
    method_configs: Mapping[str, MethodConfig]  # by label
    seeds: tuple[tuple[Explainer, Mapping[str, MethodConfig]], ...] = ()  # models that differ in their seed
    inverse: bool = False  # whether scores are inverted: a control that should be worst
    fused: bool | None = None  # attention as one operation; None: unless a method needs attention maps
    run_of: Mapping[str, str] = field(default_factory=dict)  # label of the line in the table, by label of a run

    @property
    def explainers(self) -> list[Explainer]:
        return [self.explainer, *(explainer for explainer, _ in self.seeds)]

    def process(self, chunk: Chunk, advance: Advance) -> MeasuredChunk:
        measured = measure_chunk(self, chunk)
        advance(len(chunk.rows))
        return measured

    def by_line(self, explained: Explained) -> Explained:
        """Explanations by line of the table; for a method with several runs, those of the first run."""
        by_line: Explained = {}
        for label, results in explained.items():
            by_line.setdefault(self.run_of.get(label, label), results)
        return by_line

    def measures(self, needs: str) -> list[Measure]:
        """The measures of one kind: those that read "curves" or "marks", or that compare "classes" or "models"."""
        if needs == "curves":
            return [measure for measure in self.protocol.measures if measure.entry.kind == "perturbation"]
        return [measure for measure in self.protocol.measures if needs in (measure.entry.needs, measure.entry.compares)]


@dataclass(frozen=True)
class ReadyModel:
    """A model during one chunk: its instrumented model, and the texts of the cases in its tokens."""

    explainer: Explainer
    method_configs: Mapping[str, MethodConfig]
    instrumented: InstrumentedModel
    tokenized_texts: list[TokenizedText]


def measure_chunk(plan: MeasuringPlan, chunk: Chunk) -> MeasuredChunk:
    """Measure the rows of a chunk. A row on which anything fails is set aside with the reason and affects no other.

    If no row of the first chunk can be measured, the first error is raised if it is in the caller's own code, or if at
    least `MAX_UNFORESEEN` rows have unforeseen errors: then the rows are not the cause.
    """
    unforeseen: list[Exception] = []
    measured = measure_rows(plan, chunk.rows, unforeseen)
    if chunk.number == 0 and not measured.cases:
        if (own := next((error for error in unforeseen if own_code(error)), None)) is not None:
            raise refuse_own_code(measured.reasons) from own
        if len(unforeseen) >= MAX_UNFORESEEN:
            raise unforeseen[0]
    return measured


def measure_rows(plan: MeasuringPlan, rows: Sequence[NumberedRow], unforeseen: list[Exception]) -> MeasuredChunk:
    """Measure rows. The first errors that may be bugs, of tokenlight or of the caller, are appended to `unforeseen`."""

    def set_aside(row: NumberedRow, error: Exception, reason: str) -> MeasuredChunk:
        may_be_bug = is_unforeseen(error) or own_code(error) is not None
        if may_be_bug and len(unforeseen) < MAX_UNFORESEEN:  # few, since errors keep tensors of their frames alive
            unforeseen.append(error)
        return MeasuredChunk([bad_row(row, reason)], [], {})

    groups = isolate_failures(rows, lambda group: [measure_together(plan, group)], set_aside)
    explained: Explained = {}
    for group in groups:
        for label, results in group.explained.items():
            explained.setdefault(label, []).extend(results)
    records = [record for group in groups for record in group.records]
    return MeasuredChunk(records, [case for group in groups for case in group.cases], explained)


def measure_together(plan: MeasuringPlan, rows: Sequence[NumberedRow]) -> MeasuredChunk:
    """Measure rows in common passes; an error on any of them is raised."""
    instrumented = InstrumentedModel(plan.explainer.model)
    cases, records = select_together(plan.explainer, plan.protocol, rows, instrumented)
    explained: Explained = {}
    if cases:
        model = ReadyModel(
            plan.explainer, plan.method_configs, instrumented, [case.draft.tokenized_text for case in cases]
        )
        explained = explain(plan, model, [case.target for case in cases])
        records += measure_cases(plan, model, cases, explained)
        refuse_unstorable(records)
    return MeasuredChunk(list(in_order(records)), cases, explained)


def refuse_unstorable(records: Sequence[Record]) -> None:
    """Refuse records that the journal cannot store, so that their rows are set aside."""
    try:
        json.dumps(records, allow_nan=False)
    except ValueError as error:
        raise RefusedValue(f"what was measured is not finite, or cannot be stored ({error})") from error


def explain(plan: MeasuringPlan, model: ReadyModel, targets: list[ResolvedTarget] | None) -> Explained:
    """The explanations of all methods for the texts of a model; None: of its predictions."""
    longest = max(len(tokenized_text) for tokenized_text in model.tokenized_texts)
    by_label = model.explainer.explain_tokenized(
        model.tokenized_texts,
        model.method_configs,
        target=targets,
        run_options=RunOptions(batch_size=max(1, min(32, BATCH_TOKENS // longest)), fused=plan.fused, progress=False),
        resources=Resources(model.instrumented, prepare=plan.protocol.prepare(model.explainer.tokenizer)),
    )
    adjusted = {label: [plan.protocol.adjust(e) for e in results] for label, results in by_label.items()}
    if not plan.inverse:
        return adjusted
    absolute = any(measure.resolved_perturbation.absolute for measure in plan.measures("curves"))
    return {label: [invert(e, absolute) for e in results] for label, results in adjusted.items()}


def invert(explanation: Explanation, absolute: bool) -> Explanation:
    """The explanation with the inverse order of scores; with `absolute`, of absolute scores."""
    scores = explanation.scores
    inverted = scores.abs().max() - scores.abs() if absolute else -scores
    return replace(explanation, scores=inverted)


def measure_cases(plan: MeasuringPlan, model: ReadyModel, cases: Sequence[Case], explained: Explained) -> list[Record]:
    """The records of the cases, with values and curves of all methods."""
    curves = measure_all_curves(plan, model, cases, explained)
    others = other_explanations(plan, model, cases)
    similarities = []
    if plan.seeds:
        models = [explained_by_prediction(plan, model, explained), *explained_by_seeds(plan, cases)]
        similarities = [similarities_of_seeds(models, i, plan.measures("models")) for i in range(len(cases))]
    records = []
    for i, case in enumerate(cases):
        methods = {}
        for index, (label, results) in enumerate(explained.items()):
            case_curves = {perturbation: lines[index * len(cases) + i] for perturbation, lines in curves.items()}
            values = curve_values(plan, case_curves)
            values |= score_values(plan.measures("marks"), results[i], case.draft.marks)
            if others:  # not for the inverse: inverting both changes nothing
                values |= score_values(plan.measures("classes"), results[i], others[label][i])
            values |= similarities[i][1].get(label, {}) if similarities else {}
            methods[label] = {"values": values, "curves": curve_points(plan, case_curves)}
        pairs = {"pairs": similarities[i][0]} if similarities else {}
        weights = weights_of(plan, next(iter(explained.values()))[i], case.draft.marks)
        records.append(case.record | pairs | weights | {"methods": methods})
    return records


def measure_all_curves(
    plan: MeasuringPlan, model: ReadyModel, cases: Sequence[Case], explained: Explained
) -> dict[Perturbation, list[Curve]]:
    """The curves of all methods in one call: all cases of the first method, then of the next."""
    times = len(explained)
    return measure_curves(
        model.explainer,
        [e for results in explained.values() for e in results],
        [measure.resolved_perturbation for measure in plan.measures("curves")],
        [case.target for case in cases] * times,
        options=EvaluationOptions(instrumented=model.instrumented, tokenized_texts=model.tokenized_texts * times),
    )


def curve_values(plan: MeasuringPlan, curves: Mapping[Perturbation, Curve]) -> dict[str, float]:
    return {
        measure.label: evaluate_curve(measure, curves[measure.resolved_perturbation])
        for measure in plan.measures("curves")
    }


def curve_points(plan: MeasuringPlan, curves: Mapping[Perturbation, Curve]) -> dict[str, list[float]]:
    """The points of each distinct curve, by the first measure that reads it."""
    names: dict[Perturbation, str] = {}
    for measure in plan.measures("curves"):
        if measure.entry.points is not None:
            names.setdefault(measure.resolved_perturbation, measure.label)
    return {
        name: [float(f"{point:.6g}") for point in curves[perturbation].probabilities.tolist()]
        for perturbation, name in names.items()
    }


def weights_of(plan: MeasuringPlan, explanation: Explanation, marks: Tensor | None) -> dict[str, dict[str, int]]:
    """Numbers of marked units, the weights of micro-averages over units other than tokens; all methods share the units.

    The number of marked tokens is in the record already.
    """
    measures = [
        measure
        for measure in plan.measures("marks")
        if measure.entry.weighted and measure.units not in (None, "tokens")
    ]
    if marks is None or not measures:
        return {}
    return {"weights": {measure.label: count_marked(measure, explanation, marks) for measure in measures}}


def score_values(
    measures: Sequence[Measure], explanation: Explanation, compared_with: Tensor | Explanation | None
) -> dict[str, float]:
    """Values of measures that compare scores with marks or with another explanation."""
    return {measure.label: evaluate_scores(measure, explanation, compared_with) for measure in measures}


def other_explanations(plan: MeasuringPlan, model: ReadyModel, cases: Sequence[Case]) -> Explained | None:
    """Explanations of another class, if a measure compares classes."""
    if plan.inverse or not plan.measures("classes"):
        return None
    return explain(plan, model, [case.of_class(other_class) for case in cases])


def explained_by_prediction(plan: MeasuringPlan, model: ReadyModel, explained: Explained) -> Explained:
    return explained if plan.protocol.target == "predicted" else explain(plan, model, None)


def explained_by_seeds(plan: MeasuringPlan, cases: Sequence[Case]) -> list[Explained]:
    """Explanations of the seed models for their own predictions."""
    texts = [case.draft.example.text for case in cases]
    return [
        explain(
            plan,
            ReadyModel(explainer, method_configs, InstrumentedModel(explainer.model), explainer.encode(texts)),
            None,
        )
        for explainer, method_configs in plan.seeds
    ]
