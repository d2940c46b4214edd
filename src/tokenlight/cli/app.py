"""The root of the command line, and what every command shares."""

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

import tokenlight
from tokenlight.common.escaping import escape_controls, escape_in_document

if TYPE_CHECKING:
    from rich.console import Console

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130  # how shells say that a command was stopped by Ctrl-C
LOGGERS = ("transformers", "huggingface_hub")  # that print names from files of models
COLORS = re.compile(r"\x1b\[[\d;]*m")  # with which transformers writes tables on a terminal
format_warning: Callable[..., str] = warnings.formatwarning
ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="Checkpoint name or path; 'default' is the one inside.")
]


def wide_console() -> "Console":
    """For tables: as wide as the terminal, and without line breaks in a file or a pipe."""
    from tokenlight.common.console import SafeConsole

    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=400)


def say(message: str, err: bool = False) -> None:
    """Print one line. Names and texts of users may be in it: control characters are escaped."""
    typer.echo(escape_controls(message), err=err)


def escape_message(message: str) -> str:
    """What another package prints, without its colors and with control characters escaped."""
    return escape_in_document(COLORS.sub("", message))


class SafeFormatter(logging.Formatter):
    """Messages as another formatter writes them, with control characters escaped."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        return escape_message(self.formatter.format(record))


def escape_logs() -> None:
    """To be called when the packages have been imported: they make their handlers then."""
    for handler in (handler for name in LOGGERS for handler in logging.getLogger(name).handlers):
        if not isinstance(handler.formatter, SafeFormatter):
            handler.setFormatter(SafeFormatter(handler.formatter or logging.Formatter()))


def format_safe_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return escape_message(format_warning(message, category, filename, lineno, line))


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
    """Which tokens made a Transformer say that, by dozens of published methods."""
    warnings.formatwarning = format_safe_warning


@contextmanager
def readable_errors() -> Iterator[None]:
    """What a person got wrong is one line and exit code 2, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        say(f"tokenlight: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error
