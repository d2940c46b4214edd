"""The folder of a run: one writer at a time, and append-only records that survive a kill.

A group consists of the records of one chunk and a closing line with a checksum of the group's bytes. Lines after the
last closed group were being written when the process ended; they are cut off, and the chunk is processed again. A group
whose bytes have changed is damaged: readers refuse it, and a continued run processes its chunk again.

Files of early versions have closing lines without a checksum; such a group is accepted if it has the stated number of
records. After a group with a checksum, one without is damaged.
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
    """The position of a complete group: bytes [start, end) of the file."""

    start: int
    end: int


@dataclass(frozen=True)
class Scan:
    """The content of a journal file."""

    groups: dict[int, Group]  # the undamaged groups, by number
    damage: tuple[str, ...]  # descriptions of all other bytes, except of an unfinished group at the end
    end: int  # of the last undamaged group


@dataclass(frozen=True)
class Journal:
    """A file of records, in groups."""

    path: Path

    def recover(self) -> tuple[frozenset[int], tuple[str, ...]]:
        """Remove damaged and unfinished groups; return the numbers of the others, and descriptions of the damage."""
        if not self.path.exists():
            return frozenset(), ()
        scan = self._scan()
        if scan.end != sum(group.end - group.start for group in scan.groups.values()):
            self._keep_only(list(scan.groups.values()))
        elif scan.end < self.path.stat().st_size:
            with self.path.open("rb+") as file:
                file.truncate(scan.end)
                sync_file(file)
        return frozenset(scan.groups), scan.damage

    def append(self, group: int, records: Sequence[Record]) -> None:
        """Append a group and wait until it is on the disk; if the disk is full, the file is unchanged."""
        lines = b"".join(map(write_line, records))
        checksum = checksum_of(lines, group, len(records))
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab") as file:
                file.write(lines + write_line({**closing_record(group, len(records)), CHECKSUM: checksum}))
                sync_file(file)
        except OSError as error:
            if not is_full_disk(error):
                raise
            with suppress(OSError):  # remove the incomplete group
                os.truncate(self.path, before)
            raise full_disk(self.path, "what was measured before is stored") from error

    def __iter__(self) -> Iterator[Record]:
        """The records in the order of the groups' numbers; a damaged file is refused."""
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
        """The records of undamaged groups, whatever else is in the file."""
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
        has_checksums = False  # whether a checksum was read so far
        lines: list[bytes] = []
        start = position = end = number = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                position += len(line)
                record = parse_line(line)
                if record is None or CLOSED not in record:
                    lines.append(line)
                    continue
                has_checksums = has_checksums or CHECKSUM in record
                if reason := group_damage(record, lines, has_checksums, groups):
                    damage.append(f"the group that line {number} ends {reason}")
                else:
                    groups[record[CLOSED]] = Group(start, position)
                    end = position
                start, lines = position, []
        if any(map(is_damaged, lines)):
            damage.append(f"after line {number - len(lines)} there are lines that were not written by a run")
        return Scan(groups, tuple(damage), end)

    def _keep_only(self, groups: Sequence[Group]) -> None:
        """Remove everything but these groups, keeping their order."""
        with atomic_write(self.path) as temporary, self.path.open("rb") as file, temporary.open("wb") as new:
            for group in groups:
                copy_bytes(file, new, group)


def group_damage(record: Record, lines: Sequence[bytes], has_checksums: bool, groups: dict[int, Group]) -> str | None:
    """Why the lines before a closing line are not the group that it describes; None if they are."""
    number, count = record[CLOSED], len(lines)
    if type(number) is not int or number < 0:
        return f"has the number {number!r}"
    if number in groups:
        return f"is there twice: number {number}"
    if record.get("records") != count:
        return f"has {count} records instead of {record.get('records')!r}"
    if any(parse_line(line) is None for line in lines):
        return "has a line that is not a record"
    if not has_checksums:
        return None if record == closing_record(number, count) else f"is closed by {record}"
    expected = checksum_of(b"".join(lines), number, count)
    return None if record.get(CHECKSUM) == expected else "is not what was written: its checksum is another one"


def checksum_of(lines: bytes, group: int, records: int) -> str:
    return hashlib.sha256(lines + write_line(closing_record(group, records))).hexdigest()


def closing_record(group: int, records: int) -> Record:
    return {CLOSED: group, "records": records}


def write_line(record: Record) -> bytes:
    text = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace")  # lone surrogates are escaped as in JSON


