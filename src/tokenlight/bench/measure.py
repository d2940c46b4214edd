"""All methods and all metrics on one chunk of the data, and examples kept for the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tokenlight.bench.cases import Case, bad_row, in_order, sort_out_together
from tokenlight.bench.protocol import Protocol, other_class
from tokenlight.bench.robustness import likeness_of
from tokenlight.common.error_location import is_unforeseen, own_code, refuse_own_code
from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.common.notes import note_code
from tokenlight.data.examples import Chunk, NumberedRow
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.running import RunOptions
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.evaluate import Curve, Measure, count_marked, evaluate_curve, evaluate_scores, measure_curves
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.metrics.probability import EvaluationOptions
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.results.saved import CONVERSION, expect
from tokenlight.runs.engines import Tell
from tokenlight.runs.halving import by_halves
from tokenlight.runs.run_folder import Record
from tokenlight.text.tokenized_text import TokenizedText

FILE = "examples.json"
MOST = 4  # examples
LONGEST = 80  # tokens that can be read at a glance


def keep_shown(folder: Path, cases: Sequence[Case], explained: Mapping[str, Sequence[Explanation]]) -> None:
    """The first short examples of the run, by their row, so that a chunk which is done again changes nothing."""
    path = folder / FILE
    stored = read_stored(path) if path.exists() else {}
    before = len(stored)
    for i, case in enumerate(cases):
        number = str(case.draft.number)
        if len(stored) < MOST and number not in stored and len(case.draft.tokenized_text) <= LONGEST:
            stored[number] = [plain(results[i], label) for label, results in explained.items()]
    if not stored and cases:  # all are long: the shortest is better than none
        i = min(range(len(cases)), key=lambda i: len(cases[i].draft.tokenized_text))
        stored[str(cases[i].draft.number)] = [plain(results[i], label) for label, results in explained.items()]
    if len(stored) > before:
        write_atomically(path, json.dumps(stored, ensure_ascii=False) + "\n")


def plain(explanation: Explanation, label: str) -> dict[str, Any]:
    """Under the method's label, without the note that the method ignores the target: the benchmark sets the targets."""
    notes = tuple(note for note in explanation.notes if note_code(note) != "target_ignored")
    title = explanation.method_title if label == explanation.method else ""
    return replace(explanation, method=label, method_title=title, notes=notes).to_dict()


def read_shown(folder: Path) -> list[list[Explanation]]:
    """For each example the explanations of all methods."""
    path = folder / FILE
    if not path.exists():
        return []
    stored = read_stored(path)
    try:
        return [[Explanation.from_dict(plain) for plain in group] for group in stored.values()]
    except CONVERSION as error:
        raise damaged_examples(path, error) from error


def read_stored(path: Path) -> dict[str, list[Any]]:
    """By the number of their row, as `to_dict` gives them."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        expect(isinstance(stored, dict), "examples", "an object", stored)
        for group in stored.values():
            expect(isinstance(group, list), "examples", "a list for each row", group)
    except (ValueError, RecursionError) as error:
        raise damaged_examples(path, error) from error
    return stored


def damaged_examples(path: Path, error: Exception) -> ValueError:
    return RefusedValue(
        f"{path} cannot be used ({error}). It holds examples for the report, and no results: delete it, then the same "
        "call or command goes on without them"
    )


EXPLAINED_AT_ONCE = 4096  # tokens, padding included
SEVERAL = 10  # rows with unforeseen errors, and none without, that no row can be blamed for
Explained = dict[str, list[Explanation]]  # label -> for each case


@dataclass(frozen=True)
class MeasuredChunk:
    """A record for every row in order, and the explanations behind them."""

    records: list[Record]
    cases: list[Case]
    explained: Explained

    @property
    def reasons(self) -> list[str]:
        """Why rows could not be measured."""
        return [record["bad"] for record in self.records if "bad" in record]


@dataclass(frozen=True)
class MeasuringPlan:
    """What is done to every part."""

    explainer: Explainer  # as the protocol reads texts
    protocol: Protocol
    method_configs: Mapping[str, MethodConfig]  # by label
    seeds: tuple[tuple[Explainer, Mapping[str, MethodConfig]], ...] = ()  # models to compare with
    inverse: bool = False  # the methods' scores turned round: the control that should be worst
    fused: bool | None = None  # attention as one operation; None: wherever no method needs its weights
    run_of: Mapping[str, str] = field(default_factory=dict)  # label of a run -> label of its line in the table

    @property
    def explainers(self) -> list[Explainer]:
        return [self.explainer, *(explainer for explainer, _ in self.seeds)]

    def do(self, part: Chunk, tell: Tell) -> MeasuredChunk:
        found = measure_chunk(self, part)
        tell(len(part.rows))
        return found

    def by_line(self, explained: Explained) -> Explained:
        """Explanations by the lines of a table: of several runs, the first."""
        found: Explained = {}
        for label, results in explained.items():
            found.setdefault(self.run_of.get(label, label), results)
        return found

    def measures(self, needs: str) -> list[Measure]:
        """Those that read curves or marks, or compare classes or models."""
        if needs == "curves":
            return [m for m in self.protocol.measures if m.entry.kind == "perturbation"]
        return [m for m in self.protocol.measures if needs in (m.entry.needs, m.entry.compares)]


@dataclass(frozen=True)
class ReadyModel:
    """A model for the time of one part: its instrumented model, and the cases' texts in its tokens."""

    explainer: Explainer
    method_configs: Mapping[str, MethodConfig]
    instrumented: InstrumentedModel
    tokenized_texts: list[TokenizedText]


