"""The benchmark: methods × metrics on a model and its data, from which a table is made. It can be stopped anywhere."""

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from tokenlight.bench.measure import FILE as SHOWN
from tokenlight.bench.measure import MeasuringPlan, keep_shown, read_shown
from tokenlight.bench.protocol import Protocol
from tokenlight.bench.protocol import protocol as find_protocol
from tokenlight.bench.stored_results import FORMAT, VERSION
from tokenlight.bench.tabulate import INVERSE, STAGES, best_method, read_table
from tokenlight.common.error_location import OWN_CODE, UNEXPECTED, describe_own_code, in_own_code, refuse_own_code
from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import BadRows, RemovalName
from tokenlight.common.progress import count_progress
from tokenlight.data.data_source import Data, DataSource, as_source
from tokenlight.data.examples import Example, split_into_chunks
from tokenlight.data.read import EXAMPLE_COLUMNS, first_example, read_examples
from tokenlight.explain.execute import refuse_to_write_out
from tokenlight.explain.explainer import Explainer
from tokenlight.heads.mask import HeadsLike
from tokenlight.methods import METHODS
from tokenlight.metrics import metrics_between
from tokenlight.metrics.evaluate import DEFAULT_METRICS, Measure
from tokenlight.metrics.probability import check_probabilities
from tokenlight.results.tables import Table
from tokenlight.runs.engines import Place, open_place
from tokenlight.runs.method_specs import (
    DEFAULT_METHODS,
    MethodSpec,
    choose_methods,
    describe_config,
    is_ready,
    parse_measure,
)
from tokenlight.runs.model_hash import describe_model
from tokenlight.runs.run_folder import (
    Journal,
    check_settings,
    claim,
    describe_run,
    refuse_folder_of_data,
    warn_of_changed_data,
)
from tokenlight.runs.workers import THIS_PROCESS, Workers
from tokenlight.views.benchmark_report import VIEWS, write_views

CHUNK_ROWS = 32  # rows that are done together, and lost together when the process is killed
ANSWER_METRICS = ("top_k_drop:k=1", "linear_datamodeling_score:")  # of units, which are named behind them
EVIDENCE_OF_ANSWERS = ("pointing_game:k=1", "mean_reciprocal_rank:")
EVIDENCE_METRICS = ("pointing_game", "mean_reciprocal_rank", "relevance_mass", "per_token_accuracy")


def bench(
    explainer: Explainer,
    source: Data | DataSource,
    methods: Sequence[str | MethodSpec] | None = None,
    metrics: Sequence[str | Measure] | None = None,
    *,
    protocol: str | Protocol | None = None,
    output: str | Path | None = None,
    removal: RemovalName | None = None,
    heads: HeadsLike = None,
    erasure: bool = True,
    fused: bool | None = None,
    seed_models: Sequence[Explainer] = (),
    bad_rows: BadRows = "skip",
    workers: Workers = THIS_PROCESS,
    progress: bool = True,
) -> Table:
    """Methods × metrics with intervals, and the controls: random scores, erasure, the inverse of the best method.

    `source` is a file, "hf:NAME" or a list of texts or examples; a `DataSource` says which columns and how many rows
    are
    read. A method is a name, which may carry options ("mask_lrp:variant=released"), and so is a metric; `protocol` is a
    paper's protocol, used instead of metrics. Results go to the folder `output`, where a run that was stopped
    continues. `seed_models` differ from the model in their random seed; how similar their explanations are is measured
    too.
    `fused` decides for every method whether attention is one operation or written out, as in `explain`.
    `Workers("ray")` spread the examples over processes or machines.
    """
    if bad_rows not in get_args(BadRows):
        raise RefusedValue(f"bad_rows is 'skip' or 'refuse', found {bad_rows!r}")
    data = with_examples(as_source(source))
    if explainer.task.needs_position:
        raise RefusedValue("the benchmark has no data with a label for every token: give a model of another task")
    check_probabilities(explainer)
    example = first_example(data, explainer.task.gap)
    if example is not None and example.reply is not None and not explainer.task.reads_on:
        raise RefusedValue(f"answers are what language models write; this is a {explainer.task.name} model")
    judge = resolve_protocol(protocol, metrics, removal, example, bool(seed_models))
    models = [explainer, *seed_models]
    if seed_models and judge.random_runs > 1:
        raise RefusedValue("random_runs and seed models both decide the seed of random scores: use one of them")
    named = methods or defaults_for(models, heads)
    specs = choose_methods(named, explainer.inner, heads, erasure, judge.random_runs)
    fitted = [judge.fit(one) for one in models]
    check_models(fitted, judge)
    judge = replace(judge, measures=tuple(fit_measure(one, fitted[0]) for one in judge.measures))
    method_configs = [
        {spec.label: spec.method_config(one.inner, heads, seed) for spec in specs} for seed, one in enumerate(fitted)
    ]
    for method_config in method_configs[0].values():
        method_config.passes(split=False)  # an option with a wrong value is refused before anything is written
    if fused:
        refuse_to_write_out(method_configs[0].values())
    run_of = {spec.label: spec.run_of for spec in specs if spec.run_of}
    seeds = tuple(zip(fitted[1:], method_configs[1:], strict=True))
    plan = MeasuringPlan(fitted[0], judge, method_configs[0], seeds, fused=fused, run_of=run_of)
    with ExitStack() as stack:
        place = stack.enter_context(open_place(workers, explainer))
        folder = Path(output or stack.enter_context(TemporaryDirectory()))
        refuse_folder_of_data(folder, data)
        stack.enter_context(claim(folder))
        check_settings(folder, describe(models, data, specs, plan), (*VIEWS, SHOWN))
        return Runner(folder, plan, data, bad_rows, progress, place).run()


