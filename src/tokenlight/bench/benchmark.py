"""The benchmark: methods × metrics on a model and its data, and the table of results. A run can be continued."""

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

from tokenlight.bench.measure_chunk import EXAMPLES_FILE, MeasuringPlan, keep_examples, read_kept_examples
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
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.passes import refuse_methods_that_need_attention_weights
from tokenlight.heads.mask import HeadsLike
from tokenlight.methods import METHODS
from tokenlight.metrics import metrics_between
from tokenlight.metrics.evaluate import DEFAULT_METRICS, Measure
from tokenlight.metrics.probability import check_probabilities
from tokenlight.results.tables import Table
from tokenlight.runs.engines import Engine, open_engine
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
    describe_run,
    lock_folder,
    refuse_folder_of_data,
    warn_of_changed_data,
)
from tokenlight.runs.workers import THIS_PROCESS, Workers
from tokenlight.views.benchmark_report import VIEWS, write_views

CHUNK_ROWS = 32  # rows that are measured and stored together; if the process is killed, they are measured again
ANSWER_METRICS = ("top_k_drop:k=1", "linear_datamodeling_score:")  # completed by units=
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

    `source` is a file, "hf:NAME" or a list of texts or examples; a `DataSource` also names columns and limits rows.
    Methods and metrics are names, which may have options ("mask_lrp:variant=released"); `protocol` is a paper's
    protocol, used instead of metrics. Results are stored in the folder `output`; the same call continues a run that was
    stopped. `seed_models` differ from the model in their random seed; the similarity of their explanations is measured,
    too. `fused` decides for every method whether attention is one operation, as in `explain`. `Workers("ray")`
    distributes the examples over processes or machines.
    """
    if bad_rows not in get_args(BadRows):
        raise RefusedValue(f"bad_rows is 'skip' or 'refuse', found {bad_rows!r}")
    data = with_examples(as_source(source))
    if explainer.task.needs_position:
        raise RefusedValue("the benchmark does not measure models that predict a label for every token")
    check_probabilities(explainer)
    example = first_example(data, explainer.task.gap)
    if example is not None and example.reply is not None and not explainer.task.generates:
        raise RefusedValue(f"only language models write answers; this is a {explainer.task.name} model")
    resolved = resolve_protocol(protocol, metrics, removal, example, bool(seed_models))
    models = [explainer, *seed_models]
    if seed_models and resolved.random_runs > 1:
        raise RefusedValue("random_runs and seed models both decide the seed of random scores: use one of them")
    names = methods or defaults_for(models, heads)
    specs = choose_methods(names, explainer.inner, heads, erasure, resolved.random_runs)
    fitted = [resolved.fit(model) for model in models]
    check_models(fitted, resolved)
    resolved = replace(resolved, measures=tuple(fit_measure(measure, fitted[0]) for measure in resolved.measures))
    method_configs = [
        {spec.label: spec.method_config(model.inner, heads, seed) for spec in specs}
        for seed, model in enumerate(fitted)
    ]
    for method_config in method_configs[0].values():
        method_config.passes(split=False)  # an option with a wrong value is refused before anything is written
    if fused:
        refuse_methods_that_need_attention_weights(method_configs[0].values())
    run_of = {spec.label: spec.run_of for spec in specs if spec.run_of}
    seeds = tuple(zip(fitted[1:], method_configs[1:], strict=True))
    plan = MeasuringPlan(fitted[0], resolved, method_configs[0], seeds, fused=fused, run_of=run_of)
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(workers, explainer))
        folder = Path(output or stack.enter_context(TemporaryDirectory()))
        refuse_folder_of_data(folder, data)
        stack.enter_context(lock_folder(folder))
        check_settings(folder, describe(models, data, specs, plan), (*VIEWS, EXAMPLES_FILE))
        return Runner(folder, plan, data, bad_rows, progress, engine).run()


def with_examples(source: DataSource) -> DataSource:
    """Convert texts in memory into examples with numbers as ids."""
    if isinstance(source.data, str | Path):
        return source
    examples = [
        item if isinstance(item, Example | Mapping) else Example(str(number), item)
        for number, item in enumerate(source.data)
    ]
    return replace(source, data=examples)


@dataclass(frozen=True)
class Runner:
    """Runs a benchmark whose settings are stored in a folder."""

    folder: Path
    plan: MeasuringPlan
    data: DataSource
    bad_rows: BadRows
    progress: bool
    engine: Engine

    def run(self) -> Table:
        read_kept_examples(self.folder)  # refuse a damaged file before anything is measured
        self.run_stage(STAGES[0], self.plan)
        best = best_method(self.folder)
        self.run_stage(STAGES[1], inverse_of(self.plan, best))
        warn_of_changed_data(self.folder, self.data)
        table = read_table(self.folder)
        write_views(table, self.folder, read_kept_examples(self.folder))
        warn_of_bugs(table)
        return table

    def run_stage(self, name: str, plan: MeasuringPlan) -> None:
        """Measure and store all chunks that are not in the journal of the stage."""
        journal = Journal(self.folder / name)
        done = self.recover(journal, plan)
        self.refuse_bad(journal.records())  # a run with bad_rows="skip" may be continued with "refuse"
        read = partial(read_examples, self.data, plan.explainer.task.gap)
        read_chunks = partial(split_into_chunks, read, CHUNK_ROWS, done, self.data.row_numbers)
        total = self.data.count() if self.progress else None
        label = "measuring the inverse" if plan.inverse else "measuring"
        with count_progress(
            label, total, min(len(done) * CHUNK_ROWS, total or 0), self.progress, at_once=True
        ) as advance:
            missing = (group for group in count() if group not in done)
            measured = any("methods" in record for record in journal.records())
            for group, chunk in zip(missing, self.engine.run(plan, read_chunks, advance), strict=False):
                measured = measured or bool(chunk.cases)
                if not measured and in_own_code(chunk.reasons):  # the caller's code failed before any row was measured
                    raise refuse_own_code(chunk.reasons)
                self.refuse_bad(chunk.records)
                if not plan.inverse:
                    keep_examples(self.folder, chunk.cases, plan.by_line(chunk.explained))
                journal.append(group, chunk.records)

    def recover(self, journal: Journal, plan: MeasuringPlan) -> frozenset[int]:
        """The groups that need not be measured again.

        If damaged groups were measured again, another method may have become the best. Then the stored results of the
        inverse of the former best method are removed.
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
    """Warn of rows that were set aside because of a bug, in tokenlight or in the caller's code."""
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
    """The plan for the inverse of the best method."""
    seeds = tuple((explainer, {INVERSE + best: method_configs[best]}) for explainer, method_configs in plan.seeds)
    return replace(plan, method_configs={INVERSE + best: plan.method_configs[best]}, seeds=seeds, inverse=True)


