"""Which heads make explanations faithful on this model: calibration."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tokenlight.cli.app import app, readable_errors, say, wide_console
from tokenlight.cli.completion import complete_method
from tokenlight.cli.heads import checkpoint_of
from tokenlight.cli.loading import load_model
from tokenlight.cli.shared_options import (
    DataArgument,
    DeviceOption,
    KindOption,
    ModelArgument,
    PairOption,
    RemovalOption,
    SampleOption,
    SplitOption,
    TaskOption,
    TextOption,
    TrustOption,
)
from tokenlight.cli.writing import check_folder_of, confirm
from tokenlight.foundation.sizes import describe_count

FIRST_ROWS = 200


@app.command()
def calibrate(
    model: ModelArgument,
    texts: DataArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The mask file to write.")],
    method: Annotated[
        str, typer.Option(help="A relevance method that takes heads.", autocompletion=complete_method)
    ] = "attn_lrp",
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Only the first so many rows; 50 to 500 are best. Default: 200, or the sample."),
    ] = None,
    sample: SampleOption = None,
    removal: RemovalOption = None,
    folds: Annotated[
        int, typer.Option(min=2, help="Parts of the texts; each is judged by a search over the others.")
    ] = 4,
    steps: Annotated[int, typer.Option(min=1, help="At most so many steps of the search.")] = 60,
    seed: Annotated[int, typer.Option(help="Of the orders, of the division of the texts, and of --sample.")] = 0,
    heads: Annotated[
        str | None, typer.Option(help="A mask to be compared with, see `tokenlight heads`; default: the model's own.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the map of heads here: png, svg or pdf.")] = None,
    text: TextOption = None,
    pair: PairOption = None,
    split: SplitOption = None,
    kind: KindOption = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
) -> None:
    """Find the head strengths that make a method most faithful, and write them as a mask for `explain --heads`."""
    from tokenlight.bench.cases import sort_out
    from tokenlight.bench.protocol import Protocol
    from tokenlight.calibration.calibrate import calibrate as run
    from tokenlight.calibration.calibrate import relevance_method
    from tokenlight.data.reading_examples import read_examples
    from tokenlight.data.source import DataSource
    from tokenlight.explain.jobs import MethodConfig
    from tokenlight.metrics.evaluate import Measure
    from tokenlight.metrics.perturbation import Perturbation
    from tokenlight.views.head_map import head_map

    with readable_errors():
        if figure is not None:
            from tokenlight.views.figure import check_figure_name

            check_figure_name(figure)
        check_folder_of(output)
        relevance_method(method)
        limit = FIRST_ROWS if limit is None and sample is None else limit
        source = DataSource(texts, text=text, pair=pair, kind=kind, split=split, limit=limit, sample=sample, seed=seed)
        explainer = load_model(model, task, trust_remote_code, device)
        perturbation = Perturbation() if removal is None else Perturbation().by(removal)
        judge = Protocol("calibration", (Measure("aopc", perturbation),))
        rows = list(enumerate(read_examples(source, explainer.task.gap)))
        plain = {method: MethodConfig.for_model(relevance_method(method), {"heads": None}, explainer.inner)}
        cases, aside = sort_out(explainer, judge, rows, plain)
        for reason, rows in Counter(str(row.get("bad") or row.get("set_aside")) for row in aside).items():
            say(f"{describe_count(rows, 'row')} skipped: {reason}", err=True)
        mask = run(
            explainer,
            [case.draft.tokenized_text.text for case in cases],
            method,
            target=[case.target for case in cases],
            foil=[case.foil for case in cases],
            perturbation=perturbation,
            folds=folds,
            steps=steps,
            seed=seed,
            heads=heads,
            source=source.name,
            checkpoint=checkpoint_of(output),
        )
        mask.save(output)
        checkpoint_of(output).unlink(missing_ok=True)
        confirm(output)
        wide_console().print(head_map(mask))
        if figure is not None:
            from tokenlight.views.figure import save
            from tokenlight.views.head_figure import head_figure

            save(head_figure(mask), figure)
