"""Results on their way to a file: checked before anything takes time, and confirmed when it is written."""

import os
import sys
from pathlib import Path

from tokenlight.cli.app import say
from tokenlight.cli.shared_options import Format
from tokenlight.foundation.escaping import escape_html, escape_in_document, escape_json

FORMATS = {".html": Format.html, ".htm": Format.html, ".json": Format.json, ".txt": Format.terminal}


def check_folder_of(output: Path | None) -> None:
    """Before anything takes time."""
    if output is None:
        return
    if output.is_dir():
        raise ValueError(f"cannot write to {output}: this is a folder; name a file in it")
    if not output.parent.is_dir():
        raise ValueError(f"cannot write to {output}: there is no folder {str(output.parent)!r}; make it first")
    if not output.exists() and not os.access(output.parent, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {output}: no file can be made in the folder {str(output.parent)!r}")


def format_for(output: Path | None, chosen: Format | None) -> Format:
    """What somebody chose, or what the file's name says; the terminal's where there is no file."""
    if chosen is not None:
        return chosen
    if output is None:
        return Format.terminal
    found = FORMATS.get(output.suffix.lower(), None if output.suffix else Format.terminal)
    if found is None:
        raise ValueError(f"{output}: expected a name that ends in {', '.join(FORMATS)}, or --format to say what it is")
    return found


def refuse_checkpoint(folder: Path) -> None:
    """Results would lie between the files of a model."""
    if (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds a model: name another folder for the results, such as {folder}-results")


def print_document(document: str, format: Format | None) -> None:
    """To standard output, which may be a terminal: with control characters escaped, as the format allows it."""
    escape = {Format.json: escape_json, Format.html: escape_html}.get(format or Format.terminal, escape_in_document)
    sys.stdout.write(escape(document))


def confirm(output: Path) -> None:
    """On standard error, so that standard output holds results alone."""
    say(f"written to {output}", err=True)
