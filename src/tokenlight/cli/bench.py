"""Commands for the benchmark, and for the check that scores depend on the weights."""

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
from tokenlight.cli.output import refuse_checkpoint
from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import BadRows
from tokenlight.runs.workers import Workers

if TYPE_CHECKING:
    from tokenlight.data.data_source import DataSource
    from tokenlight.results.tables import Table


FIRST_ROWS = 50  # of the check that scores depend on the weights


@app.command()
def bench(
    model: Annotated[str, typer.Argument(help="Checkpoint ('default' is the one inside), or a folder of results.")],
    data: Annotated[
        str | None, typer.Argument(help="A data file (TSV, CSV, JSON, Parquet, CoNLL-U), or hf:NAME.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder for the results.")] = None,
    method: MethodSpecsOption = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Repeat; also with options: pointing_game:k=1.", autocompletion=complete_metric),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A paper's protocol: attcat, mask_lrp, alti, arras, attcat_squad ...: docs/presets.md.",
            autocompletion=complete_protocol,
        ),
    ] = None,
    limit: LimitOption = None,
    sample: SampleOption = None,
    seed: SampleSeedOption = 0,
    bad_rows: Annotated[BadRows, typer.Option(help="Skip rows that cannot be used, or refuse to go on.")] = "skip",
    text: TextOption = None,
    pair: PairOption = None,
    label: Annotated[str | None, typer.Option(help="The column with the gold label.")] = None,
    split: SplitOption = None,
    kind: KindOption = None,
    removal: RemovalOption = None,
    heads: HeadsOption = None,
    erasure: Annotated[bool, typer.Option(help="Erasure as a control: one forward pass for every token.")] = True,
    seed_model: Annotated[list[str] | None, typer.Option(help="Repeat; models that differ in their seed.")] = None,
    fused: FusedOption = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
) -> None:
    """Compare methods by metrics on your own model and data. A run that was stopped continues with the same command."""
    from tokenlight.bench.measure import read_shown
    from tokenlight.bench.tabulate import read_table
    from tokenlight.data.data_source import DataSource
    from tokenlight.views.benchmark_report import write_views
    from tokenlight.views.benchmark_table import show_table

    with readable_errors():
        if data is None:
            if not (Path(model) / "run.json").is_file():
                raise RefusedValue("name the data to measure on, or a folder with results to show")
            chosen = (output, method, metric, preset, limit, sample, text, pair, label, split, kind, removal, heads)
            chosen += (
                seed_model,
                fused,
                task,
                workers,
                None if bad_rows == "skip" else bad_rows,
                None if erasure else 0,
            )
            if any(one is not None and one != [] for one in chosen):
                raise RefusedValue(f"{model} holds results, which are shown as they are: name the data for a new run")
            table, folder = read_table(model), Path(model)
            write_views(table, folder, read_shown(folder))
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
    """What can be checked without a model is checked before it is loaded."""
    from tokenlight.bench.benchmark import bench as run
    from tokenlight.bench.protocol import protocol as find_protocol
    from tokenlight.runs.method_specs import MethodSpec, parse_measure

    for written in settings["methods"] or ():
        MethodSpec.parse(written)
    for written in settings["metrics"] or ():
        parse_measure(written)
    if protocol is not None:
        find_protocol(protocol)
    others = [load_model(name, task, trust_remote_code, device) for name in seeds]
    try:
        return run(
            load_model(model, task, trust_remote_code, device),
            source,
            protocol=protocol,
            seed_models=others,
            **settings,
        )
    except KeyboardInterrupt as error:
        kept = f"what is done is in {settings['output']}; run the same command again to continue"
        say(f"tokenlight: stopped; {kept}", err=True)
        raise typer.Exit(INTERRUPTED) from error


@app.command()
def sanity(
    model: ModelArgument,
    data: DataArgument,
    method: MethodsOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many rows; default: 50, or the sample.")
    ] = None,
    sample: SampleOption = None,
    absolute: Annotated[bool, typer.Option(help="Compare |scores|.")] = False,
    seed: Annotated[int, typer.Option(help="Of the shuffling, and of --sample.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Draw the similarities here: png, svg or pdf.")] = None,
    text: TextOption = None,
    pair: PairOption = None,
    split: SplitOption = None,
    kind: KindOption = None,
    heads: HeadsOption = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
) -> None:
    """Do scores depend on what the model has learned? Its layers are shuffled from the top down."""
    from tokenlight.bench.robustness import check_methods, source_texts
    from tokenlight.data.data_source import DataSource
    from tokenlight.explain.explainer import DEFAULT_METHOD
    from tokenlight.runs.method_specs import MethodSpec
    from tokenlight.views.curve_chart import sanity_figure, sanity_table

    with readable_errors():
        if figure is not None:
            from tokenlight.views.drawing import check_figure_name

            check_figure_name(figure)
        specs = [MethodSpec.parse(one) for one in method or [DEFAULT_METHOD]]
        explainer = load_model(model, task, trust_remote_code, device)
        limit = FIRST_ROWS if limit is None and sample is None else limit
        source = DataSource(data, text=text, pair=pair, kind=kind, split=split, limit=limit, sample=sample, seed=seed)
        found = check_methods(explainer, source_texts(source, explainer), specs, heads, absolute=absolute, seed=seed)
        wide_console().print(sanity_table(found))
        if figure is not None:
            from tokenlight.views.drawing import save

            save(sanity_figure(found), figure)
