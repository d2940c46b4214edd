"""Files that are whole whenever somebody reads them, how to know one again, and lines of text files."""

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TextIO


def settle(file: IO[Any]) -> None:
    """On the disk, not only on its way there."""
    file.flush()
    os.fsync(file.fileno())


def write_whole(path: Path, text: str) -> None:
    """The new file or the old one, never half of it, whoever else writes it."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        settle(file)
    os.replace(part, path)


def hash_file(path: Path) -> str:
    """sha256 of what is in it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_text(path: str | Path, errors: str = "strict") -> TextIO:
    """A UTF-8 text file whose lines end at \\n alone; `errors` says what becomes of other bytes, as for `open`."""
    return open(path, encoding="utf-8-sig", errors=errors, newline="\n")


def numbered_lines(file: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines of an `open_text` file, from 1, without their ends \\n or \\r\\n.

    A lone carriage return, or any other character at which `str.splitlines` cuts, is a character of its line.
    """
    for number, line in enumerate(file, 1):
        yield number, line[:-1].removesuffix("\r") if line.endswith("\n") else line
