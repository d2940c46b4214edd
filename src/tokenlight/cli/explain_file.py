"""Commands that explain a whole corpus, and summarize its words."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenlight.cli.app import INTERRUPTED, ModelOption, app, readable_errors, say, wide_console
from tokenlight.cli.catalog import complete_method
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.cli.options import (
    EngineOption,
    FusedOption,
    HeadsOption,
    KindOption,
    LimitOption,
    MethodSpecsOption,
    PairOption,
    QuantityOption,
    SampleOption,
    SampleSeedOption,
    SplitOption,
    TaskOption,
    TextOption,
    TrustOption,
    WorkersOption,
)
from tokenlight.cli.output import refuse_checkpoint
from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.common.formatting import describe_count
from tokenlight.common.option_values import DEFAULT_QUANTITY
from tokenlight.corpus.settings import CorpusSettings, Each, ScoreType
from tokenlight.runs.workers import Engine, Workers

if TYPE_CHECKING:
    from tokenlight.results.tables import CorpusSummary


@app.command("explain-file")
def explain_file(
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Parquet, JSON lines, CSV, TSV or text; a folder of such; hf:NAME.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the results.")],
    method: MethodSpecsOption = None,
    model: ModelOption = DEFAULT,
    heads: HeadsOption = None,
    target: Annotated[str | None, typer.Option(help="Label or token; default: what the model predicts.")] = None,
    foil: Annotated[str | None, typer.Option(help="Explain target minus this.")] = None,
    text: TextOption = None,
    pair: PairOption = None,
    id_column: Annotated[str | None, typer.Option("--id", help="The column with names of the rows.")] = None,
    target_column: Annotated[str | None, typer.Option(help="The column with each row's target.")] = None,
    foil_column: Annotated[str | None, typer.Option(help="The column with each row's foil.")] = None,
    answer_column: Annotated[
        str | None, typer.Option(help="The column with a language model's answer to each prompt.")
    ] = None,
    documents_column: Annotated[
        str | None, typer.Option(help="The column with the passages of each prompt, as a list of texts.")
    ] = None,
    each: Annotated[
        Each, typer.Option(help="Of answers: what is explained on its own, at the cost of a backward pass.")
    ] = "sentence",
    quantity: QuantityOption = DEFAULT_QUANTITY,
    kind: KindOption = None,
    split: SplitOption = None,
    limit: LimitOption = None,
    sample: SampleOption = None,
    seed: SampleSeedOption = 0,
    window: Annotated[
        int | None, typer.Option(min=1, help="Read longer texts in windows of so many tokens; default: cut them off.")
    ] = None,
    overlap: Annotated[
        int | None, typer.Option(min=0, help="Tokens that windows share; default: a quarter of them.")
    ] = None,
    dtype: Annotated[ScoreType, typer.Option(help="Of the scores that are written.")] = "float32",
    keep_text: Annotated[bool, typer.Option(help="Write the texts next to their scores.")] = True,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that run together, padding included; default: as suits the device."),
    ] = None,
    chunk_rows: Annotated[
        int, typer.Option(min=1, help="Rows of one file; a run that is stopped does no more than these again.")
    ] = 1000,
    low_memory: Annotated[bool, typer.Option(help="Less memory, more time, the same scores.")] = False,
    fused: FusedOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch, in each process.")] = None,
    summary: Annotated[bool, typer.Option(help="Then show the words that support each label.")] = False,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: Annotated[
        str | None, typer.Option(help="Where the model runs: cpu, cuda ...; default: a GPU where there is one.")
    ] = None,
) -> None:
    """Explain every text of a file, or every answer to a prompt, into a folder of Parquet files.

    A run that was stopped continues with the same command.
    """
    from tokenlight.corpus.explain_dataset import explain_dataset
    from tokenlight.data.data_source import DataSource
    from tokenlight.data.read import check_corpus
    from tokenlight.explain.explainer import DEFAULT_METHOD
    from tokenlight.runs.method_specs import MethodSpec

    with readable_errors():
        refuse_checkpoint(output)
        if summary and not keep_text:
            raise RefusedValue("--summary needs the texts: leave --no-keep-text out")
        columns = {"text": text, "pair": pair, "id": id_column, "target": target_column, "foil": foil_column}
        columns |= {"answer": answer_column, "documents": documents_column}
        try:
            methods = [MethodSpec.parse(one) for one in method or [DEFAULT_METHOD]]  # before the model: that is slow
            texts = DataSource(source, **columns, kind=kind, split=split, limit=limit, sample=sample, seed=seed)
            check_corpus(texts)
            chosen = Workers(engine, workers, threads)
            settings = CorpusSettings(
                chunk_rows=chunk_rows,
                tokens=tokens,
                window=window,
                overlap=overlap,
                dtype=dtype,
                keep_text=keep_text,
                target=target,
                foil=foil,
                each=each,
                quantity=quantity,
                low_memory=low_memory,
                fused=fused,
            )
            explainer = load_model(model, task, trust_remote_code, default_device(engine) if device is None else device)
            found = explain_dataset(explainer, texts, output, methods, heads=heads, settings=settings, workers=chosen)
        except KeyboardInterrupt as error:
            say(f"tokenlight: stopped; {done_so_far(output)}; run the same command again to continue", err=True)
            raise typer.Exit(INTERRUPTED) from error
        skipped = f", {describe_count(found.bad, 'row')} skipped (see bad_rows.jsonl)" if found.bad else ""
        texts_done, parts = describe_count(found.explained, "text"), describe_count(found.parts, "part")
        say(f"{texts_done} explained in {parts}{skipped}: {output}")
        if found.repaired:
            say(f"note: {describe_count(found.repaired, 'damaged part')} of the earlier run computed again", err=True)
        if found.too_small:
            say(
                f"note: {describe_count(found.too_small, 'score')} too small for {dtype}, stored as 0 or with fewer "
                f"digits; with --dtype {'float32' if dtype == 'float16' else dtype} most of them are kept",
                err=True,
            )
        if summary:
            from tokenlight.corpus.summary import summarize

            show(summarize(output), 10, output / "summary.csv")


def default_device(engine: Engine) -> str | None:
    """The GPU where there is one; Ray's workers move their copies themselves."""
    import torch

    return "cuda" if engine == "local" and torch.cuda.is_available() else None