def measure_chunk(plan: MeasuringPlan, part: Chunk) -> MeasuredChunk:
    """The rows of a part; one on which anything fails is set aside with the reason, and spoils no other.

    If the first part shows nothing but unforeseen errors, on several rows, the first of them is raised: then no row is
    at fault. The same holds for an error in the caller's own code, on any number of rows.
    """
    unforeseen: list[Exception] = []
    found = measure_rows(plan, part.rows, unforeseen)
    if part.number == 0 and not found.cases:
        if (own := next((error for error in unforeseen if own_code(error)), None)) is not None:
            raise refuse_own_code(found.reasons) from own
        if len(unforeseen) >= SEVERAL:
            raise unforeseen[0]
    return found


def measure_rows(plan: MeasuringPlan, rows: Sequence[NumberedRow], unforeseen: list[Exception]) -> MeasuredChunk:
    """`unforeseen` gets the first errors that may be bugs, ours or the caller's."""

    def set_aside(row: NumberedRow, error: Exception, reason: str) -> MeasuredChunk:
        may_be_bug = is_unforeseen(error) or own_code(error) is not None
        if may_be_bug and len(unforeseen) < SEVERAL:  # they hold what was in memory when they were raised
            unforeseen.append(error)
        return MeasuredChunk([bad_row(row, reason)], [], {})

    found = by_halves(rows, lambda some: [measure_together(plan, some)], set_aside)
    explained: Explained = {}
    for part in found:
        for label, results in part.explained.items():
            explained.setdefault(label, []).extend(results)
    records = [record for part in found for record in part.records]
    return MeasuredChunk(records, [case for part in found for case in part.cases], explained)


def measure_together(plan: MeasuringPlan, rows: Sequence[NumberedRow]) -> MeasuredChunk:
    instrumented = InstrumentedModel(plan.explainer.model)
    cases, records = sort_out_together(plan.explainer, plan.protocol, rows, instrumented)
    explained: Explained = {}
    if cases:
        model = ReadyModel(
            plan.explainer, plan.method_configs, instrumented, [case.draft.tokenized_text for case in cases]
        )
        explained = explain_cases(plan, model, cases, [case.target for case in cases])
        records += measure_cases(plan, model, cases, explained)
        refuse_unstorable(records)
    return MeasuredChunk(list(in_order(records)), cases, explained)


def refuse_unstorable(records: Sequence[Record]) -> None:
    """Here, where it is the fault of a row, and not of the journal that would break off."""
    try:
        json.dumps(records, allow_nan=False)
    except ValueError as error:
        raise RefusedValue(f"what was measured is not finite, or cannot be stored ({error})") from error


def explain_cases(plan: MeasuringPlan, model: ReadyModel, cases: Sequence[Case], targets: list[Any]) -> Explained:
    """Every method on every case; one pass per rule table."""
    return explain(plan, model, targets, [case.foil for case in cases])


