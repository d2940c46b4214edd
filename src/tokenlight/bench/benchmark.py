"""The benchmark: methods × metrics on a model and its data, from which a table is made. It can be stopped anywhere."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from tokenlight.bench.cases import Case, Item
from tokenlight.bench.chunk import Explained, Plan, run_chunk
from tokenlight.bench.protocol import Protocol
from tokenlight.bench.protocol import protocol as find_protocol
from tokenlight.bench.robustness import BETWEEN_MODELS
from tokenlight.bench.shown import keep_shown
from tokenlight.bench.tabulate import FORMAT, INVERSE, STAGES, VERSION, Table, best_method, read_table
from tokenlight.data.examples import Example
from tokenlight.data.source import Source
from tokenlight.explain.explainer import Explainer
from tokenlight.foundation.progress import counting
from tokenlight.methods import METHODS
from tokenlight.metrics.evaluate import DEFAULT_METRICS, Measure
from tokenlight.metrics.probability import check_probabilities
from tokenlight.results.explanation import library_versions
from tokenlight.runs.engines import Engine, check_local
from tokenlight.runs.hashing import hash_model
from tokenlight.runs.method_specs import (
    DEFAULT_METHODS,
    MethodSpec,
    choose_methods,
    describe_job,
    is_ready,
    parse_measure,
)
from tokenlight.runs.store import Journal, Record, claim, settle_run
from tokenlight.tasks.task import Gap
from tokenlight.text.rows import Text
from tokenlight.views.report import write_views

CHUNK = 32  # rows that are done together, and lost together when the process is killed
EVIDENCE_METRICS = ("pointing_game", "mean_reciprocal_rank", "relevance_mass", "per_token_accuracy")
BadRows = Literal["skip", "refuse"]
Perturb = Literal["delete", "pad", "mask"]


def bench(
    explainer: Explainer,
    source: str | Path | Sequence[Example | Text],
    methods: Sequence[str | MethodSpec] | None = None,
    metrics: Sequence[str | Measure] | None = None,
    *,
    protocol: str | Protocol | None = None,
    output: str | Path | None = None,
    perturb: Perturb | None = None,
    heads: Any = None,
    erasure: bool = True,
    seed_models: Sequence[Explainer] = (),
    bad_rows: BadRows = "skip",
    limit: int | None = None,
    text: str | None = None,
    pair: tuple[str, str] | None = None,
    label: str | None = None,
    kind: str | None = None,
    split: str | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    progress: bool = True,
) -> Table:
    """Methods × metrics with intervals, and the controls: random scores, erasure, the inverse of the best method.

    `source` is a file, "hf:NAME" or a list of texts or examples; `text`, `pair`, `label`, `kind` and `split` say how
    to read it. A method is a name, also with options ("mask_lrp:variant=released"), and so is a metric; `protocol` is a
    paper's way of judging in place of metrics. Results go to the folder `output`, from which a run that was stopped
    goes on. `seed_models` differ from the model in their seed: how alike their explanations are is measured too.
    `engine="ray"` spreads the examples over `workers`.
    """
    if bad_rows not in ("skip", "refuse"):
        raise ValueError(f"bad_rows is 'skip' or 'refuse', found {bad_rows!r}")
    data = Source(
        source if isinstance(source, str | Path) else as_examples(source), text, pair, label, kind, split, limit
    )
    if explainer.task.needs_position:
        raise ValueError("the benchmark has no data with a label for every token: give a model of another task")
    check_probabilities(explainer)
    judge = settle_protocol(protocol, metrics, perturb, data, explainer.task.gap, bool(seed_models))
    models = [explainer, *seed_models]
    specs = choose_methods(methods or defaults_for(models, heads), explainer.task.model, heads, erasure)
    fitted = [judge.fit(one) for one in models]
    check_models(fitted, judge)
    judge = replace(judge, measures=tuple(fit_measure(one, fitted[0]) for one in judge.measures))
    jobs = [{spec.label: spec.job(one.task.model, heads, seed) for spec in specs} for seed, one in enumerate(fitted)]
    for job in jobs[0].values():
        job.passes(split=False)  # an option with a wrong value is refused before anything is written
    plan = Plan(fitted[0], judge, jobs[0], tuple(zip(fitted[1:], jobs[1:], strict=True)))
    with ExitStack() as stack:
        run_chunks = stack.enter_context(choose_engine(engine, workers))
        folder = Path(output or stack.enter_context(TemporaryDirectory()))
        stack.enter_context(claim(folder))
        settle_run(folder, describe_run(models, data, specs, plan))
        return Runner(folder, plan, data, bad_rows, progress, run_chunks).run()


def as_examples(given: Sequence[Example | Text]) -> list[Example]:
    return [one if isinstance(one, Example) else Example(str(i), one) for i, one in enumerate(given)]


@dataclass(frozen=True)
class Runner:
    """A run whose settings are stored."""

    folder: Path
    plan: Plan
    data: Source
    bad_rows: BadRows
    progress: bool
    run_chunks: Callable[["ChunkWork", Callable[[], Iterator[list[Item]]]], Iterator[Any]]  # results in order

    def run(self) -> Table:
        self.stage(STAGES[0], self.plan)
        best = best_method(self.folder)
        self.stage(STAGES[1], inverse_of(self.plan, best))
        table = read_table(self.folder)
        write_views(table, self.folder)
        return table

    def stage(self, name: str, plan: Plan) -> None:
        """Chunk after chunk, from where the journal ends."""
        journal = Journal(self.folder / name)
        done = journal.recover()
        chunks = partial(read_chunks, self.data, plan.explainer.task.gap, done, CHUNK)
        total = self.data.count(plan.explainer.task.gap) if self.progress else None
        label = "turning round" if plan.inverse else "measuring"
        with counting(label, total, min(done * CHUNK, total or 0), show=self.progress) as advance:
            results = self.run_chunks(ChunkWork(plan), chunks)
            for group, (records, cases, explained) in enumerate(results, done):
                self.refuse_bad(records)
                if not plan.inverse:
                    keep_shown(self.folder, cases, explained)
                journal.append(group, records)
                advance(len(records))

    def refuse_bad(self, records: Sequence[Mapping[str, Any]]) -> None:
        for record in records if self.bad_rows == "refuse" else ():
            if "bad" in record:
                raise ValueError(f"{record['where']}: {record['bad']}. Mend the row, or skip bad rows")


@dataclass(frozen=True)
class ChunkWork:
    """What is done to every chunk, wherever it runs."""

    plan: Plan

    @property
    def explainers(self) -> list[Explainer]:
        return [self.plan.explainer, *(explainer for explainer, _ in self.plan.seeds)]

    def do(self, items: list[Item]) -> tuple[list[Record], list[Case], Explained]:
        return run_chunk(self.plan, items)


def read_chunks(data: Source, gap: Gap | None, done: int, size: int) -> Iterator[list[Item]]:
    """Numbered rows, `size` at a time, behind those that are done."""
    rows = islice(enumerate(data.read(gap)), done * size, None)
    return iter(lambda: list(islice(rows, size)), [])


@contextmanager
def choose_engine(engine: Engine, workers: int | None) -> Iterator[Callable[[ChunkWork, Any], Iterator[Any]]]:
    """One chunk after another in this process, or several at once by Ray."""
    if engine == "ray":
        from tokenlight.runs.ray_workers import find_workers, running_ray, spread

        with running_ray():
            yield partial(spread, workers=find_workers(workers, None), ordered=True)
        return
    check_local(engine, workers)
    yield lambda work, chunks: map(work.do, chunks())


def inverse_of(plan: Plan, best: str) -> Plan:
    """The plan with the best method alone, turned round."""
    seeds = tuple((explainer, {INVERSE + best: jobs[best]}) for explainer, jobs in plan.seeds)
    return replace(plan, jobs={INVERSE + best: plan.jobs[best]}, seeds=seeds, inverse=True)


def settle_protocol(
    given: str | Protocol | None,
    metrics: Sequence[str | Measure] | None,
    perturb: Perturb | None,
    data: Source,
    gap: Gap | None,
    seeds: bool,
) -> Protocol:
    """The paper's, or the clean one with the metrics that were named or that suit the data."""
    example = data.first(gap)
    if given is not None:
        if metrics or perturb:
            raise ValueError("a protocol says itself what is measured and how: leave metrics and perturb out")
        judge = find_protocol(given) if isinstance(given, str) else given
    else:
        named = metrics or suiting_metrics(example)
        judge = Protocol("clean", tuple(with_change(parse_measure(one), perturb) for one in named))
    asked = [m.label for m in judge.measures if m.entry.name in BETWEEN_MODELS]
    if asked and not seeds:
        raise ValueError(f"{', '.join(asked)} compares models that differ in their seed: name others as seed models")
    if seeds and not asked:
        judge = replace(judge, measures=(*judge.measures, *(Measure(name) for name in BETWEEN_MODELS)))
    return judge


