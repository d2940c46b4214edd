"""The folder of a run: one writer at a time, append-only records that survive a kill.

A group is the records of one part of the data and a line that closes it, with a checksum of the group's bytes. What
stands behind the last closed group was being written when the process ended; it is cut off and done again. A group
whose bytes are not those that were written is damaged: readers refuse it, and a run that continues does it again.

Files from before there were checksums have closing lines without one; such a group is accepted if its number of records
is right. Behind a group with a checksum, one without is damaged.
"""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import atomic_write, full_disk, is_full_disk, sync_file, write_atomically
from tokenlight.common.versions import library_versions
from tokenlight.data.data_source import DataSource
from tokenlight.explain.explainer import Explainer
from tokenlight.results.saved import expect
from tokenlight.runs.model_hash import describe_model

Record = dict[str, Any]  # one line of JSON
CLOSED, CHECKSUM = "closed", "sha256"  # keys of the line that closes a group: its number, and a hash of the group


@dataclass(frozen=True)
class Group:
    """Where a whole group is: bytes [start, end) of the file."""

    start: int
    end: int


@dataclass(frozen=True)
class Scan:
    """What a file holds."""

    groups: dict[int, Group]  # those that are whole, by their number
    damage: tuple[str, ...]  # what else there is, in words, but for a group that was being written
    end: int  # of the last whole group


@dataclass(frozen=True)
class Journal:
    """One file of records."""

    path: Path

    def recover(self) -> tuple[frozenset[int], tuple[str, ...]]:
        """Remove what is not whole; the numbers of the groups that stay, and which damage was found."""
        if not self.path.exists():
            return frozenset(), ()
        scan = self._scan()
        if scan.end != sum(group.end - group.start for group in scan.groups.values()):
            self._keep(list(scan.groups.values()))
        elif scan.end < self.path.stat().st_size:
            with self.path.open("rb+") as file:
                file.truncate(scan.end)
                sync_file(file)
        return frozenset(scan.groups), scan.damage

    def append(self, group: int, records: Sequence[Record]) -> None:
        """A whole group, on the disk when this returns; where there is no space for it, the file is as before."""
        lines = b"".join(map(write_line, records))
        checksum = checksum_of(lines, group, len(records))
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab") as file:
                file.write(lines + write_line({**closing(group, len(records)), CHECKSUM: checksum}))
                sync_file(file)
        except OSError as error:
            if not is_full_disk(error):
                raise
            with suppress(OSError):  # half a group would only take space
                os.truncate(self.path, before)
            raise full_disk(self.path, "what was measured before is stored") from error

    def __iter__(self) -> Iterator[Record]:
        """The records of whole groups in the order of the groups, one at a time; a damaged file is refused."""
        if not self.path.exists():
            return
        scan = self._scan()
        missing = sorted(set(range(len(scan.groups))) - set(scan.groups))
        damage = [*scan.damage, *(f"group {number} is missing" for number in missing)]
        if damage:
            raise RefusedValue(
                f"{self.path} is damaged: {'; '.join(damage[:3])}. The call or command that wrote it measures "
                "what is damaged again"
            )
        yield from self._read(scan)

    def records(self) -> Iterator[Record]:
        """Those of whole groups, whatever else the file holds."""
        if self.path.exists():
            yield from self._read(self._scan())

    def _read(self, scan: Scan) -> Iterator[Record]:
        with self.path.open("rb") as file:
            for _, group in sorted(scan.groups.items()):
                file.seek(group.start)
                for line in file:
                    if file.tell() == group.end:  # the closing line
                        break
                    yield json.loads(line)

    def _scan(self) -> Scan:
        groups: dict[int, Group] = {}
        damage: list[str] = []
        checked = False  # whether a checksum was seen
        lines: list[bytes] = []
        start = place = end = number = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                place += len(line)
                record = parse_line(line)
                if record is None or CLOSED not in record:
                    lines.append(line)
                    continue
                checked = checked or CHECKSUM in record
                if reason := problem(record, lines, checked, groups):
                    damage.append(f"the group that line {number} ends {reason}")
                else:
                    groups[record[CLOSED]] = Group(start, place)
                    end = place
                start, lines = place, []
        if any(map(is_damaged, lines)):
            damage.append(f"behind line {number - len(lines)} there are lines that were not written like that")
        return Scan(groups, tuple(damage), end)

    def _keep(self, groups: Sequence[Group]) -> None:
        """Only these, in the order in which they are there."""
        with atomic_write(self.path) as part, self.path.open("rb") as file, part.open("wb") as new:
            for group in groups:
                copy_bytes(file, new, group)