def with_examples(source: DataSource) -> DataSource:
    """Texts in memory become examples."""
    if isinstance(source.data, str | Path):
        return source
    known = [
        one if isinstance(one, Example | Mapping) else Example(str(number), one)
        for number, one in enumerate(source.data)
    ]
    return replace(source, data=known)


@dataclass(frozen=True)
class Runner:
    """A run whose settings are stored."""

    folder: Path
    plan: MeasuringPlan
    data: DataSource
    bad_rows: BadRows
    progress: bool
    place: Place

    def run(self) -> Table:
        read_shown(self.folder)  # a damaged file is refused before anything is measured
        self.stage(STAGES[0], self.plan)
        best = best_method(self.folder)
        self.stage(STAGES[1], inverse_of(self.plan, best))
        warn_of_changed_data(self.folder, self.data)
        table = read_table(self.folder)
        write_views(table, self.folder, read_shown(self.folder))
        warn_of_bugs(table)
        return table

    def stage(self, name: str, plan: MeasuringPlan) -> None:
        """Part after part, without those that the journal holds."""
        journal = Journal(self.folder / name)
        done = self.recover(journal, plan)
        self.refuse_bad(journal.records())  # a run that skipped them may be continued by one that refuses them
        read = partial(read_examples, self.data, plan.explainer.task.gap)
        parts = partial(split_into_chunks, read, CHUNK_ROWS, done, self.data.row_numbers)
        total = self.data.count() if self.progress else None
        label = "turning round" if plan.inverse else "measuring"
        with count_progress(
            label, total, min(len(done) * CHUNK_ROWS, total or 0), self.progress, at_once=True
        ) as advance:
            missing = (group for group in count() if group not in done)
            measured = any("methods" in record for record in journal.records())
            for group, found in zip(missing, self.place.run(plan, parts, advance), strict=False):
                measured = measured or bool(found.cases)
                if not measured and in_own_code(found.reasons):  # at its first call, which may be in any part
                    raise refuse_own_code(found.reasons)
                self.refuse_bad(found.records)
                if not plan.inverse:
                    keep_shown(self.folder, found.cases, plan.by_line(found.explained))
                journal.append(group, found.records)

    def recover(self, journal: Journal, plan: MeasuringPlan) -> frozenset[int]:
        """The groups that need not be measured again.

        Groups that were damaged and measured again may have made another method the best. Then nothing of what was
        measured about the inverse of the former one can be used.
        """
        done, damage = journal.recover()
        warn_of_damage(journal.path, damage)
        stored = (set(record["methods"]) for record in journal.records() if "methods" in record)
        if plan.inverse and any(labels != set(plan.method_configs) for labels in stored):
            journal.path.unlink()
            return frozenset()
        return done

    def refuse_bad(self, records: Iterable[Mapping[str, Any]]) -> None:
        for record in records if self.bad_rows == "refuse" else ():
            if "bad" in record:
                what = "your code" if OWN_CODE in record["bad"] else "the row"
                raise RefusedValue(f"{record['where']}: {record['bad']}. Correct {what}, or skip bad rows")


def warn_of_damage(path: Path, damage: Sequence[str]) -> None:
    if damage:
        warnings.warn(
            f"{path} was damaged: {'; '.join(damage[:3])}. What is not as it was written is measured again",
            RuntimeWarning,
            stacklevel=6,
        )


