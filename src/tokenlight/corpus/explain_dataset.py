"""A whole corpus, explained into a folder of Parquet files. It can be stopped anywhere and goes on from there."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch

from tokenlight.corpus.first_texts import try_out
from tokenlight.corpus.parts import Plan, Settings, explain_part
from tokenlight.data.corpus import Corpus, Part
from tokenlight.explain.explainer import DEFAULT_METHOD, Explainer
from tokenlight.explain.running import Job
from tokenlight.results.explanation import library_versions
from tokenlight.runs.engines import Engine, check_local
from tokenlight.runs.hashing import hash_model
from tokenlight.runs.method_specs import MethodSpec, describe_job
from tokenlight.runs.pace import pacing
from tokenlight.runs.store import RUN_FILE, claim, read_run, settle_run

FORMAT, VERSION = "tokenlight.corpus", 1
TOKENS = {"cpu": 512, "cuda": 8192}  # more do not make a processor faster, but take more memory


@dataclass(frozen=True)
class ExplainedCorpus:
    """Where the results are, and how many."""

    folder: Path
    parts: int
    rows: int
    explained: int
    bad: int


@dataclass(frozen=True)
class Work:
    """A part goes in, its shard is in the folder: the same wherever it runs."""

    plan: Plan
    folder: Path
    about: Mapping[str, Any]  # what every shard says about itself

    @property
    def explainers(self) -> tuple[Explainer, ...]:
        return (self.plan.explainer,)

    def do(self, part: Part, tell: Callable[[float], None] = lambda rows: None) -> int:
        """The number of rows that are done; `tell` hears of them on the way."""
        from tokenlight.corpus.shards import read_counts, shard_path, write_part

        shard = shard_path(self.folder, part.number)
        if shard.exists():  # written by a worker that died before it could say so
            return read_counts(shard).rows
        with torch_threads(self.plan.settings.threads):
            found = explain_part(self.plan, part, tell)
        return write_part(self.folder, found, self.plan.settings, self.about).rows


@dataclass(frozen=True)
class Place:
    """Where parts are done, and how."""

    run: Callable[[Work, Corpus, Set[int], Callable[[float], None]], None]  # tells how many rows are done
    device: str
    threads: int


def explain_dataset(
    explainer: Explainer,
    source: str | Path | Sequence[Any],
    output: str | Path,
    methods: Sequence[str | MethodSpec] = (DEFAULT_METHOD,),
    *,
    heads: Any = None,
    target: str | int | None = None,
    foil: str | int | None = None,
    text: str | None = None,
    pair: tuple[str, str] | None = None,
    id_column: str | None = None,
    target_column: str | None = None,
    foil_column: str | None = None,
    kind: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    window: int | None = None,
    overlap: int | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    keep_text: bool = True,
    tokens: int | None = None,
    part_rows: int = 1000,
    low_memory: bool = False,
    engine: Engine = "local",
    workers: int | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> ExplainedCorpus:
    """Explain every text of a corpus with one or more methods into Parquet files in the folder `output`.

    `source` is a file (Parquet, JSON lines, CSV, TSV, text), a folder of such, "hf:NAME" or a sequence of texts, pairs
    or rows; `text`, `pair`, `id_column`, `kind` and `split` say how to read it. `target` and `foil` are the same for
    every text, or come from columns; by default the prediction is explained. Texts that are too long are cut off, or
    with `window` and `overlap` (tokens) read in windows. `tokens` run together, padding included (default: as suits
    the device); `part_rows` are lost when the process is killed, and done again by the same call. `engine="ray"`
    spreads the parts over `workers`; `threads` are torch's, in each of them. docs/scale.md says more.
    """
    corpus = Corpus(source, text, pair, id_column, target_column, foil_column, kind, split, limit)
    folder = Path(output)
    settings = Settings(
        part_rows=part_rows,
        tokens=TOKENS["cpu"] if tokens is None else tokens,
        window=window,
        overlap=window // 4 if window is not None and overlap is None else overlap,
        dtype=dtype,
        keep_text=keep_text,
        target=target,
        foil=foil,
        low_memory=low_memory,
    )
    check_settings(settings, explainer)
    jobs = make_jobs(explainer, methods, heads)
    with choose_place(engine, workers, threads or stored_threads(folder), explainer) as place:
        budget = TOKENS.get(place.device, TOKENS["cpu"]) if tokens is None else tokens
        plan = Plan(explainer, jobs, replace(settings, tokens=budget, device=place.device, threads=place.threads))
        if not has_results(folder):
            try_out(plan, corpus)
        with claim(folder):
            check_folder(folder)
            settle_run(folder, describe_run(plan, corpus))
            # What is stored, so that all shards say the same, also of a run that goes on under another path.
            return run_parts(Work(plan, folder, read_run(folder)), corpus, place, progress)


def run_parts(work: Work, corpus: Corpus, place: Place, progress: bool) -> ExplainedCorpus:
    """The parts whose shard is not there yet."""
    from tokenlight.corpus import shards as shards

    folder = work.folder
    shards.sweep(folder)
    done = frozenset(shards.shards(folder))
    if not shards.is_finished(folder):
        (folder / shards.DONE).unlink(missing_ok=True)
        total = corpus.count() if progress else None
        before = len(done) * work.plan.settings.part_rows
        with pacing(total, before if total is None else min(before, total), progress) as advance:
            place.run(work, corpus, done, advance)
        shards.sweep(folder)  # of a worker that died
        shards.finish(folder)
    parts = shards.shards(folder).values()
    counts = sum(map(shards.read_counts, parts), shards.PartCounts())
    return ExplainedCorpus(folder, len(parts), counts.rows, counts.explained, counts.bad)


def run_local(work: Work, corpus: Corpus, done: Set[int], tell: Callable[[float], None]) -> None:
    """One part after another in this process."""
    for part in corpus.parts(work.plan.settings.part_rows):
        if part.number not in done:
            work.do(part, tell)


@contextmanager
def choose_place(engine: Engine, workers: int | None, threads: int | None, explainer: Explainer) -> Iterator[Place]:
    """Where the parts are done."""
    if engine == "ray":
        from tokenlight.runs.ray_workers import place_on_ray

        with place_on_ray(workers, threads) as place:
            yield place
        return
    check_local(engine, workers)
    yield Place(run_local, explainer.model.device.type, threads or torch.get_num_threads())


def make_jobs(explainer: Explainer, methods: Sequence[str | MethodSpec], heads: Any) -> dict[str, Job]:
    """By label; an option with a wrong value is refused before anything is written."""
    if isinstance(methods, str):
        raise TypeError(f"methods is a list of names, found {methods!r}")
    specs = [MethodSpec.parse(one) for one in methods]
    labels = [spec.label for spec in specs]
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"name at least one method, and each once; found {', '.join(labels) or 'none'}")
    jobs = {spec.label: spec.job(explainer.task.model, heads) for spec in specs}
    for job in jobs.values():
        job.passes(split=False)
    return jobs


def check_settings(settings: Settings, explainer: Explainer) -> None:
    for name in ("part_rows", "tokens", "window"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is a positive number, found {value}")
    if settings.dtype not in ("float32", "float16"):
        raise ValueError(f"dtype is 'float32' or 'float16', found {settings.dtype!r}")
    if explainer.task.needs_position:
        raise ValueError("this model answers for every token, and a corpus cannot name one: explain texts one by one")
    for name in (settings.target, settings.foil):
        if name is not None:
            explainer.task.check_shared(name)
    check_windows(settings, explainer)


def check_windows(settings: Settings, explainer: Explainer) -> None:
    size, overlap = settings.window, settings.overlap
    if size is None:
        if overlap is not None:
            raise ValueError("an overlap is one of windows: say how many tokens a window has")
        return
    if not explainer.task.reads_windows:
        raise ValueError(
            f"windows are for texts that are classified as a whole; this model's task is {explainer.task.name}"
        )
    if overlap is None or not 0 <= overlap < size:
        raise ValueError(f"windows of {size} tokens overlap by 0 to {size - 1}, found {overlap}")
    limit = explainer.task.max_length
    if limit is not None and size > limit:
        raise ValueError(f"the model reads {limit} tokens at most; a window of {size} is too long")


def stored_threads(folder: Path) -> int | None:
    """A run goes on as it began."""
    if not (folder / RUN_FILE).is_file():
        return None
    settings = read_run(folder).get("settings")
    return settings.get("threads") if isinstance(settings, dict) else None


def check_folder(folder: Path) -> None:
    """A run without any results has nothing to go on from, so another may take its folder."""
    known = (folder / RUN_FILE).exists()
    if not known and has_results(folder):
        raise ValueError(f"{folder} holds Parquet files but no {RUN_FILE}: use another folder")
    if known and not has_results(folder) and read_run(folder).get("format") == FORMAT:
        (folder / RUN_FILE).unlink()


def has_results(folder: Path) -> bool:
    return any(folder.glob("parts/*.parquet"))


def describe_run(plan: Plan, corpus: Corpus) -> dict[str, Any]:
    """Everything that the results depend on."""
    explainer = plan.explainer
    name = explainer.task.model.config.name_or_path
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": {"name": name, "sha256": hash_model(explainer), "task": explainer.task.name},
        "data": corpus.describe(),
        "methods": {label: describe_job(job) for label, job in plan.jobs.items()},
        "settings": asdict(plan.settings),
        "versions": {**library_versions(), "pyarrow": metadata.version("pyarrow")},
    }


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
