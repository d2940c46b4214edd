"""The command line's root, and what every command shares."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

app: typer.Typer = typer.Typer(
    help="Which tokens made a Transformer say that, by every published way of asking.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
DEFAULT = "default"  # the name of the embedded model

ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="Checkpoint name or path; 'default' is the one inside.")
]


def load_model(name: str, task: str | None) -> Any:
    from transformers.utils.logging import disable_progress_bar

    from tokenlight.explain.explainer import load

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


def wide_console() -> "Console":
    """For tables: as wide as the terminal, and without line breaks in a file or a pipe."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=400)


@contextmanager
def readable_errors() -> Iterator[None]:
    """What a person got wrong is one line and exit code 2, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        typer.echo(f"tokenlight: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error
