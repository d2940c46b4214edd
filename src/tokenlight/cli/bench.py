"""Commands that run the benchmark, and check that scores depend on the weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenlight.cli.app import INTERRUPTED, app, readable_errors, say, wide_console
from tokenlight.cli.catalog import complete_metric, complete_protocol
from tokenlight.cli.load import load_model
from tokenlight.cli.options import (
    DataArgument,
    DeviceOption,
    EngineOption,
    FusedOption,
    HeadsOption,
    KindOption,
    LimitOption,
    MethodsOption,
    MethodSpecsOption,
    ModelArgument,
    PairOption,
    RemovalOption,
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
from tokenlight.common.option_values import BadRows
from tokenlight.runs.workers import Workers

if TYPE_CHECKING:
    from tokenlight.data.data_source import DataSource
    from tokenlight.results.tables import Table


SANITY_ROWS = 50  # how many rows `sanity` uses by default


@app.command()
def bench(
    model: Annotated[
        str,
        typer.Argument(help="Checkpoint ('default' is the model that comes with tokenlight), or a folder of results."),
    ],
    data: Annotated[
        str | None, typer.Argument(help="A data file (TSV, CSV, JSON, Parquet, CoNLL-U), or hf:NAME.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")] = None,
    method: MethodSpecsOption = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric name, also with options, such as pointing_game:k=1; repeat for several.",
            autocompletion=complete_metric,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A paper's protocol, such as attcat, mask_lrp, alti, arras or attcat_squad; see docs/presets.md.",
            autocompletion=complete_protocol,
        ),
    ] = None,
    limit: LimitOption = None,
    sample: SampleOption = None,
    seed: SampleSeedOption = 0,
    bad_rows: Annotated[
        BadRows, typer.Option(help="What to do with rows that cannot be used: skip them, or stop.")
    ] = "skip",
    text: TextOption = None,
    pair: PairOption = None,
    label: Annotated[str | None, typer.Option(help="The column with the gold label.")] = None,
    split: SplitOption = None,
    kind: KindOption = None,
    removal: RemovalOption = None,
    heads: HeadsOption = None,
    erasure: Annotated[
        bool, typer.Option(help="Add erasure as a control; it takes one forward pass per token.")
    ] = True,
    seed_model: Annotated[
        list[str] | None, typer.Option(help="A model trained with another seed; repeat for several.")
    ] = None,
    fused: FusedOption = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
) -> None:
    """Compare methods by metrics on a model and data. The same command continues a run that was stopped."""
    from tokenlight.bench.measure_chunk import read_kept_examples
    from tokenlight.bench.tabulate import read_table
    from tokenlight.data.data_source import DataSource
    from tokenlight.views.benchmark_report import write_views
    from tokenlight.views.benchmark_table import show_table

    with readable_errors():
        if data is None:
            if not (Path(model) / "run.json").is_file():
                raise RefusedValue("name the data to measure on, or a folder with results to show")
            options = [output, method, metric, preset, limit, sample, text, pair, label, split, kind, removal, heads]
            options += [seed_model, fused, task, workers]
            has_option = any(value is not None and value != [] for value in options)
            if has_option or bad_rows != "skip" or not erasure:
                raise RefusedValue(f"{model} holds results, which are shown as they are: name the data for a new run")
            table, folder = read_table(model), Path(model)
            write_views(table, folder, read_kept_examples(folder))
        elif output is None:
            raise RefusedValue("name the folder for the results with -o DIR")
        else:
            folder = output
            refuse_checkpoint(folder)
            source = DataSource(
                data,
                text=text,
                pair=pair,
                label=label,
                kind=kind,
                split=split,
                limit=limit,
                sample=sample,
                seed=seed,
            )
            table = run_bench(
                model,
                source,
                task,
                seed_model or [],
                trust_remote_code,
                device,
                methods=method,
                metrics=metric,
                protocol=preset,
                output=output,
                removal=removal,
                heads=heads,
                erasure=erasure,
                fused=fused,
                bad_rows=bad_rows,
                workers=Workers(engine, workers),
            )
        show_table(table, wide_console())
        say(f"table.md, table.tex, table.csv and report.html are in {folder}")


def run_bench(
    model: str,
    source: "DataSource",
    task: str | None,
    seeds: list[str],
    trust_remote_code: bool = False,
    device: str | None = None,
    *,
    protocol: str | None,
    **settings: Any,
) -> "Table":
    """Run the benchmark. Methods, metrics and protocol are checked before any model is loaded."""
    from tokenlight.bench.benchmark import bench as run
    from tokenlight.bench.protocol import protocol as find_protocol
    from tokenlight.runs.method_specs import MethodSpec, parse_measure

    for spec in settings["methods"] or ():
        MethodSpec.parse(spec)
    for spec in settings["metrics"] or ():
        parse_measure(spec)
    if protocol is not None:
        find_protocol(protocol)
    seed_models = [load_model(name, task, trust_remote_code, device) for name in seeds]
    try:
        return run(
            load_model(model, task, trust_remote_code, device),
            source,
            protocol=protocol,
            seed_models=seed_models,
            **settings,
        )
    except KeyboardInterrupt as error:
        folder = settings["output"]
        say(f"tokenlight: stopped; results so far are in {folder}; run the same command again to continue", err=True)
        raise typer.Exit(INTERRUPTED) from error


@app.command()
def sanity(
    model: ModelArgument,
    data: DataArgument,
    method: MethodsOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first N rows; default: 50, or the sample.")
    ] = None,
    sample: SampleOption = None,
    absolute: Annotated[bool, typer.Option(help="Compare absolute scores.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the shuffling and of --sample.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Draw the similarities to this .png, .svg or .pdf file.")] = None,
    text: TextOption = None,
    pair: PairOption = None,
    split: SplitOption = None,
    kind: KindOption = None,
    heads: HeadsOption = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
) -> None:
    """Check that scores depend on what the model has learned, by shuffling its layers from the top down."""
    from tokenlight.bench.robustness import check_methods, source_texts
    from tokenlight.data.data_source import DataSource
    from tokenlight.explain.explainer import DEFAULT_METHOD
    from tokenlight.runs.method_specs import MethodSpec
    from tokenlight.views.curve_chart import sanity_figure, sanity_table
    from tokenlight.views.drawing import save

    with readable_errors():
        check_figure_path(figure)
        specs = [MethodSpec.parse(name) for name in method or [DEFAULT_METHOD]]
        explainer = load_model(model, task, trust_remote_code, device)
        limit = SANITY_ROWS if limit is None and sample is None else limit
        source = DataSource(data, text=text, pair=pair, kind=kind, split=split, limit=limit, sample=sample, seed=seed)
        texts = source_texts(source, explainer)
        similarities = check_methods(explainer, texts, specs, heads, absolute=absolute, seed=seed)
        wide_console().print(sanity_table(similarities))
        if figure is not None:
            save(sanity_figure(similarities), figure)
