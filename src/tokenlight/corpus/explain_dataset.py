"""Explains a whole corpus into a folder of Parquet files. It can be stopped anywhere and continues there."""

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
from tokenlight.explain.execute import refuse_to_write_out
from tokenlight.explain.explainer import DEFAULT_METHOD, Explainer
from tokenlight.heads.mask import HeadsLike
from tokenlight.methods.config import MethodConfig
from tokenlight.runs.engines import Place, Tell, open_place
from tokenlight.runs.method_specs import MethodSpec, describe_config
from tokenlight.runs.run_folder import (
    RUN_FILE,
    check_settings,
    claim,
    describe_run,
    read_run,
    refuse_folder_of_data,
    warn_of_changed_data,
)
from tokenlight.runs.workers import THIS_PROCESS, Workers

READ, TRIED = 1000, 10  # rows, and those among them on which the model runs


def try_out(plan: ExplainingPlan, source: DataSource) -> None:
    """Raise what is wrong with the first texts, unless one of them can be explained."""
    bad: list[BadRow] = []
    own: list[str] = []
    unforeseen: Exception | None = None
    tried = 0
    for row in islice(read_texts(source), READ):
        part = Chunk(0, ((0, row),))
        counts = True  # unless nothing but the row is wrong, which is found without the model
        try:
            drafts, reasons = make_drafts(plan, part, strict=True)
            counts = bool(drafts)
            if drafts:
                explained = explain_chunk(plan, part, strict=True)
                if explained.texts:
                    return
                reasons = explained.bad
            bad += [reason for _, reason in reasons]
        except Exception as error:
            reason = reason_to_skip(error)  # raises what is no row's fault
            own += in_own_code([reason])
            unforeseen = unforeseen or error
        tried += counts
        if tried == TRIED:
            break
    if own:
        raise refuse_own_code(own) from unforeseen
    if unforeseen is not None:
        raise unforeseen
    if not bad:
        raise RefusedValue(f"{source.name}: expected rows of data, found none")
    raise RefusedValue(f"none of the first {len(bad)} rows can be explained: {bad[0].where}: {bad[0].reason}")


FORMAT, VERSION = "tokenlight.corpus", 1
WRITTEN = ("bad_rows.jsonl", "_SUCCESS", "summary.csv")  # beside the parts; `shards` needs pyarrow to be imported


@dataclass(frozen=True)
class ExplainedCorpus:
    """Where the results are, and how many."""

    folder: Path  # that holds the results
    parts: int  # number of files
    rows: int  # rows that were read
    explained: int  # rows that were explained
    bad: int  # rows that could not be explained: bad_rows.jsonl says why
    unexpected: int = 0  # those among them that a bug was the reason for
    too_small: int = 0  # scores that are not 0 and too small for the type that they are stored in
    repaired: int = 0  # parts of an earlier run whose files were damaged: they were computed again
    in_own_code: int = 0  # those among the bad rows on which code of the caller's own failed, such as a method


