"""Arguments and options that several commands share, and the prompts, chats and documents they name."""

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
from tokenlight.runs.workers import EngineName

if TYPE_CHECKING:
    from tokenlight.text.documents import Prompt
    from tokenlight.text.tokenized_text import Chat


class Format(StrEnum):
    """The format of a printed or written result."""

    terminal = "terminal"
    html = "html"
    json = "json"


MODEL_HELP = "Checkpoint name or path; 'default' is the model that comes with tokenlight."
ModelArgument = Annotated[str, typer.Argument(help=MODEL_HELP)]
ModelOption = Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)]
DataArgument = Annotated[
    str, typer.Argument(help="TSV, CSV, JSON lines, Parquet, SQuAD JSON, CoNLL-U, plain text, or hf:NAME.")
]
TextOption = Annotated[str | None, typer.Option(help="The column with the text.")]
PairOption = Annotated[tuple[str, str] | None, typer.Option(help="The two columns of a pair.")]
SplitOption = Annotated[str | None, typer.Option(help="The split of a Hugging Face dataset.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Use only the first N rows.")]
SampleOption = Annotated[
    int | None, typer.Option(min=1, help="Use N random rows, in the order of the data; --seed chooses which.")
]
SampleSeedOption = Annotated[int, typer.Option(help="Seed of --sample.")]
KindOption = Annotated[
    str | None, typer.Option(help="File type, if the name does not show it: tsv, csv, jsonl, parquet, txt ...")
]
HeadsOption = Annotated[str | None, typer.Option(help="A head mask file; `tokenlight heads` writes one.")]
TaskOption = Annotated[
    str | None,
    typer.Option(help="The model's task; default: from the checkpoint's config.", autocompletion=complete_task),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run Python code that comes with the checkpoint. Use it only if you trust that code.",
    ),
]
DeviceOption = Annotated[str | None, typer.Option(help="Device of the model: cpu, cuda, cuda:1 ...; default: cpu.")]
MethodsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Method name; repeat for several. `tokenlight methods` lists all.", autocompletion=complete_method
    ),
]
MethodSpecsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Method name, also with options, such as alti:norm=l2; repeat for several.",
        autocompletion=complete_method,
    ),
]
EngineOption = Annotated[
    EngineName, typer.Option(help="Run in this process (local), or in several processes under Ray.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="How many Ray processes hold the model.")]
FusedOption = Annotated[
    bool | None,
    typer.Option(
        "--fused/--written-out",
        help="Compute attention as one operation, or step by step; default: as one operation where possible.",
    ),
]
QuantityOption = Annotated[
    Quantity, typer.Option(help="What is explained for each token of an answer: its logit or its log-probability.")
]
RemovalOption = Annotated[
    RemovalName | None, typer.Option(help="How tokens are removed; default: depends on the model.")
]


STANDARD_INPUT = "-"  # as a text
MessagesOption = Annotated[
    Path | None, typer.Option(help='A chat instead of a text: a JSON file with a list of {"role", "content"}.')
]
DocumentsOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="Documents: text files (repeat for several), or a JSON file with a list or {name: text}. "
        "Documents that are not in the prompt are inserted before it."
    ),
]


def read_prompt(text: str | None, messages: Path | None) -> "Prompt":
    """The text, standard input for "-", or the chat in a file. Refuses none and both."""
    if text is None and messages is None:
        raise RefusedValue("give a text to explain, or a chat with --messages FILE")
    if text is not None and messages is not None:
        raise RefusedValue("give a text, or a chat with --messages FILE, but not both")
    if messages is not None:
        return read_messages(messages)
    return read_standard_input() if text == STANDARD_INPUT else text or ""


def read_standard_input() -> str:
    """The text on standard input, without the final line break."""
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RefusedValue(f"standard input: expected UTF-8 text: {error}") from error
    if not text.strip():
        raise RefusedValue("standard input is empty: expected the text to explain")
    return text


def read_messages(path: Path) -> "Chat":
    """The chat in a JSON file: a list of messages, or an object with such a list under "messages"."""
    from tokenlight.text.tokenize import read_chat

    content = read_json(path)
    messages = content.get("messages", content) if isinstance(content, dict) else content  # as services store chats
    if not isinstance(messages, list) or not messages:
        raise RefusedValue(f'{path}: expected a list of {{"role": ..., "content": ...}}, found {describe(messages)}')
    try:
        return read_chat(messages)
    except (TypeError, ValueError) as error:
        raise RefusedValue(f"{path}: {error}") from error


def read_documents(paths: Sequence[Path]) -> dict[str, str]:
    """Documents by name: from JSON files, or text files, whose documents are named after the file."""
    from tokenlight.data.columns import read_documents as check_documents

    documents: dict[str, str] = {}
    for path in paths:
        value = read_json(path) if path.suffix.lower() == ".json" else {path.stem: read_file(path)}
        if isinstance(value, list):
            value = {f"document {number}": text for number, text in enumerate(value, len(documents) + 1)}
        try:
            in_file = check_documents(value)
        except ValueError as error:
            raise RefusedValue(f"{path}: {error}") from error
        if duplicates := set(documents) & set(in_file):
            raise RefusedValue(f"{path}: there is already a document {min(duplicates)!r}: give it another name")
        documents |= in_file
    return documents


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


def describe(value: Any) -> str:
    """A JSON value in a few words, for messages."""
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, value)) or 'nothing'}"
    return "an empty list" if value == [] else type(value).__name__
