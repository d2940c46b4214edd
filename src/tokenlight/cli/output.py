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
    from tokenlight.explain.explainer import Explainer
    from tokenlight.explain.generate import AnswerLike
    from tokenlight.results.explained_answer import ExplainedAnswer
    from tokenlight.text.documents import Prompt


FORMATS = {".html": Format.html, ".htm": Format.html, ".json": Format.json, ".txt": Format.terminal}


def check_folder_of(output: Path | None) -> None:
    """Refuse a file that cannot be written, before any work, such as one in a folder that does not exist."""
    if output is None:
        return
    if output.is_dir():
        raise RefusedValue(f"cannot write to {output}: this is a folder; name a file in it")
    if not output.parent.is_dir():
        raise RefusedValue(f"cannot write to {output}: there is no folder {str(output.parent)!r}; make it first")
    if not output.exists() and not os.access(output.parent, os.W_OK | os.X_OK):
        raise RefusedValue(f"cannot write to {output}: no file can be made in the folder {str(output.parent)!r}")


def format_for(output: Path | None, chosen: Format | None) -> Format:
    """The chosen format, or the one of the file's ending; the terminal's without a file or an ending."""
    if chosen is not None:
        return chosen
    if output is None or not output.suffix:
        return Format.terminal
    if output.suffix.lower() not in FORMATS:
        raise RefusedValue(f"{output}: expected a name that ends in {', '.join(FORMATS)}, or a format in --format")
    return FORMATS[output.suffix.lower()]


def check_figure_path(path: Path | None) -> None:
    """Refuse a figure that cannot be written, before any work."""
    from tokenlight.views.drawing import check_figure_name

    if path is not None:
        check_figure_name(path)
        check_folder_of(path)


def refuse_checkpoint(folder: Path) -> None:
    """Refuse to write results into the folder of a model."""
    if (folder / "config.json").is_file():
        raise RefusedValue(f"{folder} holds a model: name another folder for the results, such as {folder}-results")


def print_document(document: str, format: Format | None) -> None:
    """Write to standard output, which may be a terminal, with control characters escaped in the way of the format."""
    escape = {Format.json: escape_json, Format.html: escape_html}.get(format or Format.terminal, escape_in_document)
    sys.stdout.write(escape(document))


def confirm(output: Path) -> None:
    """Name the written file on standard error, so that standard output contains only results."""
    say(f"written to {output}", err=True)


ENDINGS = (".html", ".json", ".parquet")


def explain_answer(
    explainer: "Explainer", prompt: "Prompt", answer: "AnswerLike", method: str, **settings: Any
) -> "ExplainedAnswer":
    """Explain an answer, with a progress bar over its tokens if it takes long."""
    from tokenlight.common.progress import count_progress, on_backward_pass
    from tokenlight.explain.resolve import answer_ids
    from tokenlight.methods import find_method

    tokens = len(answer_ids(explainer.task, explainer.encode([prompt])[0], answer))
    total = (
        None if find_method(method).runs_model else tokens
    )  # these methods run each token an unknown number of times
    with count_progress("explaining", total) as advance, on_backward_pass(lambda: advance(1)):
        return explainer.explain_answer(prompt, answer, method, progress=False, **settings)


def check_output(output: Path | None, format: Format | None = None) -> None:
    """Refuse a file that no answer can be written to, before any work."""
    if output is None:
        return
    if format is None and output.suffix.lower() not in ENDINGS:
        raise RefusedValue(f"{output}: expected a file that ends in {', '.join(ENDINGS)}")
    check_folder_of(output)


def write_answer(answer: "ExplainedAnswer", output: Path | None, format: Format | None = None) -> None:
    """Write in the chosen format, or the one of the file's ending; without a file, to standard output."""
    if format is None and output is not None:
        if output.suffix.lower() != ".html":
            answer.save(output)
            confirm(output)
            return
        format = Format.html
    if format is Format.html:
        document = answer.to_html()
    elif format is Format.json:
        document = json.dumps(answer.to_dict(), ensure_ascii=False) + "\n"
    else:
        write_as_text(answer, output)
        return
    if output is None:
        print_document(document, format)
    else:
        write_atomically(output, document)
        confirm(output)


def write_as_text(answer: "ExplainedAnswer", output: Path | None) -> None:
    """Show an answer in the terminal, or write the same text to a file."""
    from tokenlight.common.console import SafeConsole
    from tokenlight.views.terminal import show_answer

    if output is None:
        answer.show()
        return
    file = StringIO()
    show_answer(answer, SafeConsole(file=file, width=100_000))
    write_atomically(output, file.getvalue())
    confirm(output)
