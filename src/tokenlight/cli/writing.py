"""Results on their way to a file: checked before anything takes time, and confirmed when it is written."""

from pathlib import Path

import typer

from tokenlight.cli.shared_options import Format

FORMATS = {".html": Format.html, ".htm": Format.html, ".json": Format.json, ".txt": Format.terminal}


def check_folder_of(output: Path | None) -> None:
    """Before anything takes time."""
    if output is None:
        return
    if output.is_dir():
        raise ValueError(f"cannot write to {output}: this is a folder; name a file in it")
    if not output.parent.is_dir():
        raise ValueError(f"cannot write to {output}: there is no folder {str(output.parent)!r}; make it first")


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


def confirm(output: Path) -> None:
    """On standard error, so that standard output holds results alone."""
    typer.echo(f"written to {output}", err=True)