@dataclass(frozen=True)
class ShardWriter:
    """A part goes in, its shard is in the folder: the same wherever it runs."""

    plan: ExplainingPlan
    folder: Path
    about: Mapping[str, Any]  # what every shard says about itself

    @property
    def explainers(self) -> tuple[Explainer, ...]:
        return (self.plan.explainer,)

    def do(self, part: Chunk, tell: Tell) -> None:
        """`tell` hears of the rows on the way."""
        from tokenlight.corpus.shards import shard_path, write_chunk

        if not shard_path(self.folder, part.number).exists():  # else a worker wrote it that died before it could say so
            write_chunk(self.folder, explain_chunk(self.plan, part, tell), self.plan.settings, self.about)


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
    pairs or rows; a `DataSource` says which columns are read. By default the prediction is explained; `settings` name a
    target, windows for long texts, and how results are written. If a run is killed, the same call continues it.
    `Workers("ray")` spread the parts over processes or machines. docs/scale.md says more.
    """
    corpus, folder = as_source(source), Path(output)
    check_corpus(corpus)
    refuse_folder_of_data(folder, corpus)
    check_model(settings, explainer)
    method_configs = make_configs(explainer, methods, heads)
    if settings.fused:
        refuse_to_write_out(method_configs.values())
    workers = replace(workers, threads=workers.threads or stored_threads(folder))
    with open_place(workers, explainer) as place:
        plan = ExplainingPlan(explainer, method_configs, settings, place.device)
        if not has_results(folder):
            try_out(plan, corpus)
        with claim(folder):
            check_folder(folder)
            check_settings(folder, describe(plan, corpus, place))
            # What is stored, so that all shards say the same, also of a run that goes on under another path.
            writer = ShardWriter(plan, folder.resolve(), read_run(folder))
            return replace(write_shards(writer, corpus, place, progress), folder=folder)


def write_shards(writer: ShardWriter, source: DataSource, place: Place, progress: bool) -> ExplainedCorpus:
    """Of the parts whose shard is not there yet."""
    from tokenlight.corpus import shards as shards

    folder, size = writer.folder, writer.plan.settings.chunk_rows
    shards.sweep(folder)
    damaged = shards.remove_damaged(folder)
    done = frozenset(shards.shards(folder))
    if not shards.is_finished(folder):
        (folder / shards.DONE).unlink(missing_ok=True)
        total, before = source.count() if progress else None, len(done) * size
        parts = partial(split_into_chunks, partial(read_texts, source), size, done, source.row_numbers)
        with track_pace(total, before if total is None else min(before, total), progress) as advance:
            for _ in place.run(writer, parts, advance, ordered=False):
                pass  # what was made of the part is on the disk
        shards.sweep(folder)  # of a worker that died
        shards.finish(folder)
        warn_of_changed_data(folder, source)
    else:
        shards.write_bad_rows(folder)
    found = shards.shards(folder).values()
    counts = sum(map(shards.read_counts, found), shards.ChunkCounts())
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
        len(found),
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
    """By label; an option with a wrong value is refused before anything is written."""
    if isinstance(methods, str):
        raise RefusedType(f"methods is a list of names, found {methods!r}")
    specs = [MethodSpec.parse(one) for one in methods]
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
        raise RefusedValue("this model answers for every token, and a corpus cannot name one: explain texts one by one")
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
    """A run continues as it began."""
    if not (folder / RUN_FILE).is_file():
        return None
    settings = read_run(folder).get("settings")
    return settings.get("threads") if isinstance(settings, dict) else None


def check_folder(folder: Path) -> None:
    """A run without any results has nothing to go on from, so another may take its folder."""
    known = (folder / RUN_FILE).exists()
    if not known and has_results(folder):
        raise RefusedValue(f"{folder} holds Parquet files but no {RUN_FILE}: use another folder")
    if not known and (strangers := [name for name in WRITTEN if (folder / name).exists()]):
        raise RefusedValue(
            f"{folder} holds {strangers[0]} but no {RUN_FILE}, and a run would overwrite it: use another"
        )
    if known and not has_results(folder) and read_run(folder).get("format") == FORMAT:
        (folder / RUN_FILE).unlink()


def has_results(folder: Path) -> bool:
    return any(folder.glob("parts/*.parquet"))


def describe(plan: ExplainingPlan, source: DataSource, place: Place) -> dict[str, Any]:
    """Everything that the results depend on."""
    settings = plan.settings
    settled = {
        "tokens": plan.tokens,
        "overlap": None if settings.window is None else settings.shared_tokens,
        "device": place.device,
        "threads": place.threads,  # they change how sums are rounded
    }
    with from_extra("scale", "Parquet"):  # before anything is written: the version of pyarrow is asked for
        return describe_run(
            (FORMAT, VERSION),
            plan.explainer,
            {**source.describe(COLUMNS), "bytes": sum(path.stat().st_size for path in source.files)},
            {label: describe_config(method_config) for label, method_config in plan.method_configs.items()},
            {"settings": {**asdict(settings), **settled}},
            libraries=["pyarrow"],
        )
