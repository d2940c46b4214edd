"""The root of the command line: its output, its warnings and its errors."""

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

INTERRUPTED = 130  # the exit code of a command that was stopped by Ctrl-C
LOGGERS = ("transformers", "huggingface_hub")  # loggers whose messages contain names from a model's files
COLORS = re.compile(r"\x1b\[[\d;]*m")  # color codes, which transformers writes in tables on a terminal
format_warning: Callable[..., str] = warnings.formatwarning


def wide_console() -> "Console":
    """A console for tables: as wide as the terminal, or wide enough for every line in a file or a pipe."""
    from tokenlight.common.console import SafeConsole

    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=400)


def say(message: str, err: bool = False) -> None:
    """Print one line, with control characters escaped, as it may contain names and texts of users."""
    typer.echo(escape_controls(message), err=err)


def escape_message(message: str) -> str:
    """A message of another package, without colors and with control characters escaped."""
    return escape_in_document(COLORS.sub("", message))


class SafeFormatter(logging.Formatter):
    """Escapes control characters in the messages of another formatter."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        return escape_message(self.formatter.format(record))


def escape_logs() -> None:
    """Escape control characters in log messages. Call it after importing the packages, which adds their handlers."""
    for handler in (handler for name in LOGGERS for handler in logging.getLogger(name).handlers):
        if not isinstance(handler.formatter, SafeFormatter):
            handler.setFormatter(SafeFormatter(handler.formatter or logging.Formatter()))


def format_safe_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return escape_message(format_warning(message, category, filename, lineno, line))


def print_version(requested: bool) -> None:
    if requested:
        say(f"tokenlight {tokenlight.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Explain which tokens led a Transformer to its output, with dozens of published methods."""
    warnings.formatwarning = format_safe_warning


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print an error that the user can fix as one line, and exit with code 2 instead of a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        say(f"tokenlight: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error
