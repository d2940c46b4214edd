"""The command line. Each command reads its input, calls the library, prints."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

app = typer.Typer(
    help="Which tokens made a Transformer say that, by every published way of asking.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
DEFAULT = "default"  # the name of the embedded model


class Format(StrEnum):
    terminal = "terminal"
    html = "html"
    json = "json"


ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="Checkpoint name or path; 'default' is the one inside.")
]


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="The text to explain.")],
    model: ModelOption = DEFAULT,
    method: Annotated[list[str] | None, typer.Option(help="Repeat for several; see `tokenlight methods`.")] = None,
    target: Annotated[str | None, typer.Option(help="Label or token; default: what the model predicts.")] = None,
    foil: Annotated[str | None, typer.Option(help="Explain target minus this.")] = None,
    context: Annotated[str | None, typer.Option(help="The second text of a pair: a question's context.")] = None,
    position: Annotated[
        int | None, typer.Option(help="The token to explain, where the model answers for each.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Default: as the checkpoint's config says.")] = None,
    format: Annotated[Format, typer.Option(help="How to show the result.")] = Format.terminal,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
) -> None:
    """Explain what a model says about a text."""
    from tokenlight.explainer import DEFAULT_METHOD
    from tokenlight.methods import find_method

    with readable_errors():
        chosen = [find_method(name).name for name in method or [DEFAULT_METHOD]]  # before the model: loading is slow
        explainer = load_model(model, task)
        goal: Any = target if position is None else (position, target)
        results = explainer.explain_all(text if context is None else (text, context), chosen, target=goal, foil=foil)
        write(list(results.values()), format, output)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the same goes as HTML.")] = Path("demo.html"),
) -> None:
    """Explain three sentences with several methods: the first thing to look at."""
    from tokenlight.demo import METHODS, SENTENCES
    from tokenlight.views.html import page
    from tokenlight.views.terminal import legend, show

    with readable_errors():
        explainer, console = load_model(DEFAULT, None), Console()
        by_method = explainer.explain_all(SENTENCES, METHODS)
        groups = [list(group) for group in zip(*by_method.values(), strict=True)]
        for group in groups:
            show(group, console)
            console.print()
        console.print(legend())
        output.write_text(page(groups), encoding="utf-8")
        console.print(f"The same as a page: {output.resolve()}", soft_wrap=True, highlight=False)


@app.command()
def methods() -> None:
    """List all methods."""
    from tokenlight.views.terminal import method_table

    wide_console().print(method_table())


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="Checkpoint name or path; 'default' is the one inside.")] = DEFAULT,
    task: Annotated[str | None, typer.Option(help="Default: as the checkpoint's config says.")] = None,
) -> None:
    """Which methods work on this model, and what an explanation costs: tried on a short input."""
    from tokenlight.doctor import examine, report

    with readable_errors():
        explainer = load_model(model, task)
        wide_console().print(report(explainer, examine(explainer)))


def load_model(name: str, task: str | None) -> Any:
    from transformers.utils.logging import disable_progress_bar

    from tokenlight.explainer import load

    disable_progress_bar()
    if name.startswith(("/", ".", "~")) and not Path(name).exists():
        raise ValueError(f"there is no model {name!r}: no such folder")
    try:
        return load(None if name == DEFAULT else name, task=task)
    except OSError as error:
        if name == DEFAULT:
            raise
        # transformers explains at length how to reach the Hub; its first sentence says what is missing in a folder.
        reason = re.split(r"\.?\s*\n|\. ", str(error))[0] if Path(name).is_dir() else "no such folder, nor on the Hub"
        raise ValueError(f"there is no model {name!r}: {reason}") from error


def wide_console() -> Console:
    """For tables: as wide as the terminal, and without line breaks in a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=400)


def write(explanations: list[Any], format: Format, output: Path | None) -> None:
    """One document in the chosen format, to a file or to standard output."""
    if format is Format.json:
        document = json.dumps([e.to_dict() for e in explanations], ensure_ascii=False, indent=1) + "\n"
    elif format is Format.html:
        from tokenlight.views.html import page

        document = page([explanations])
    else:
        from tokenlight.views.terminal import show

        if output is None:
            show(explanations)
            return
        with open(output, "w", encoding="utf-8") as file:
            show(explanations, Console(file=file, width=100_000))
        return
    if output is None:
        sys.stdout.write(document)
    else:
        output.write_text(document, encoding="utf-8")


@contextmanager
def readable_errors() -> Iterator[None]:
    """What a person got wrong is one line and exit code 2, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"tokenlight: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app()
