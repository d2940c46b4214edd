"""Arguments and options that several commands have."""

from enum import StrEnum
from typing import Annotated

import typer

from tokenlight.bench.options import RemovalName
from tokenlight.cli.completion import complete_method, complete_task
from tokenlight.explain.numbers import Quantity
from tokenlight.runs.workers import Engine


class Format(StrEnum):
    """How a result is shown."""

    terminal = "terminal"
    html = "html"
    json = "json"


ModelArgument = Annotated[str, typer.Argument(help="Checkpoint name or path; 'default' is the one inside.")]
DataArgument = Annotated[
    str, typer.Argument(help="TSV, CSV, JSON lines, Parquet, SQuAD JSON, CoNLL-U, plain text, or hf:NAME.")
]
TextOption = Annotated[str | None, typer.Option(help="The column with the text.")]
PairOption = Annotated[tuple[str, str] | None, typer.Option(help="The two columns of a pair.")]
SplitOption = Annotated[str | None, typer.Option(help="The split of a Hugging Face dataset.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Only the first so many rows.")]
SampleOption = Annotated[
    int | None, typer.Option(min=1, help="So many random rows of all, in the data's order; --seed draws others.")
]
SampleSeedOption = Annotated[int, typer.Option(help="Of --sample.")]
KindOption = Annotated[
    str | None, typer.Option(help="The kind of file where its name does not say it: tsv, csv, jsonl, parquet, txt ...")
]
HeadsOption = Annotated[str | None, typer.Option(help="A head mask: see `tokenlight heads`.")]
TaskOption = Annotated[
    str | None, typer.Option(help="Default: as the checkpoint's config says.", autocompletion=complete_task)
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that comes with the checkpoint: only if you trust it."),
]
DeviceOption = Annotated[str | None, typer.Option(help="Where the model runs: cpu, cuda, cuda:1 ...; default: cpu.")]
MethodsOption = Annotated[
    list[str] | None,
    typer.Option(help="Repeat for several; see `tokenlight methods`.", autocompletion=complete_method),
]
MethodSpecsOption = Annotated[
    list[str] | None,
    typer.Option(help="Repeat for several; also with options: alti:norm=l2.", autocompletion=complete_method),
]
EngineOption = Annotated[Engine, typer.Option(help="In this process, or in several under Ray.")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Ray's processes that hold the model.")]
FusedOption = Annotated[
    bool | None,
    typer.Option("--fused/--written-out", help="Attention as one operation or not; default: where it can be."),
]
QuantityOption = Annotated[
    Quantity, typer.Option(help="What is explained of a token of an answer: its logit, or how likely it is.")
]
RemovalOption = Annotated[
    RemovalName | None, typer.Option(help="How tokens are taken away; default: as suits the model.")
]
