"""Arguments and options that several commands have, and prompts, chats and documents read from them."""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenlight.cli.catalog import complete_method, complete_task
from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import Quantity, RemovalName
from tokenlight.runs.workers import Engine

if TYPE_CHECKING:
    from tokenlight.text.documents import Prompt
    from tokenlight.text.tokenized_text import Chat


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


STANDARD_INPUT = "-"
MessagesOption = Annotated[
    Path | None, typer.Option(help='A chat in place of the text: a JSON file with a list of {"role", "content"}.')
]
DocumentsOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="Passages: text files (repeat for several), or a JSON file with a list or {name: text}. "
        "If the prompt does not hold them, they are put before it."
    ),
]


def read_prompt(text: str | None, messages: Path | None) -> "Prompt":
    if text is None and messages is None:
        raise RefusedValue("give a text to explain, or a chat with --messages FILE")
    if text is not None and messages is not None:
        raise RefusedValue("give a text, or a chat with --messages FILE, but not both")
    if messages is not None:
        return read_messages(messages)
    return read_standard_input() if text == STANDARD_INPUT else text or ""


def read_standard_input() -> str:
    """Without the line break that ends what programs print."""
    try:
        found = sys.stdin.buffer.read().decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RefusedValue(f"standard input: expected UTF-8 text: {error}") from error
    if not found.strip():
        raise RefusedValue("standard input is empty: expected the text to explain")
    return found


def read_messages(path: Path) -> "Chat":
    from tokenlight.text.tokenize import read_chat

    found = read_json(path)
    found = found.get("messages", found) if isinstance(found, dict) else found  # as services store chats
    if not isinstance(found, list) or not found:
        raise RefusedValue(f'{path}: expected a list of {{"role": ..., "content": ...}}, found {describe(found)}')
    try:
        return read_chat(found)
    except (TypeError, ValueError) as error:
        raise RefusedValue(f"{path}: {error}") from error


def read_documents(paths: Sequence[Path]) -> dict[str, str]:
    """By name: those of a JSON file, or a text file's own."""
    from tokenlight.data.columns import read_documents as named

    found: dict[str, str] = {}
    for path in paths:
        value = read_json(path) if path.suffix.lower() == ".json" else {path.stem: read_file(path)}
        if isinstance(value, list):
            value = {f"document {number}": text for number, text in enumerate(value, len(found) + 1)}
        try:
            more = named(value)
        except ValueError as error:
            raise RefusedValue(f"{path}: {error}") from error
        if twice := set(found) & set(more):
            raise RefusedValue(f"{path}: there is a document {min(twice)!r} already: give it another name")
        found |= more
    return found


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_file(path))
    except json.JSONDecodeError as error:
        raise RefusedValue(f"{path}, line {error.lineno}, column {error.colno}: expected JSON: {error.msg}") from error


def read_file(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedValue(f"{path}: expected UTF-8 text: {error}") from error


def describe(found: Any) -> str:
    """In a few words."""
    if isinstance(found, dict):
        return f"an object with {', '.join(map(repr, found)) or 'nothing'}"
    return "an empty list" if found == [] else type(found).__name__
