"""Which heads follow syntax or position: counting, thresholds, the map of heads."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenlight.cli.app import app, readable_errors, say, wide_console
from tokenlight.cli.loading import load_model
from tokenlight.cli.shared_options import (
    DeviceOption,
    KindOption,
    LimitOption,
    PairOption,
    SampleOption,
    SampleSeedOption,
    SplitOption,
    TaskOption,
    TrustOption,
)
from tokenlight.cli.writing import check_folder_of, confirm

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer
    from tokenlight.heads.parsed_texts import ParsedTextSource
    from tokenlight.masks.statistics import HeadStatistics


NO_HEAD = (
    "no head passed the thresholds, so with this mask relevance flows through no head at all. Count on more texts "
    "(thousands of real sentences), or lower --syntax-margin or --position-share"
)


class Parser(StrEnum):
    spacy = "spacy"
    conllu = "conllu"
    jsonl = "jsonl"


class Direction(StrEnum):
    dependent_head = "dependent-head"
    head_dependent = "head-dependent"


@app.command()
def heads(
    model: Annotated[str, typer.Argument(help="Checkpoint ('default' is the one inside), or a mask file to draw.")],
    texts: Annotated[
        str | None, typer.Argument(help="Texts (txt, tsv, csv, jsonl, parquet, hf:NAME), or parses.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The mask file to write.")] = None,
    parser: Annotated[Parser | None, typer.Option(help="Default: by the file's ending; texts go to spaCy.")] = None,
    spacy: Annotated[
        str | None, typer.Option(help="The spaCy pipeline, such as en_core_web_trf; default: the small English one.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", "--column", help="The column or key that holds the text.")
    ] = None,
    pair: PairOption = None,
    split: SplitOption = None,
    kind: KindOption = None,
    limit: LimitOption = None,
    sample: SampleOption = None,
    seed: SampleSeedOption = 0,
    relation: Annotated[list[str] | None, typer.Option(help="Repeat; default: nsubj, obj, amod, advmod.")] = None,
    direction: Annotated[Direction, typer.Option(help="Who attends to whom.")] = Direction.dependent_head,
    syntax_margin: Annotated[
        float, typer.Option(help="How much better than the usual distance a head must follow a relation (ξ_synt).")
    ] = 0.1,
    position_share: Annotated[
        float, typer.Option(help="In how many tokens a head must look at the same offset (ξ_pos).")
    ] = 0.8,
    count_self: Annotated[bool, typer.Option(help="Attention to the token itself is positional too.")] = False,
    count_relations: Annotated[
        bool, typer.Option(help="A head counts once for every relation that it follows, as in the paper's equation 7.")
    ] = False,
    figure: Annotated[Path | None, typer.Option(help="Draw the map of heads here: png, svg or pdf.")] = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
) -> None:
    """Find the heads that follow syntax or position, and write them as a mask for `explain --heads`."""
    from tokenlight.data.source import DataSource
    from tokenlight.heads.parsed_texts import parse_source
    from tokenlight.masks.head_mask import HeadMask
    from tokenlight.views.head_map import head_map

    with readable_errors():
        if figure is not None:
            from tokenlight.views.figure import check_figure_name

            check_figure_name(figure)
        if texts is None:
            if not model.endswith(".json"):
                raise ValueError("name the texts to count on, or a mask file (.json) to draw")
            mask = HeadMask.load(model)
        elif output is None:
            raise ValueError("name the file to write with -o masks.json")
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
        wide_console().print(head_map(mask))
        if not mask.count:
            say(f"warning: {NO_HEAD}", err=True)
        if figure is not None:
            from tokenlight.views.figure import save
            from tokenlight.views.head_figure import head_figure

            save(head_figure(mask), figure)


def count(
    explainer: "Explainer", source: "ParsedTextSource", output: Path, relations: list[str] | None, direction: str
) -> "HeadStatistics":
    from tokenlight.heads.count import count_heads
    from tokenlight.masks.statistics import RELATIONS

    chosen = RELATIONS if not relations else {relation: RELATIONS.get(relation, (relation,)) for relation in relations}
    return count_heads(
        explainer,
        source.behind,
        relations=chosen,
        direction=direction,
        source=source.name,
        checkpoint=checkpoint_of(output),
        total=source.count,
    )


def checkpoint_of(output: Path) -> Path:
    """Where counts are kept until the mask is written: a command that was stopped continues there."""
    return output.with_name(output.name + ".partial")
