"""Commands that explain a whole corpus, and summarize its words."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenlight.cli.app import INTERRUPTED, app, readable_errors, say, wide_console
from tokenlight.cli.catalog import complete_method
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.cli.options import (
    EngineOption,
    FusedOption,
    HeadsOption,
    KindOption,
    LimitOption,
    MethodSpecsOption,
    ModelOption,
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
from tokenlight.cli.output import check_figure_path, refuse_checkpoint
from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.common.formatting import describe_count
from tokenlight.common.option_values import DEFAULT_QUANTITY
from tokenlight.corpus.settings import CorpusSettings, Each, ScoreType
from tokenlight.runs.workers import EngineName, Workers

if TYPE_CHECKING:
    from tokenlight.results.tables import CorpusSummary


@app.command("explain-file")
def explain_file(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="A Parquet, JSON lines, CSV, TSV or text file, a folder of such files, or hf:NAME."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    method: MethodSpecsOption = None,
    model: ModelOption = DEFAULT,
    heads: HeadsOption = None,
    target: Annotated[
        str | None, typer.Option(help="The label or token to explain; default: the predicted one.")
    ] = None,
    foil: Annotated[str | None, typer.Option(help="Explain the target minus this label or token.")] = None,
    text: TextOption = None,
    pair: PairOption = None,
    id_column: Annotated[str | None, typer.Option("--id", help="The column with the names of the rows.")] = None,
    target_column: Annotated[str | None, typer.Option(help="The column with each row's target.")] = None,
    foil_column: Annotated[str | None, typer.Option(help="The column with each row's foil.")] = None,
    answer_column: Annotated[
        str | None, typer.Option(help="The column with a language model's answer to each prompt.")
    ] = None,
    documents_column: Annotated[
        str | None, typer.Option(help="The column with the documents of each prompt, as a list of texts.")
    ] = None,
    each: Annotated[
        Each, typer.Option(help="What is explained separately in an answer; each takes a backward pass.")
    ] = "sentence",
    quantity: QuantityOption = DEFAULT_QUANTITY,
    kind: KindOption = None,
    split: SplitOption = None,
    limit: LimitOption = None,
    sample: SampleOption = None,
    seed: SampleSeedOption = 0,
    window: Annotated[
        int | None, typer.Option(min=1, help="Split longer texts into windows of N tokens; default: truncate them.")
    ] = None,
    overlap: Annotated[
        int | None, typer.Option(min=0, help="Overlap of windows in tokens; default: a quarter of a window.")
    ] = None,
    dtype: Annotated[ScoreType, typer.Option(help="Data type of the written scores.")] = "float32",
    keep_text: Annotated[bool, typer.Option(help="Write the texts beside their scores.")] = True,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of one batch, including padding; default: depends on the device."),
    ] = None,
    chunk_rows: Annotated[
        int, typer.Option(min=1, help="Rows of one file; a run that was stopped repeats at most these.")
    ] = 1000,
    low_memory: Annotated[bool, typer.Option(help="Use less memory and more time, with the same scores.")] = False,
    fused: FusedOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads torch uses in each process.")] = None,
    summary: Annotated[bool, typer.Option(help="Show the words that support each label at the end.")] = False,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: Annotated[
        str | None, typer.Option(help="Device of the model: cpu, cuda ...; default: a GPU if there is one.")
    ] = None,
) -> None:
    """Explain every text of a file, or every answer to a prompt, and write Parquet files into a folder.

    The same command continues a run that was stopped.
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
            methods = [
                MethodSpec.parse(name) for name in method or [DEFAULT_METHOD]
            ]  # before loading the model, which is slow
            texts = DataSource(source, **columns, kind=kind, split=split, limit=limit, sample=sample, seed=seed)
            check_corpus(texts)
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
            result = explain_dataset(
                explainer,
                texts,
                output,
                methods,
                heads=heads,
                settings=settings,
                workers=Workers(engine, workers, threads),
            )
        except KeyboardInterrupt as error:
            say(f"tokenlight: stopped; {done_so_far(output)}; run the same command again to continue", err=True)
            raise typer.Exit(INTERRUPTED) from error
        skipped = f", {describe_count(result.bad, 'row')} skipped (see bad_rows.jsonl)" if result.bad else ""
        texts_done, parts = describe_count(result.explained, "text"), describe_count(result.parts, "part")
        say(f"{texts_done} explained in {parts}{skipped}: {output}")
        if result.repaired:
            say(f"note: {describe_count(result.repaired, 'damaged part')} of the earlier run computed again", err=True)
        if result.too_small:
            say(
                f"note: {describe_count(result.too_small, 'score')} too small for {dtype}, stored as 0 or with fewer "
                f"digits; with --dtype {'float32' if dtype == 'float16' else dtype} most of them are kept",
                err=True,
            )
        if summary:
            from tokenlight.corpus.summary import summarize

            show_words(summarize(output), 10, output / "summary.csv")


