"""Commands that find the heads that follow syntax or position, and calibrate head strengths."""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenlight.cli.app import app, readable_errors, say, wide_console
from tokenlight.cli.catalog import complete_method
from tokenlight.cli.load import load_model
from tokenlight.cli.options import (
    DataArgument,
    DeviceOption,
    KindOption,
    LimitOption,
    ModelArgument,
    PairOption,
    RemovalOption,
    SampleOption,
    SampleSeedOption,
    SplitOption,
    TaskOption,
    TextOption,
    TrustOption,
)
from tokenlight.cli.output import check_figure_path, check_folder_of, confirm
from tokenlight.common.errors import RefusedValue
from tokenlight.common.formatting import describe_count

if TYPE_CHECKING:
    from tokenlight.data.read import ParsedTextSource
    from tokenlight.explain.explainer import Explainer
    from tokenlight.heads.mask import HeadMask
    from tokenlight.heads.statistics import HeadStatistics


NO_HEAD = (
    "no head reached a threshold, so this mask lets relevance through no head at all. Use more texts (thousands of "
    "real sentences), or lower --syntax-margin or --position-share"
)
CALIBRATION_ROWS = 200  # how many rows `calibrate` uses by default


class Parser(StrEnum):
    spacy = "spacy"
    conllu = "conllu"
    jsonl = "jsonl"


class Direction(StrEnum):
    dependent_head = "dependent-head"
    head_dependent = "head-dependent"


@app.command()
def heads(
    model: Annotated[
        str,
        typer.Argument(help="Checkpoint ('default' is the model that comes with tokenlight), or a mask file to draw."),
    ],
    texts: Annotated[
        str | None, typer.Argument(help="Texts (txt, tsv, csv, jsonl, parquet, hf:NAME), or parses.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The mask file to write.")] = None,
    parser: Annotated[
        Parser | None,
        typer.Option(
            help="What parses the texts, or the format of parses; default: from the file's ending, spaCy for texts."
        ),
    ] = None,
    spacy: Annotated[
        str | None, typer.Option(help="The spaCy pipeline, such as en_core_web_trf; default: a small English one.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", "--column", help="The column or key with the text.")] = None,
    pair: PairOption = None,
    split: SplitOption = None,
    kind: KindOption = None,
    limit: LimitOption = None,
    sample: SampleOption = None,
    seed: SampleSeedOption = 0,
    relation: Annotated[
        list[str] | None,
        typer.Option(help="A dependency relation; repeat for several. Default: nsubj, obj, amod, advmod."),
    ] = None,
    direction: Annotated[Direction, typer.Option(help="Which word attends to which.")] = Direction.dependent_head,
    syntax_margin: Annotated[
        float,
        typer.Option(
            help="How far above the share of the most frequent distance a head must follow a relation (ξ_synt)."
        ),
    ] = 0.1,
    position_share: Annotated[
        float, typer.Option(help="In which share of the tokens a head must attend to the same offset (ξ_pos).")
    ] = 0.8,
    count_self: Annotated[bool, typer.Option(help="Count attention to the token itself as positional.")] = False,
    count_relations: Annotated[
        bool, typer.Option(help="Count a head once for each relation that it follows, as in the paper's equation 7.")
    ] = False,
    figure: Annotated[Path | None, typer.Option(help="Draw the map of heads to this .png, .svg or .pdf file.")] = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
) -> None:
    """Find the heads that follow syntax or position, and write them as a mask for `explain --heads`."""
    from tokenlight.data.data_source import DataSource
    from tokenlight.data.read import parse_source
    from tokenlight.heads.mask import HeadMask

    with readable_errors():
        check_figure_path(figure)
        if texts is None:
            if not model.endswith(".json"):
                raise RefusedValue("name the texts to count on, or a mask file (.json) to draw")
            mask = HeadMask.load(model)
        elif output is None:
            raise RefusedValue("name the file to write with -o masks.json")
        else:
            check_folder_of(output)
            if kind is None and parser is not None and parser != Parser.spacy:
                kind = parser.value
            data = DataSource(
                texts, text=text, pair=pair, kind=kind, split=split, limit=limit, sample=sample, seed=seed
            )
            source = parse_source(data, parser and parser.value, spacy=spacy)
            counts = count(
                load_model(model, task, trust_remote_code, device), source, output, relation, direction.value
            )
            mask = counts.mask(syntax_margin, position_share, count_self=count_self, count_relations=count_relations)
            mask.save(output)
            checkpoint_of(output).unlink(missing_ok=True)
            confirm(output)
        show_heads(mask, figure)
        if not mask.count:
            say(f"warning: {NO_HEAD}", err=True)


