"""An answer explained on the command line, and written where and how somebody wants it."""

import json
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenlight.cli.shared_options import Format
from tokenlight.cli.writing import check_folder_of, confirm, print_document
from tokenlight.foundation.files import write_whole

if TYPE_CHECKING:
    from tokenlight.explain.answering import AnswerLike
    from tokenlight.explain.explainer import Explainer
    from tokenlight.results.explained_answer import ExplainedAnswer
    from tokenlight.text.documents import Prompt

ENDINGS = (".html", ".json", ".parquet")


def explain_answer(
    explainer: "Explainer", prompt: "Prompt", answer: "AnswerLike", method: str, **settings: Any
) -> "ExplainedAnswer":
    """With a bar for the answer's tokens, where it takes long."""
    from tokenlight.explain.answering import answer_ids
    from tokenlight.foundation.progress import at_each_part, counting
    from tokenlight.methods import find_method

    tokens = len(answer_ids(explainer.task, explainer.encode([prompt])[0], answer))
    total = None if find_method(method).asks_model else tokens  # those come back to every token again and again
    with counting("explaining", total) as advance, at_each_part(lambda: advance(1)):
        return explainer.explain_answer(prompt, answer, method, progress=False, **settings)


def check_output(output: Path | None, format: Format | None = None) -> None:
    """Before anything takes time."""
    if output is None:
        return
    if format is None and output.suffix.lower() not in ENDINGS:
        raise ValueError(f"{output}: expected a file that ends in {', '.join(ENDINGS)}")
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
        write_whole(output, document)
        confirm(output)


def show(found: "ExplainedAnswer", output: Path | None) -> None:
    from tokenlight.foundation.console import SafeConsole
    from tokenlight.views.answer import show_answer

    if output is None:
        found.show()
        return
    file = StringIO()
    show_answer(found, SafeConsole(file=file, width=100_000))
    write_whole(output, file.getvalue())
    confirm(output)