def default_device(engine: EngineName) -> str | None:
    """The GPU if there is one; None under Ray, whose workers move their own copies of the model."""
    import torch

    return "cuda" if engine == "local" and torch.cuda.is_available() else None


def done_so_far(folder: Path) -> str:
    """The number of finished parts in words."""
    parts = len(list((folder / "parts").glob("part-*.parquet")))
    return f"{describe_count(parts, 'finished part')} in {folder}"


@app.command()
def corpus(
    folder: Annotated[Path, typer.Argument(help="A folder written by `tokenlight explain-file`.")],
    other: Annotated[
        Path | None, typer.Option(help="A folder with the same texts explained for another checkpoint.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="One of the folder's methods; default: all.", autocompletion=complete_method)
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many words to show for each label.")] = 15,
    min_uses: Annotated[int, typer.Option(min=1, help="Leave out words with fewer occurrences.")] = 2,
    csv: Annotated[Path | None, typer.Option(help="Write all words to this .csv file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the words to this .png, .svg or .pdf file.")] = None,
) -> None:
    """Show the words that support each label more than others do, over a whole corpus."""
    from tokenlight.corpus.summary import summarize
    from tokenlight.views.corpus_words import comparison_table, summary_csv, summary_figure
    from tokenlight.views.drawing import save

    with readable_errors():
        check_figure_path(figure)
        # A comparison also needs the rare words of either checkpoint.
        summaries = summarize(folder, method, 1 if other else min_uses)
        for run_folder in (folder,) if other is None else (folder, other):
            warn_if_unfinished(run_folder)
        if other is None:
            show_words(summaries, top, csv)
            if not any(label.words for summary in summaries for label in summary.labels):
                say(f"no word is used {min_uses} times or more: lower --min-uses", err=True)
        else:
            pairs = pair_by_method(summaries, summarize(other, method))
            if not pairs:
                raise RefusedValue(f"{folder} and {other} were not explained with the same method")
            if any(first.model == second.model for first, second in pairs):  # tell them apart by their folders
                pairs = [(replace(a, model=folder.name), replace(b, model=other.name)) for a, b in pairs]
            if hash_of_data(folder) != hash_of_data(other):
                say(f"note: {folder} and {other} have different data", err=True)
            for first, second in pairs:
                wide_console().print(comparison_table(first, second, top, min_uses))
            summaries = [summary for pair in pairs for summary in pair]
            if csv is not None:
                write_atomically(csv, summary_csv(summaries, min_uses))
        if figure is not None:
            # The bars of two checkpoints can be compared; those of several methods cannot.
            save(summary_figure(summaries[: 2 if other else 1], top, min_uses), figure)


def pair_by_method(
    summaries: "list[CorpusSummary]", others: "list[CorpusSummary]"
) -> "list[tuple[CorpusSummary, CorpusSummary]]":
    """The summaries of two folders by the same method."""
    by_method = {other.method: other for other in others}
    return [(summary, by_method[summary.method]) for summary in summaries if summary.method in by_method]


def warn_if_unfinished(folder: Path) -> None:
    from tokenlight.corpus.shards import is_finished

    if not is_finished(folder):
        say(f"note: {folder} is not finished: only its finished parts are counted", err=True)


def hash_of_data(folder: Path) -> object:
    """The sha256 of the data that a run explained."""
    from tokenlight.runs.run_folder import read_run

    return read_run(folder).get("data", {}).get("sha256")


def show_words(summaries: "list[CorpusSummary]", top: int, file: Path | None) -> None:
    """Print the summaries as tables, and write all their words to a file."""
    from tokenlight.views.corpus_words import summary_csv, summary_table

    for summary in summaries:
        wide_console().print(summary_table(summary, top))
    if file is not None:
        write_atomically(file, summary_csv(summaries))