def done_so_far(folder: Path) -> str:
    parts = len(list((folder / "parts").glob("part-*.parquet")))
    return f"{describe_count(parts, 'finished part')} in {folder}"


@app.command()
def corpus(
    folder: Annotated[Path, typer.Argument(help="A folder that `tokenlight explain-file` wrote.")],
    other: Annotated[Path | None, typer.Option(help="The same texts explained for another checkpoint.")] = None,
    method: Annotated[
        str | None, typer.Option(help="One of its methods; default: all.", autocompletion=complete_method)
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Words of each label.")] = 15,
    min_uses: Annotated[int, typer.Option(min=1, help="Leave out words with fewer uses.")] = 2,
    csv: Annotated[Path | None, typer.Option(help="Write all words here.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the words here: png, svg or pdf.")] = None,
) -> None:
    """The words that support each label more than others do, over a whole corpus."""
    from tokenlight.corpus.summary import summarize
    from tokenlight.views.corpus_words import comparison_table, summary_csv, summary_figure
    from tokenlight.views.drawing import check_figure_name, save

    with readable_errors():
        if figure is not None:
            check_figure_name(figure)
        # Words that are used less often are needed where the other checkpoint's are looked up.
        found = summarize(folder, method, 1 if other else min_uses)
        for one in (folder,) if other is None else (folder, other):
            say_unfinished(one)
        if other is None:
            show(found, top, csv)
            if not any(label.words for one in found for label in one.labels):
                say(f"no word is used {min_uses} times or more: lower --min-uses", err=True)
        else:
            others = {one.method: one for one in summarize(other, method)}
            both = [(one, others[one.method]) for one in found if one.method in others]
            if not both:
                raise RefusedValue(f"{folder} and {other} were not explained with the same method")
            if any(one.model == two.model for one, two in both):  # then the folders' names tell them apart
                both = [(replace(one, model=folder.name), replace(two, model=other.name)) for one, two in both]
            if hash_of_data(folder) != hash_of_data(other):
                say(f"note: {folder} and {other} are not of the same data", err=True)
            for one, two in both:
                wide_console().print(comparison_table(one, two, top, min_uses))
            found = [one for two in both for one in two]
            if csv is not None:
                write_atomically(csv, summary_csv(found, min_uses))
        if figure is not None:
            # Bars of two checkpoints stand side by side; those of several methods would be no comparison.
            save(summary_figure(found[: 2 if other else 1], top, min_uses), figure)


def say_unfinished(folder: Path) -> None:
    from tokenlight.corpus.shards import is_finished

    if not is_finished(folder):
        say(f"note: {folder} is not finished: its words are those of the parts that are there", err=True)


def hash_of_data(folder: Path) -> object:
    from tokenlight.runs.run_folder import read_run

    return read_run(folder).get("data", {}).get("sha256")


def show(found: "list[CorpusSummary]", top: int, file: Path | None) -> None:
    from tokenlight.views.corpus_words import summary_csv, summary_table

    for one in found:
        wide_console().print(summary_table(one, top))
    if file is not None:
        write_atomically(file, summary_csv(found))