def show_heads(mask: "HeadMask", figure: Path | None) -> None:
    """Print the map of heads, and draw it to a file."""
    from tokenlight.views.drawing import save
    from tokenlight.views.heads import head_figure, head_map

    wide_console().print(head_map(mask))
    if figure is not None:
        save(head_figure(mask), figure)


def count(
    explainer: "Explainer", source: "ParsedTextSource", output: Path, relations: list[str] | None, direction: str
) -> "HeadStatistics":
    """Head statistics over the texts. They are kept in a file beside the mask until that is written."""
    from tokenlight.heads.count import count_heads
    from tokenlight.heads.statistics import RELATIONS

    chosen = RELATIONS if not relations else {relation: RELATIONS.get(relation, (relation,)) for relation in relations}
    return count_heads(
        explainer,
        source.parses_after,
        relations=chosen,
        direction=direction,
        source=source.name,
        checkpoint=checkpoint_of(output),
        total=source.count,
    )


def checkpoint_of(output: Path) -> Path:
    """The file that keeps intermediate results until the mask is written, so that a stopped command can continue."""
    return output.with_name(output.name + ".partial")


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
        typer.Option(min=1, help="Use only the first N rows; 50 to 500 are best. Default: 200, or the sample."),
    ] = None,
    sample: SampleOption = None,
    removal: RemovalOption = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation over texts.")] = 4,
    steps: Annotated[int, typer.Option(min=1, help="Maximum number of steps of the search.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of the removal orders, of the folds, and of --sample.")] = 0,
    heads: Annotated[
        str | None,
        typer.Option(
            help="A mask to compare with; `tokenlight heads` writes one. Default: the mask that comes with the model."
        ),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the map of heads to this .png, .svg or .pdf file.")] = None,
    text: TextOption = None,
    pair: PairOption = None,
    split: SplitOption = None,
    kind: KindOption = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
) -> None:
    """Find the head strengths that make a method most faithful, and write them as a mask for `explain --heads`."""
    from tokenlight.bench.cases import select_cases
    from tokenlight.bench.protocol import Protocol
    from tokenlight.calibration.calibrate import calibrate as run
    from tokenlight.calibration.calibrate import relevance_method
    from tokenlight.data.data_source import DataSource
    from tokenlight.data.read import read_examples
    from tokenlight.methods.config import MethodConfig
    from tokenlight.metrics.evaluate import Measure
    from tokenlight.metrics.perturbation import Perturbation

    with readable_errors():
        check_figure_path(figure)
        check_folder_of(output)
        relevance_method(method)
        limit = CALIBRATION_ROWS if limit is None and sample is None else limit
        source = DataSource(texts, text=text, pair=pair, kind=kind, split=split, limit=limit, sample=sample, seed=seed)
        explainer = load_model(model, task, trust_remote_code, device)
        perturbation = Perturbation(removal=removal)
        protocol = Protocol("calibration", (Measure("aopc", perturbation),))
        rows = list(enumerate(read_examples(source, explainer.task.gap)))
        all_heads = {method: MethodConfig.for_model(relevance_method(method), {"heads": None}, explainer.inner)}
        cases, skipped = select_cases(explainer, protocol, rows, all_heads)
        reasons = Counter(str(record.get("bad") or record.get("set_aside")) for record in skipped)
        for reason, rows in reasons.items():
            say(f"{describe_count(rows, 'row')} skipped: {reason}", err=True)
        mask = run(
            explainer,
            [case.draft.tokenized_text.text for case in cases],
            method,
            target=[case.target for case in cases],
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
        show_heads(mask, figure)
