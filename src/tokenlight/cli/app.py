"""The command line's root, and what every command shares."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

import tokenlight
from tokenlight.foundation.escaping import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130  # how shells say that a command was stopped by Ctrl-C
ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="Checkpoint name or path; 'default' is the one inside.")
]


def wide_console() -> "Console":
    """For tables: as wide as the terminal, and without line breaks in a file or a pipe."""
    from tokenlight.foundation.console import SafeConsole

    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=400)


def say(message: str, err: bool = False) -> None:
    """Print one line. Names and texts of users may be in it: control characters are escaped."""
    typer.echo(escape_controls(message), err=err)


def print_version(wanted: bool) -> None:
    if wanted:
        say(f"tokenlight {tokenlight.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Which tokens made a Transformer say that, by every published way of asking."""


@contextmanager
def readable_errors() -> Iterator[None]:
    """What a person got wrong is one line and exit code 2, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        say(f"tokenlight: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error
