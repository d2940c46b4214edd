"""Writes results and explained answers to files, and checks the paths before any work."""

import json
import os
import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenlight.cli.app import say
from tokenlight.cli.options import Format
from tokenlight.common.errors import RefusedValue
from tokenlight.common.escaping import escape_html, escape_in_document, escape_json
from tokenlight.common.files import write_atomically

if TYPE_CHECKING:
    from tokenlight.explain.answers import AnswerLike
    from tokenlight.explain.explainer import Explainer
    from tokenlight.results.explained_answer import ExplainedAnswer
    from tokenlight.text.documents import Prompt


FORMATS = {".html": Format.html, ".htm": Format.html, ".json": Format.json, ".txt": Format.terminal}


def check_folder_of(output: Path | None) -> None:
    """Before anything takes time."""
    if output is None:
        return
    if output.is_dir():
        raise RefusedValue(f"cannot write to {output}: this is a folder; name a file in it")
    if not output.parent.is_dir():
        raise RefusedValue(f"cannot write to {output}: there is no folder {str(output.parent)!r}; make it first")
    if not output.exists() and not os.access(output.parent, os.W_OK | os.X_OK):
        raise RefusedValue(f"cannot write to {output}: no file can be made in the folder {str(output.parent)!r}")


def format_for(output: Path | None, chosen: Format | None) -> Format:
    """What somebody chose, or what the file's name says; the terminal's where there is no file."""
    if chosen is not None:
        return chosen
    if output is None:
        return Format.terminal
    found = FORMATS.get(output.suffix.lower(), None if output.suffix else Format.terminal)
    if found is None:
        raise RefusedValue(
            f"{output}: expected a name that ends in {', '.join(FORMATS)}, or --format to say what it is"
        )
    return found


def refuse_checkpoint(folder: Path) -> None:
    """Results would lie between the files of a model."""
    if (folder / "config.json").is_file():
        raise RefusedValue(f"{folder} holds a model: name another folder for the results, such as {folder}-results")


def print_document(document: str, format: Format | None) -> None:
    """To standard output, which may be a terminal: with control characters escaped, as the format allows it."""
    escape = {Format.json: escape_json, Format.html: escape_html}.get(format or Format.terminal, escape_in_document)
    sys.stdout.write(escape(document))


def confirm(output: Path) -> None:
    """On standard error, so that standard output holds results alone."""
    say(f"written to {output}", err=True)


ENDINGS = (".html", ".json", ".parquet")


def explain_answer(
    explainer: "Explainer", prompt: "Prompt", answer: "AnswerLike", method: str, **settings: Any
) -> "ExplainedAnswer":
    """With a bar for the answer's tokens, where it takes long."""
    from tokenlight.common.progress import count_progress, on_backward_pass
    from tokenlight.explain.answers import answer_ids
    from tokenlight.methods import find_method

    tokens = len(answer_ids(explainer.task, explainer.encode([prompt])[0], answer))
    total = None if find_method(method).asks_model else tokens  # those come back to every token again and again
    with count_progress("explaining", total) as advance, on_backward_pass(lambda: advance(1)):
        return explainer.explain_answer(prompt, answer, method, progress=False, **settings)


def check_output(output: Path | None, format: Format | None = None) -> None:
    """Before anything takes time."""
    if output is None:
        return
    if format is None and output.suffix.lower() not in ENDINGS:
        raise RefusedValue(f"{output}: expected a file that ends in {', '.join(ENDINGS)}")
    check_folder_of(output)


def write_answer(found: "ExplainedAnswer", output: Path | None, format: Format | None = None) -> None:
    """In the chosen format, or as the file's name ends; without a file, to standard output."""
    if format is None and output is not None:
        if output.suffix.lower() != ".html":
            found.save(output)
            confirm(output)
            return
        format = Format.html
    if format is Format.html:
        document = found.to_html()
    elif format is Format.json:
        document = json.dumps(found.to_dict(), ensure_ascii=False) + "\n"
    else:
        show(found, output)
        return
    if output is None:
        print_document(document, format)
    else:
        write_atomically(output, document)
        confirm(output)


def show(found: "ExplainedAnswer", output: Path | None) -> None:
    from tokenlight.common.console import SafeConsole
    from tokenlight.views.terminal import show_answer

    if output is None:
        found.show()
        return
    file = StringIO()
    show_answer(found, SafeConsole(file=file, width=100_000))
    write_atomically(output, file.getvalue())
    confirm(output)
