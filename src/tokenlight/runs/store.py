"""Results on disk that survive being killed at any moment: append-only records, in groups that are whole or nothing.

A group is the records of one chunk of examples and a line that closes it. What stands behind the last closed group
was being written when the process ended; it is cut off and done again.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows, where nobody can delete or replace a file that is being written anyway
    fcntl = None

from tokenlight.foundation.files import settle, write_whole

Record = dict[str, Any]  # one line of JSON
CLOSED = "closed"  # the key of the line that closes a group: its number
RUN_FILE = "run.json"
WHERE = re.compile(r"(model|seed_models\.\d+)\.name|data\.source")  # these are compared by what they hold, by hash


@dataclass(frozen=True)
class Journal:
    """One file of records."""

    path: Path

    def recover(self) -> int:
        """Cut off an unfinished group; the number of those that are whole."""
        if not self.path.exists():
            return 0
        groups, good = 0, 0
        with self.path.open("rb") as file:
            pending = 0
            for line in file:
                record = parse_line(line)
                if record is None:
                    break
                pending += 1
                if CLOSED in record:
                    if record != closing(groups, pending - 1):
                        raise ValueError(f"{self.path} is damaged: group {groups} is followed by {record}")
                    groups, pending, good = groups + 1, 0, file.tell()
            if any(CLOSED in (parse_line(line) or {}) for line in file):
                raise ValueError(f"{self.path} is damaged behind group {groups}: start again in another folder")
        if good < self.path.stat().st_size:
            with self.path.open("rb+") as file:
                file.truncate(good)
                settle(file)
        return groups

    def append(self, group: int, records: Sequence[Record]) -> None:
        """A whole group, on the disk when this returns."""
        lines = [*records, closing(group, len(records))]
        text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        with self.path.open("ab") as file:
            file.write(text.encode())
            settle(file)

    def __iter__(self) -> Iterator[Record]:
        """The records of whole groups, one at a time."""
        waiting: list[Record] = []
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                record = parse_line(line)
                if record is None:
                    return
                if CLOSED in record:
                    yield from waiting
                    waiting = []
                else:
                    waiting.append(record)


def closing(group: int, records: int) -> Record:
    return {CLOSED: group, "records": records}


def parse_line(line: bytes) -> Record | None:
    """None where the line was not written to its end."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:  # also half a character
        return None
    return record if isinstance(record, dict) else None


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """The folder for this process alone; the system lets go of it when the process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(f"another process is writing to {folder}: wait for it, or use another one") from error
        yield


def settle_run(folder: Path, settings: Mapping[str, Any]) -> None:
    """Store what is run, or make sure that it is what the folder already holds."""
    path = folder / RUN_FILE
    if not path.exists():
        strangers = [p.name for p in folder.glob("results-*.jsonl")]
        if strangers:
            raise ValueError(f"{folder} holds {strangers[0]} but no {RUN_FILE}: use another folder")
        write_whole(path, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")
        return
    found = list(differences(read_run(folder), json.loads(json.dumps(settings))))
    if found:
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise ValueError(f"{folder} holds another run: {'; '.join(found[:5])}{more}. Use another folder")


def read_run(folder: Path) -> dict[str, Any]:
    path = folder / RUN_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no results: there is no {RUN_FILE}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): use another folder") from error


def differences(there: Any, here: Any, key: str = "") -> Iterator[str]:
    """In words; what a run has and another has not is named once, whatever is in it."""
    if isinstance(there, dict | list) and isinstance(here, dict | list):
        stored, given = (one if isinstance(one, dict) else dict(enumerate(one)) for one in (there, here))
        for name in {**stored, **given}:
            inner = f"{key}.{name}" if key else str(name)
            if name in stored and name in given:
                yield from differences(stored[name], given[name], inner)
            elif not WHERE.fullmatch(inner):
                yield f"{inner} is only {'there' if name in stored else 'here'}"
    elif there != here and not WHERE.fullmatch(key):
        yield f"{key} is {there!r} there and {here!r} here"