def parse_line(line: bytes) -> Record | None:
    """The record of a line; None if the line is incomplete or not a JSON object."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # ValueError includes invalid UTF-8
        return None
    return record if isinstance(record, dict) else None


def is_damaged(line: bytes) -> bool:
    """Whether a line after the last group is not one that a killed process leaves.

    A killed process leaves complete records and at most one incomplete line; only closing lines have a checksum.
    """
    record = parse_line(line)
    return line.endswith(b"\n") and (record is None or CHECKSUM in record)


def copy_bytes(file: IO[bytes], new: IO[bytes], group: Group) -> None:
    file.seek(group.start)
    new.write(file.read(group.end - group.start))


try:
    import fcntl
except ModuleNotFoundError:  # on Windows, where open files cannot be deleted or replaced
    fcntl = None

RUN_FILE = "run.json"
LOCATIONS = re.compile(r"(model|seed_models\.\d+)\.name|data\.source")  # ignored: models and data are compared by hash


def describe_run(
    format_version: tuple[str, int],
    explainer: Explainer,
    data: Mapping[str, Any],
    methods: Mapping[str, Any],
    more: Mapping[str, Any],
    libraries: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that results depend on; `format_version` is the name and the version of the format."""
    return {
        "format": format_version[0],
        "version": format_version[1],
        "model": {**describe_model(explainer), "task": explainer.task.name},
        "data": dict(data),
        "methods": dict(methods),
        **more,
        "versions": {**library_versions(), **{name: metadata.version(name) for name in libraries}},
    }


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create the folder and lock it for this process; the system removes the lock when the process ends."""
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
    """Refuse to write results into the folder of the data, where they would be read as data."""
    if isinstance(source.data, str | Path) and not source.on_hub and folder.resolve() == Path(source.data).resolve():
        raise RefusedValue(f"{folder} holds the data: name another folder for the results, such as {folder}-results")


def check_settings(folder: Path, settings: Mapping[str, Any], written: Sequence[str] = ()) -> None:
    """Store the settings of a new run, or refuse settings that differ from those of the run in the folder.

    `written` has the names of files that the run will write. Without a stored run, existing files of these names are
    not of a run, so the folder is refused.
    """
    path = folder / RUN_FILE
    if not path.exists():
        unknown = [file.name for pattern in ("results-*.jsonl", *written) for file in sorted(folder.glob(pattern))]
        if unknown:
            raise RefusedValue(
                f"{folder} holds {unknown[0]} but no {RUN_FILE}: it is not of a run, which would overwrite it. Use "
                "another folder"
            )
        write_atomically(path, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")
        return
    changes = list(differences(read_run(folder), json.loads(json.dumps(settings))))
    if changes:
        rest = f" (and {len(changes) - 5} more)" if len(changes) > 5 else ""
        raise RefusedValue(f"{folder} holds another run: {'; '.join(changes[:5])}{rest}. Use another folder")


def warn_of_changed_data(folder: Path, source: DataSource) -> None:
    """Warn if the data has changed since its hash was stored; called after the data was read."""
    if source.hash() != read_run(folder)["data"]["sha256"]:
        warnings.warn(
            f"{source.name} was changed while it was read: {folder} holds results of rows from before and after that, "
            "and cannot be continued. Run again in another folder, with a file that stays as it is",
            RuntimeWarning,
            stacklevel=3,
        )


def read_run(folder: Path) -> dict[str, Any]:
    """The stored settings of a run."""
    path = folder / RUN_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no results: there is no {RUN_FILE}")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        expect(isinstance(settings, dict), "settings", "an object", settings)
    except (ValueError, RecursionError) as error:
        raise RefusedValue(
            f"{path} is damaged ({error}). Without it, the results in this folder cannot be used: restore it from a "
            "copy, or run again in another folder"
        ) from error
    return settings


def differences(there: Any, here: Any, key: str = "") -> Iterator[str]:
    """Describe the differences of settings; an entry that only one of them has is named once, whatever it contains."""
    if isinstance(there, dict | list) and isinstance(here, dict | list):
        stored, given = (value if isinstance(value, dict) else dict(enumerate(value)) for value in (there, here))
        for name in {**stored, **given}:
            inner = f"{key}.{name}" if key else str(name)
            if name in stored and name in given:
                yield from differences(stored[name], given[name], inner)
            elif not LOCATIONS.fullmatch(inner):
                yield f"{inner} is only {'there' if name in stored else 'here'}"
    elif there != here and not LOCATIONS.fullmatch(key):
        yield f"{key} is {there!r} there and {here!r} here"