def suiting_metrics(example: Example | None) -> tuple[str, ...]:
    if example is not None and example.evidence:
        return EVIDENCE_METRICS
    return (*DEFAULT_METRICS, "recall_at_k") if example is not None and example.answer else DEFAULT_METRICS


def with_change(measure: Measure, perturb: Perturb | None) -> Measure:
    """The measure with tokens deleted, or replaced by the padding or the mask token; its grid stays."""
    if perturb is None or measure.entry.kind != "perturbation":
        return measure
    return replace(measure, perturbation=measure.settled.by(perturb))


def fit_measure(measure: Measure, explainer: Explainer) -> Measure:
    """With everything settled that depends on the model, so that a stored run says what was done."""
    if measure.entry.kind != "perturbation":
        return measure
    return replace(measure, perturbation=measure.settled.fit(explainer.task.model, explainer.tokenizer))


def defaults_for(models: Sequence[Explainer], heads: Any) -> list[str] | None:
    """None, or with several models those default methods that all of them can run."""
    if len(models) == 1:
        return None
    return [n for n in DEFAULT_METHODS if all(is_ready(METHODS[n], one.task.model, heads) for one in models)]


def check_models(models: Sequence[Explainer], judge: Protocol) -> None:
    """Models that are compared classify alike; comparing classes needs classes."""
    classify = all(one.task.compares_classes for one in models)
    if len(models) > 1 and (not classify or len({str(m.task.labels) for m in models}) > 1):
        raise ValueError("seed models must be text classifiers with the same labels")
    compares = [m.label for m in judge.measures if m.entry.needs == "others" and m.entry.name not in BETWEEN_MODELS]
    if compares and (not classify or models[0].task.outputs < 2):
        raise ValueError(f"{', '.join(compares)} compares classes: it needs a text classifier with two or more")


def describe_run(models: Sequence[Explainer], data: Source, specs: Sequence[MethodSpec], plan: Plan) -> dict[str, Any]:
    """Everything that the results depend on."""
    named = [{"name": one.task.model.config.name_or_path, "sha256": hash_model(one)} for one in models]
    methods = {
        spec.label: {"title": spec.title, "control": spec.control, **describe_job(plan.jobs[spec.label])}
        for spec in specs
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": {**named[0], "task": models[0].task.name},
        "seed_models": named[1:],
        "data": data.describe(),
        "methods": methods,
        "protocol": json.loads(json.dumps(asdict(plan.protocol), default=sorted)),
        "chunk": CHUNK,
        "versions": library_versions(),
    }