def resolve_protocol(
    given: str | Protocol | None,
    metrics: Sequence[str | Measure] | None,
    removal: RemovalName | None,
    example: Example | None,
    seeds: bool,
) -> Protocol:
    """The given protocol, or the clean one with the given metrics, or with metrics that suit the data."""
    if given is not None:
        if metrics or removal:
            raise RefusedValue("a protocol defines metrics and removal: leave metrics and removal out")
        resolved = find_protocol(given) if isinstance(given, str) else given
    else:
        names = metrics or default_metrics(example)
        resolved = Protocol("clean", tuple(with_removal(parse_measure(metric), removal) for metric in names))
    labels = [measure.label for measure in resolved.measures if measure.entry.compares == "models"]
    if labels and not seeds:
        raise RefusedValue(f"{', '.join(labels)} compares models that differ in their seed: name others as seed models")
    if seeds and not labels:
        resolved = replace(
            resolved, measures=(*resolved.measures, *(Measure(name) for name in metrics_between("models")))
        )
    return resolved


def default_metrics(example: Example | None) -> tuple[str, ...]:
    """Metrics that suit the data, judged by its first example."""
    if example is not None and example.reply is not None:
        units = "units=documents" if example.documents else "units=sentences"
        metrics = (*ANSWER_METRICS, *(EVIDENCE_OF_ANSWERS if example.rests_on else ()))
        return tuple(metric + units if metric.endswith(":") else f"{metric},{units}" for metric in metrics)
    if example is not None and example.evidence:
        return EVIDENCE_METRICS
    return (*DEFAULT_METRICS, "recall_at_k") if example is not None and example.answer else DEFAULT_METRICS


def with_removal(measure: Measure, removal: RemovalName | None) -> Measure:
    """The measure with tokens deleted, or replaced by the padding or the mask token; its grid stays."""
    if removal is None or measure.entry.kind != "perturbation":
        return measure
    return replace(measure, perturbation=replace(measure.resolved_perturbation, removal=removal))


def fit_measure(measure: Measure, explainer: Explainer) -> Measure:
    """The measure with settings that depend on the model resolved, so that they can be stored."""
    if measure.entry.kind != "perturbation":
        return measure
    return replace(measure, perturbation=measure.resolved_perturbation.fit(explainer.inner, explainer.tokenizer))


def defaults_for(models: Sequence[Explainer], heads: HeadsLike) -> list[str] | None:
    """None for one model; for several, the default methods that all of them can run."""
    if len(models) == 1:
        return None
    return [name for name in DEFAULT_METHODS if all(is_ready(METHODS[name], model.inner, heads) for model in models)]


def check_models(models: Sequence[Explainer], protocol: Protocol) -> None:
    """Refuse seed models that are not classifiers with the same labels, and metrics that do not suit the model."""
    classify = all(model.task.compares_classes for model in models)
    if len(models) > 1 and (not classify or len({str(m.task.labels) for m in models}) > 1):
        raise RefusedValue("seed models must be text classifiers with the same labels")
    compares = [m.label for m in protocol.measures if m.entry.compares == "classes"]
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
    protocol = asdict(plan.protocol)
    protocol.pop("random_runs")  # the stored methods show it
    settings = {
        "seed_models": [describe_model(model) for model in models[1:]],
        "protocol": json.loads(json.dumps(protocol, default=sorted)),
        "fused": plan.fused,
        "chunk": CHUNK_ROWS,
    }
    return describe_run((FORMAT, VERSION), models[0], data.describe(EXAMPLE_COLUMNS), methods, settings)