def problem(record: Record, lines: Sequence[bytes], checked: bool, groups: dict[int, Group]) -> str | None:
    """Why the lines before a closing line are not the group that it closes."""
    number, count = record[CLOSED], len(lines)
    if type(number) is not int or number < 0:
        return f"has the number {number!r}"
    if number in groups:
        return f"is there twice: number {number}"
    if record.get("records") != count:
        return f"has {count} records instead of {record.get('records')!r}"
    if any(parse_line(line) is None for line in lines):
        return "has a line that is not a record"
    if not checked:
        return None if record == closing(number, count) else f"is closed by {record}"
    expected = checksum_of(b"".join(lines), number, count)
    return None if record.get(CHECKSUM) == expected else "is not what was written: its checksum is another one"


def checksum_of(lines: bytes, group: int, records: int) -> str:
    return hashlib.sha256(lines + write_line(closing(group, records))).hexdigest()


def closing(group: int, records: int) -> Record:
    return {CLOSED: group, "records": records}


def write_line(record: Record) -> bytes:
    text = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace")  # half a character as JSON escapes it


def parse_line(line: bytes) -> Record | None:
    """None where the line was not written to its end."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # also half a character
        return None
    return record if isinstance(record, dict) else None


def is_damaged(line: bytes) -> bool:
    """Of a line behind the last group: whether more than its end is missing, as in a process that was killed.

    Such a process leaves records, and at most a part of a line behind them. A checksum is in closing lines alone.
    """
    record = parse_line(line)
    return line.endswith(b"\n") and (record is None or CHECKSUM in record)


def copy_bytes(file: IO[bytes], new: IO[bytes], group: Group) -> None:
    file.seek(group.start)
    new.write(file.read(group.end - group.start))


try:
    import fcntl
except ModuleNotFoundError:  # not on Windows, where nobody can delete or replace a file that is being written anyway
    fcntl = None

RUN_FILE = "run.json"
WHERE = re.compile(r"(model|seed_models\.\d+)\.name|data\.source")  # these are compared by what they hold, by hash


def describe_run(
    form: tuple[str, int],
    explainer: Explainer,
    data: Mapping[str, Any],
    methods: Mapping[str, Any],
    more: Mapping[str, Any],
    libraries: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that results depend on; `form` is the name and the version of the folder's format."""
    return {
        "format": form[0],
        "version": form[1],
        "model": {**describe_model(explainer), "task": explainer.task.name},
        "data": dict(data),
        "methods": dict(methods),
        **more,
        "versions": {**library_versions(), **{name: metadata.version(name) for name in libraries}},
    }


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """The folder for this process alone; the system lets go of it when the process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise RefusedValue(
            f"cannot write to {folder}: expected a folder, or a name that is free; found a file"
        ) from error
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RefusedValue(
                    f"another process is writing to {folder}: wait for it, or use another one"
                ) from error
        yield


def refuse_folder_of_data(folder: Path, source: DataSource) -> None:
    """All files of a folder of data are read as data: results among them would be, too."""
    if isinstance(source.data, str | Path) and not source.on_hub and folder.resolve() == Path(source.data).resolve():
        raise RefusedValue(f"{folder} holds the data: name another folder for the results, such as {folder}-results")


def check_settings(folder: Path, settings: Mapping[str, Any], written: Sequence[str] = ()) -> None:
    """Store what is run, or make sure that it is what the folder already holds.

    `written` are the names of files that the run will write: without a stored run, files of that name are not ours.
    """
    path = folder / RUN_FILE
    if not path.exists():
        strangers = [p.name for pattern in ("results-*.jsonl", *written) for p in sorted(folder.glob(pattern))]
        if strangers:
            raise RefusedValue(
                f"{folder} holds {strangers[0]} but no {RUN_FILE}: it is not of a run, which would overwrite it. Use "
                "another folder"
            )
        write_atomically(path, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")
        return
    found = list(differences(read_run(folder), json.loads(json.dumps(settings))))
    if found:
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise RefusedValue(f"{folder} holds another run: {'; '.join(found[:5])}{more}. Use another folder")


def warn_of_changed_data(folder: Path, source: DataSource) -> None:
    """After the data was read: say so if it is no longer what it was when its hash was stored."""
    if source.hash() != read_run(folder)["data"]["sha256"]:
        warnings.warn(
            f"{source.name} was changed while it was read: {folder} holds results of rows from before and after that, "
            "and cannot be continued. Run again in another folder, with a file that stays as it is",
            RuntimeWarning,
            stacklevel=3,
        )


def read_run(folder: Path) -> dict[str, Any]:
    path = folder / RUN_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no results: there is no {RUN_FILE}")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        expect(isinstance(settings, dict), "settings", "an object", settings)
    except (ValueError, RecursionError) as error:
        raise RefusedValue(
            f"{path} is damaged ({error}). Without it nobody knows what the results here are of: restore it from a "
            "copy, or run again in another folder"
        ) from error
    return settings


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
