"""Files that are whole whenever somebody reads them, and how to know one again."""

import hashlib
import os
import threading
from pathlib import Path
from typing import IO, Any


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
