"""Atomic file writes, content hashes, and lines of text files."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TextIO
from uuid import uuid4

from tokenlight.common.errors import RefusedValue

MOST_LINKS = 40  # Linux follows as many
OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")  # names of open files: they cannot be replaced
PRIVATE = 0o600
BLOCK_BYTES = 1 << 16


def sync_file(file: IO[Any]) -> None:
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names of a folder's files to the disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: str | Path, text: str) -> None:
    """Write a text file atomically: readers find the old content or the new."""
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` at the end of the block; after an error, `path` is unchanged.

    Links are followed, and the file gets the permissions that `open` gives: those it had, or those of the umask. Until
    then, the temporary file of an existing one is private. Devices such as /dev/stdout, and files in folders that are
    not writable, are written directly.
    """
    path = Path(path)
    target = final_target(path)
    if target is None or must_be_written_in_place(target):
        yield path
        return
    check_writable(path, target)
    part = target.with_name(f".{uuid4().hex}.part")
    before = stat_if_there(target)
    try:
        if before is not None:  # a new file has its final permissions from the start
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
        yield part
        with part.open("rb+") as file:
            sync_file(file)
        if (old := stat_if_there(target) or before) is not None:
            keep_permissions(old, part)
        os.replace(part, target)
        sync_folder(target.parent)
    except OSError as error:
        if not is_full_disk(error):
            raise
        state = "what was there before is unchanged" if path.exists() else "nothing half written stays there"
        raise full_disk(path, state) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def is_full_disk(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full_disk(path: Path, state: str) -> OSError:
    """The error for a full disk; `state` says what the file holds now."""
    return OSError(f"no space left for {path.name} in {path.parent}: {state}; free some space, then do the same again")


def final_target(path: Path) -> Path | None:
    """The file that a path leads to over all links; None for names of open files."""
    for _ in range(MOST_LINKS):
        if os.path.join(os.path.realpath(path.parent), path.name).startswith(OPEN_FILES):
            return None
        if not path.is_symlink():
            return path
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def must_be_written_in_place(target: Path) -> bool:
    """Whether it is a device, a pipe, or a file in a folder that is not writable."""
    if not target.exists() or target.is_dir():
        return False
    return not target.is_file() or not os.access(target.parent, os.W_OK | os.X_OK)


def check_writable(path: Path, target: Path) -> None:
    """Raise the errors that `open` would raise, with the name that the caller gave."""
    code = None
    if target.is_dir():
        code = errno.EISDIR
    elif not target.parent.is_dir():
        code = errno.ENOENT
    elif target.exists() and not os.access(target, os.W_OK):
        code = errno.EACCES
    if code is not None:
        raise OSError(code, os.strerror(code), str(path))


def stat_if_there(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def keep_permissions(before: os.stat_result, new: Path) -> None:
    after = new.stat()
    if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
        with suppress(OSError):  # not permitted to this user
            os.chown(new, before.st_uid, before.st_gid)
    new.chmod(stat.S_IMODE(before.st_mode))


def hash_file(path: Path) -> str:
    """sha256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_text(path: str | Path, errors: str = "strict") -> TextIO:
    """A UTF-8 text file whose lines end at \\n alone; `errors` is that of `open`."""
    return open(path, encoding="utf-8-sig", errors=errors, newline="\n")


def numbered_lines(file: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Numbers, from 1, and lines of an `open_text` file, without \\n or \\r\\n.

    A lone carriage return, or any other character at which `str.splitlines` cuts, is a character of its line.
    """
    for number, line in enumerate(file, 1):
        yield number, line[:-1].removesuffix("\r") if line.endswith("\n") else line


def has_line_feeds(path: str | Path) -> bool:
    with open(path, "rb") as file:
        return any(b"\n" in block for block in iter(lambda: file.read(BLOCK_BYTES), b""))


def refuse_lone_returns(path: str | Path) -> None:
    """For files in which a row is a line: refuse one whose only line ends are carriage returns, as on old Macs."""
    returns = 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            if b"\n" in block:
                return
            returns += block.count(b"\r")
    if returns:
        raise RefusedValue(
            f"{path}: expected lines that end with a line feed, found {returns} carriage returns and no line feed, so "
            "the whole file would be one row: convert it first, for example with tr '\\r' '\\n'"
        )