def warn_of_bugs(table: Table) -> None:
    """Rows that a bug kept from being measured, ours or the caller's, are counted where nobody can miss it."""
    reasons = [record["bad"] for record in table.run.bad]
    ours, own = [reason for reason in reasons if UNEXPECTED in reason], in_own_code(reasons)
    measured = f"{table.run.examples} are measured"
    if ours:
        message = f"{len(ours)} rows were set aside because of a bug, {measured}. The first: {ours[0]}"
        warnings.warn(message, RuntimeWarning, stacklevel=5)
    if own:
        message = f"{len(own)} rows were set aside because your own code failed on them, {measured}"
        warnings.warn(f"{message}: {describe_own_code(own)}", RuntimeWarning, stacklevel=5)


def inverse_of(plan: MeasuringPlan, best: str) -> MeasuringPlan:
    """The plan with the best method alone, turned round."""
    seeds = tuple((explainer, {INVERSE + best: method_configs[best]}) for explainer, method_configs in plan.seeds)
    return replace(plan, method_configs={INVERSE + best: plan.method_configs[best]}, seeds=seeds, inverse=True)


def resolve_protocol(
    given: str | Protocol | None,
    metrics: Sequence[str | Measure] | None,
    removal: RemovalName | None,
    example: Example | None,
    seeds: bool,
) -> Protocol:
    """The paper's, or the clean one with the metrics that were named or that suit the data."""
    if given is not None:
        if metrics or removal:
            raise RefusedValue("a protocol says itself what is measured and how: leave metrics and perturb out")
        judge = find_protocol(given) if isinstance(given, str) else given
    else:
        named = metrics or suiting_metrics(example)
        judge = Protocol("clean", tuple(with_removal(parse_measure(one), removal) for one in named))
    asked = [m.label for m in judge.measures if m.entry.compares == "models"]
    if asked and not seeds:
        raise RefusedValue(f"{', '.join(asked)} compares models that differ in their seed: name others as seed models")
    if seeds and not asked:
        judge = replace(judge, measures=(*judge.measures, *(Measure(name) for name in metrics_between("models"))))
    return judge


def suiting_metrics(example: Example | None) -> tuple[str, ...]:
    if example is not None and example.reply is not None:
        units = "units=documents" if example.documents else "units=sentences"
        named = (*ANSWER_METRICS, *(EVIDENCE_OF_ANSWERS if example.rests_on else ()))
        return tuple(one + units if one.endswith(":") else f"{one},{units}" for one in named)
    if example is not None and example.evidence:
        return EVIDENCE_METRICS
    return (*DEFAULT_METRICS, "recall_at_k") if example is not None and example.answer else DEFAULT_METRICS


def with_removal(measure: Measure, removal: RemovalName | None) -> Measure:
    """The measure with tokens deleted, or replaced by the padding or the mask token; its grid stays."""
    if removal is None or measure.entry.kind != "perturbation":
        return measure
    return replace(measure, perturbation=measure.resolved_perturbation.by(removal))


def fit_measure(measure: Measure, explainer: Explainer) -> Measure:
    """With everything settled that depends on the model, so that a stored run says what was done."""
    if measure.entry.kind != "perturbation":
        return measure
    return replace(measure, perturbation=measure.resolved_perturbation.fit(explainer.inner, explainer.tokenizer))


def defaults_for(models: Sequence[Explainer], heads: HeadsLike) -> list[str] | None:
    """None, or with several models those default methods that all of them can run."""
    if len(models) == 1:
        return None
    return [n for n in DEFAULT_METHODS if all(is_ready(METHODS[n], one.inner, heads) for one in models)]


def check_models(models: Sequence[Explainer], judge: Protocol) -> None:
    """Models that are compared classify alike; comparing classes needs classes."""
    classify = all(one.task.compares_classes for one in models)
    if len(models) > 1 and (not classify or len({str(m.task.labels) for m in models}) > 1):
        raise RefusedValue("seed models must be text classifiers with the same labels")
    compares = [m.label for m in judge.measures if m.entry.compares == "classes"]
    if compares and (not classify or models[0].task.outputs < 2):
        raise RefusedValue(f"{', '.join(compares)} compares classes: it needs a text classifier with two or more")


def describe(
    models: Sequence[Explainer], data: DataSource, specs: Sequence[MethodSpec], plan: MeasuringPlan
) -> dict[str, Any]:
    """Everything that the results depend on."""
    methods = {
        spec.label: {"title": spec.title, "control": spec.control, **describe_config(plan.method_configs[spec.label])}
        | ({"run_of": spec.run_of} if spec.run_of else {})
        for spec in specs
    }
    judge = asdict(plan.protocol)
    judge.pop("random_runs")  # the methods say it
    more = {
        "seed_models": [describe_model(one) for one in models[1:]],
        "protocol": json.loads(json.dumps(judge, default=sorted)),
        "fused": plan.fused,
        "chunk": CHUNK_ROWS,
    }
    return describe_run((FORMAT, VERSION), models[0], data.describe(EXAMPLE_COLUMNS), methods, more)
