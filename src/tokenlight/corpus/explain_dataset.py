"""Explains a whole corpus into a folder of Parquet files. A run can be stopped at any time and continued."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tokenlight.common.error_location import describe_own_code, in_own_code, reason_to_skip, refuse_own_code
from tokenlight.common.errors import RefusedType, RefusedValue, from_extra
from tokenlight.common.progress import track_pace
from tokenlight.corpus.chunks import explain_chunk, make_drafts
from tokenlight.corpus.plan import ExplainingPlan
from tokenlight.corpus.settings import DEFAULT_SETTINGS, CorpusSettings
from tokenlight.data.data_source import Data, DataSource, as_source
from tokenlight.data.examples import BadRow, Chunk, split_into_chunks
from tokenlight.data.read import COLUMNS, check_corpus, read_texts
from tokenlight.explain.explainer import DEFAULT_METHOD, Explainer
from tokenlight.explain.passes import refuse_methods_that_need_attention_weights
from tokenlight.heads.mask import HeadsLike
from tokenlight.methods.config import MethodConfig
from tokenlight.runs.engines import Advance, Engine, open_engine
from tokenlight.runs.method_specs import MethodSpec, describe_config
from tokenlight.runs.run_folder import (
    RUN_FILE,
    check_settings,
    describe_run,
    lock_folder,
    read_run,
    refuse_folder_of_data,
    warn_of_changed_data,
)
from tokenlight.runs.workers import THIS_PROCESS, Workers

TRIAL_ROWS, TRIAL_RUNS = 1000, 10  # rows that are read before a run, and those of them that are explained


def explain_trial_rows(plan: ExplainingPlan, source: DataSource) -> None:
    """Explain the first text that can be explained; if none can, raise the reason before anything is written."""
    bad: list[BadRow] = []
    own: list[str] = []
    unforeseen: Exception | None = None
    tried = 0
    for row in islice(read_texts(source), TRIAL_ROWS):
        chunk = Chunk(0, ((0, row),))
        used_model = True  # false for rows that are refused before the model runs
        try:
            drafts, bad_rows = make_drafts(plan, chunk, strict=True)
            used_model = bool(drafts)
            if drafts:
                explained = explain_chunk(plan, chunk, strict=True)
                if explained.texts:
                    return
                bad_rows = explained.bad
            bad += [bad_row for _, bad_row in bad_rows]
        except Exception as error:
            reason = reason_to_skip(error)  # raises errors that are not caused by a row
            own += in_own_code([reason])
            unforeseen = unforeseen or error
        tried += used_model
        if tried == TRIAL_RUNS:
            break
    if own:
        raise refuse_own_code(own) from unforeseen
    if unforeseen is not None:
        raise unforeseen
    if not bad:
        raise RefusedValue(f"{source.name}: expected rows of data, found none")
    raise RefusedValue(f"none of the first {len(bad)} rows can be explained: {bad[0].where}: {bad[0].reason}")


FORMAT, VERSION = "tokenlight.corpus", 1
WRITTEN = ("bad_rows.jsonl", "_SUCCESS", "summary.csv")  # besides shards; names of `shards`, whose import needs pyarrow


@dataclass(frozen=True)
class ExplainedCorpus:
    """The folder of the results, and counts of rows."""

    folder: Path  # of the results
    parts: int  # number of files
    rows: int  # rows that were read
    explained: int  # rows that were explained
    bad: int  # rows that could not be explained: bad_rows.jsonl says why
    unexpected: int = 0  # bad rows because of a bug in tokenlight
    too_small: int = 0  # scores other than 0 that are below the smallest normal number of the stored type
    repaired: int = 0  # damaged shards of an earlier run that were computed again
    in_own_code: int = 0  # bad rows because of an error in the caller's own code, such as a method


@dataclass(frozen=True)
class ShardWriter:
    """The task for each chunk: explain it and write its shard into the folder."""

    plan: ExplainingPlan
    folder: Path
    about: Mapping[str, Any]  # the settings of the run, stored in every shard

    @property
    def explainers(self) -> tuple[Explainer, ...]:
        return (self.plan.explainer,)

    def process(self, chunk: Chunk, advance: Advance) -> None:
        """Write the shard of a chunk; `advance` is called with numbers of finished rows."""
        from tokenlight.corpus.shards import shard_path, write_chunk

        if not shard_path(self.folder, chunk.number).exists():  # it exists if a worker died after writing it
            write_chunk(self.folder, explain_chunk(self.plan, chunk, advance), self.plan.settings, self.about)


def explain_dataset(
    explainer: Explainer,
    source: Data | DataSource,
    output: str | Path,
    methods: Sequence[str | MethodSpec] = (DEFAULT_METHOD,),
    *,
    heads: HeadsLike = None,
    settings: CorpusSettings = DEFAULT_SETTINGS,
    workers: Workers = THIS_PROCESS,
    progress: bool = True,
) -> ExplainedCorpus:
    """Explain every text of a corpus with one or more methods into Parquet files in the folder `output`.

    `source` is a file (Parquet, JSON lines, CSV, TSV, text), a folder of such files, "hf:NAME" or a sequence of texts,
    pairs or rows; a `DataSource` also names the columns. By default the prediction is explained; `settings` has a
    target, windows for long texts, and how results are stored. If a run is killed, the same call continues it.
    `Workers("ray")` distributes the chunks over processes or machines. See docs/scale.md.
    """
    corpus, folder = as_source(source), Path(output)
    check_corpus(corpus)
    refuse_folder_of_data(folder, corpus)
    check_model(settings, explainer)
    method_configs = make_configs(explainer, methods, heads)
    if settings.fused:
        refuse_methods_that_need_attention_weights(method_configs.values())
    workers = replace(workers, threads=workers.threads or stored_threads(folder))
    with open_engine(workers, explainer) as engine:
        plan = ExplainingPlan(explainer, method_configs, settings, engine.device)
        if not has_results(folder):
            explain_trial_rows(plan, corpus)
        with lock_folder(folder):
            check_folder(folder)
            check_settings(folder, describe(plan, corpus, engine))
            # The stored settings, so that all shards have the same ones even if paths differ in a continued run.
            writer = ShardWriter(plan, folder.resolve(), read_run(folder))
            return replace(write_shards(writer, corpus, engine, progress), folder=folder)


def write_shards(writer: ShardWriter, source: DataSource, engine: Engine, progress: bool) -> ExplainedCorpus:
    """Write the missing shards of a run, then the list of bad rows and the mark that the run is finished."""
    from tokenlight.corpus import shards as shards

    folder, size = writer.folder, writer.plan.settings.chunk_rows
    shards.remove_temporary_files(folder)
    damaged = shards.remove_damaged(folder)
    done = frozenset(shards.shards(folder))
    if not shards.is_finished(folder):
        (folder / shards.DONE).unlink(missing_ok=True)
        total, before = source.count() if progress else None, len(done) * size
        read_chunks = partial(split_into_chunks, partial(read_texts, source), size, done, source.row_numbers)
        with track_pace(total, before if total is None else min(before, total), progress) as advance:
            for _ in engine.run(writer, read_chunks, advance, ordered=False):
                pass  # results are on the disk
        shards.remove_temporary_files(folder)  # of workers that died
        shards.finish(folder)
        warn_of_changed_data(folder, source)
    else:
        shards.write_bad_rows(folder)
    paths = shards.shards(folder).values()
    counts = sum(map(shards.read_counts, paths), shards.ChunkCounts())
    unexpected, own = shards.reasons_of_bugs(folder)
    if (unexpected or own) and not counts.explained:
        raise RuntimeError(f"none of {counts.rows} rows could be explained: {(unexpected or own)[0]}")
    if unexpected:
        warnings.warn(
            f"{len(unexpected)} of {counts.rows} rows were set aside because of a bug, the others are explained; "
            f"{folder / shards.BAD_ROWS} names them. The first: {unexpected[0]}",
            RuntimeWarning,
            stacklevel=3,
        )
    if own:
        warnings.warn(
            f"{len(own)} of {counts.rows} rows were set aside because your own code failed on them, the others are "
            f"explained; {folder / shards.BAD_ROWS} names them: {describe_own_code(own)}",
            RuntimeWarning,
            stacklevel=3,
        )
    return ExplainedCorpus(
        folder,
        len(paths),
        counts.rows,
        counts.explained,
        counts.bad,
        unexpected=len(unexpected),
        too_small=counts.too_small,
        repaired=len(damaged),
        in_own_code=len(own),
    )


def make_configs(
    explainer: Explainer, methods: Sequence[str | MethodSpec], heads: HeadsLike
) -> dict[str, MethodConfig]:
    """The methods by label; options with wrong values are refused before anything is written."""
    if isinstance(methods, str):
        raise RefusedType(f"methods is a list of names, found {methods!r}")
    specs = [MethodSpec.parse(method) for method in methods]
    labels = [spec.label for spec in specs]
    if not labels or len(set(labels)) < len(labels):
        raise RefusedValue(f"name at least one method, and each once; found {', '.join(labels) or 'none'}")
    method_configs = {spec.label: spec.method_config(explainer.inner, heads) for spec in specs}
    for method_config in method_configs.values():
        method_config.passes(split=False)
    return method_configs


def check_model(settings: CorpusSettings, explainer: Explainer) -> None:
    """Refuse settings that do not suit the model."""
    task = explainer.task
    if task.needs_position:
        raise RefusedValue(
            "this model predicts a label for every token, and a corpus does not name a token: explain texts one by one"
        )
    for name in (settings.target, settings.foil):
        if name is not None:
            task.check_shared(name)
    if settings.window is None:
        return
    if not task.reads_windows:
        raise RefusedValue(f"windows are for texts that are classified as a whole; this model's task is {task.name}")
    if task.max_length is not None and settings.window > task.max_length:
        raise RefusedValue(
            f"the model reads {task.max_length} tokens at most; a window of {settings.window} is too long"
        )


def stored_threads(folder: Path) -> int | None:
    """The number of threads of the run in the folder, which a continued run keeps, since it changes rounding."""
    if not (folder / RUN_FILE).is_file():
        return None
    settings = read_run(folder).get("settings")
    return settings.get("threads") if isinstance(settings, dict) else None


def check_folder(folder: Path) -> None:
    """Refuse a folder with files of another origin; remove a stored run without results."""
    has_run = (folder / RUN_FILE).exists()
    if not has_run and has_results(folder):
        raise RefusedValue(f"{folder} holds Parquet files but no {RUN_FILE}: use another folder")
    if not has_run and (unknown := [name for name in WRITTEN if (folder / name).exists()]):
        raise RefusedValue(f"{folder} holds {unknown[0]} but no {RUN_FILE}, and a run would overwrite it: use another")
    if has_run and not has_results(folder) and read_run(folder).get("format") == FORMAT:
        (folder / RUN_FILE).unlink()


def has_results(folder: Path) -> bool:
    return any(folder.glob("parts/*.parquet"))


def describe(plan: ExplainingPlan, source: DataSource, engine: Engine) -> dict[str, Any]:
    """Everything that the results depend on."""
    settings = plan.settings
    resolved = {
        "tokens": plan.tokens,
        "overlap": None if settings.window is None else settings.shared_tokens,
        "device": engine.device,
        "threads": engine.threads,  # they change how sums are rounded
    }
    with from_extra("scale", "Parquet"):  # the version of pyarrow is stored: refuse now if it is missing
        return describe_run(
            (FORMAT, VERSION),
            plan.explainer,
            {**source.describe(COLUMNS), "bytes": sum(path.stat().st_size for path in source.files)},
            {label: describe_config(method_config) for label, method_config in plan.method_configs.items()},
            {"settings": {**asdict(settings), **resolved}},
            libraries=["pyarrow"],
        )