def explain(plan: MeasuringPlan, model: ReadyModel, targets: Any, foils: Any) -> Explained:
    longest = max(len(tokenized_text) for tokenized_text in model.tokenized_texts)
    found = model.explainer.explain_rows(
        model.tokenized_texts,
        model.method_configs,
        target=targets,
        foil=foils,
        run_options=RunOptions(
            batch_size=max(1, min(32, EXPLAINED_AT_ONCE // longest)),
            progress=False,
            fused=plan.fused,
            prepare=plan.protocol.prepare(model.explainer.tokenizer),
            instrumented=model.instrumented,
        ),
    )
    adjusted = {label: [plan.protocol.adjust(e) for e in results] for label, results in found.items()}
    if not plan.inverse:
        return adjusted
    absolute = any(measure.resolved_perturbation.absolute for measure in plan.measures("curves"))
    return {label: [turn_round(e, absolute) for e in results] for label, results in adjusted.items()}


def turn_round(explanation: Explanation, absolute: bool) -> Explanation:
    """The opposite order; where the order goes by |score|, the opposite of that."""
    scores = explanation.scores
    turned = scores.abs().max() - scores.abs() if absolute else -scores
    return replace(explanation, scores=turned)


def measure_cases(plan: MeasuringPlan, model: ReadyModel, cases: Sequence[Case], explained: Explained) -> list[Record]:
    """The cases' records with every method's values and curves."""
    curves = draw(plan, model, cases, explained)
    others = other_explanations(plan, model, cases)
    alike = []
    if plan.seeds:
        models = [explained_by_prediction(plan, model, explained), *explained_by_seeds(plan, cases)]
        alike = [likeness_of(models, i, plan.measures("models")) for i in range(len(cases))]
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
        weights = weights_of(plan, next(iter(explained.values()))[i], case.draft.marks)
        records.append(case.record | pairs | weights | {"methods": methods})
    return records


def draw(
    plan: MeasuringPlan, model: ReadyModel, cases: Sequence[Case], explained: Explained
) -> dict[Perturbation, list[Curve]]:
    """Of all methods together, method after method."""
    times = len(explained)
    return measure_curves(
        model.explainer,
        [e for results in explained.values() for e in results],
        [measure.resolved_perturbation for measure in plan.measures("curves")],
        [case.target for case in cases] * times,
        [case.foil for case in cases] * times,
        EvaluationOptions(instrumented=model.instrumented, tokenized_texts=model.tokenized_texts * times),
    )


def curve_values(plan: MeasuringPlan, curves: Mapping[Perturbation, Curve]) -> dict[str, float]:
    return {m.label: evaluate_curve(m, curves[m.resolved_perturbation]) for m in plan.measures("curves")}


def curve_points(plan: MeasuringPlan, curves: Mapping[Perturbation, Curve]) -> dict[str, list[float]]:
    """Each distinct curve under the first measure that reads it."""
    names: dict[Perturbation, str] = {}
    for measure in plan.measures("curves"):
        if measure.entry.points is not None:
            names.setdefault(measure.resolved_perturbation, measure.label)
    return {name: [float(f"{p:.6g}") for p in curves[one].probabilities.tolist()] for one, name in names.items()}


def weights_of(plan: MeasuringPlan, explanation: Explanation, marks: Tensor | None) -> dict[str, dict[str, int]]:
    """The marked units of a text, for micro-averages over units other than tokens, of which the record has the number.

    All methods have the same units.
    """
    measures = [m for m in plan.measures("marks") if m.entry.weighted and m.units not in (None, "tokens")]
    if marks is None or not measures:
        return {}
    return {"weights": {measure.label: count_marked(measure, explanation, marks) for measure in measures}}


def values_beside(
    measures: Sequence[Measure], one: Explanation, second: Tensor | Explanation | None
) -> dict[str, float]:
    return {measure.label: evaluate_scores(measure, one, second) for measure in measures}


def other_explanations(plan: MeasuringPlan, model: ReadyModel, cases: Sequence[Case]) -> Explained | None:
    """The same for another class, where a measure compares classes."""
    if plan.inverse or not plan.measures("classes"):
        return None
    return explain_cases(plan, model, cases, [other_class(case.target) for case in cases])


def explained_by_prediction(plan: MeasuringPlan, model: ReadyModel, explained: Explained) -> Explained:
    return explained if plan.protocol.target == "predicted" else explain(plan, model, None, None)


def explained_by_seeds(plan: MeasuringPlan, cases: Sequence[Case]) -> list[Explained]:
    """The other models' own predictions, explained."""
    texts = [case.draft.example.text for case in cases]
    return [
        explain(
            plan,
            ReadyModel(explainer, method_configs, InstrumentedModel(explainer.model), explainer.encode(texts)),
            None,
            None,
        )
        for explainer, method_configs in plan.seeds
    ]
