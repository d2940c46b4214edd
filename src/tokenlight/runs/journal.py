"""Results on disk that survive being killed at any moment: append-only records, in groups that are whole or nothing.

A group is the records of one part of the data and a line that closes it. What stands behind the last closed group
was being written when the process ended; it is cut off and done again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenlight.foundation.files import settle

Record = dict[str, Any]  # one line of JSON
CLOSED = "closed"  # the key of the line that closes a group: its number


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
                raise ValueError(f"{self.path} is damaged after group {groups}: start again in another folder")
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
            file.write(text.encode(errors="backslashreplace"))  # half a character as JSON escapes it
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
