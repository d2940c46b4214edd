"""Journals: damage of any kind is noticed, and only what is damaged is done again."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tokenlight.runs.run_folder import Journal

GROUPS: list[list[dict[str, Any]]] = [
    [{"row": 0, "value": 0.25}, {"row": 1, "value": 0.5}],
    [{"row": 2, "text": "é"}],
    [{"row": 3, "value": [1.5, None]}, {"row": 4}, {"row": 5}],
]
ALL = [record for group in GROUPS for record in group]


@pytest.fixture
def journal(tmp_path, monkeypatch) -> Journal:
    for name in ("runs.run_folder.sync_file", "common.files.sync_file", "common.files.sync_folder"):
        monkeypatch.setattr(
            f"tokenlight.{name}", lambda file: None
        )  # nobody switches the machine off: the disk need not keep up
    journal = Journal(tmp_path / "journal.jsonl")
    for number, records in enumerate(GROUPS):
        journal.append(number, records)
    return journal


def mend(journal: Journal) -> frozenset[int]:
    """Continue a run: what is missing is written again."""
    whole, _ = journal.recover()
    for number, records in enumerate(GROUPS):
        if number not in whole:
            journal.append(number, records)
    return whole


def without_checksums(journal: Journal, groups: int = len(GROUPS)) -> None:
    """As journals were written before there were checksums; the first so many groups of it."""
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    for record in lines:
        if record.get("closed", groups) < groups:
            del record["sha256"]
    journal.path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in lines))


def test_any_changed_byte_is_noticed_and_only_its_group_is_done_again(journal):
    whole = journal.path.read_bytes()
    ends = [i + 1 for i, line in positions(whole) if b'"closed"' in line]
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        journal.path.write_bytes(changed)
        if place < len(whole) - 1:
            with pytest.raises(ValueError, match=r"journal\.jsonl is damaged: .*measures what is damaged again"):
                list(journal)
        else:  # without its last byte, the file is that of a process that was killed
            assert list(journal) == GROUPS[0] + GROUPS[1]
        hit = sum(place >= end for end in ends)  # the group that the byte is in
        kept = mend(journal)
        assert set(range(len(GROUPS))) - kept <= {hit, hit + 1}  # the next one has no beginning without a closing line
        assert hit not in kept
        assert list(journal) == ALL


def positions(content: bytes) -> list[tuple[int, bytes]]:
    """Every line with the place of its last byte."""
    found, place = [], 0
    for line in content.splitlines(keepends=True):
        place += len(line)
        found.append((place - 1, line))
    return found


def test_moved_missing_and_repeated_lines_are_noticed(journal):
    lines = journal.path.read_bytes().splitlines(keepends=True)
    for i in range(len(lines)):
        for changed in (
            lines[:i] + lines[i + 1 :],
            [*lines[:i], lines[i], *lines[i:]],
            lines[:i] + lines[i + 1 : i + 2] + [lines[i]] + lines[i + 2 :],
        ):
            journal.path.write_bytes(b"".join(changed))
            if changed == lines or changed == lines[:-1]:  # the latter as a process leaves it that was killed
                continue
            with pytest.raises(ValueError, match="is damaged"):
                list(journal)
            mend(journal)
            assert list(journal) == ALL


def test_groups_that_were_done_again_are_read_in_order(journal):
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join(lines[3:]))
    with pytest.raises(ValueError, match="group 0 is missing"):
        list(journal)
    assert mend(journal) == {1, 2}
    assert journal.path.read_bytes() == b"".join(lines[3:] + lines[:3])
    assert list(journal) == ALL


@pytest.mark.parametrize("first", [False, True])
def test_a_full_disk_is_said_in_words_and_leaves_the_file_as_it_was(journal, monkeypatch, first):
    before = journal.path.read_bytes()
    if first:
        journal, before = Journal(journal.path.with_name("new.jsonl")), b""

    def full(file: Any) -> None:
        file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("tokenlight.runs.run_folder.sync_file", full)
        with pytest.raises(OSError, match=rf"no space left for {journal.path.name} in .* before is stored; free some"):
            journal.append(3, [{"row": 6}])
    assert journal.path.read_bytes() == before
    journal.append(3, [{"row": 6}])
    assert list(journal.records())[-1] == {"row": 6}


def test_other_failures_of_the_disk_are_told_as_they_are(journal, monkeypatch):
    def broken(file: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("tokenlight.runs.run_folder.sync_file", broken)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        journal.append(3, [{"row": 6}])


def test_journals_without_checksums_are_read_as_before(journal):
    without_checksums(journal)
    assert list(journal) == ALL
    assert journal.recover() == (frozenset(range(len(GROUPS))), ())
    journal.append(len(GROUPS), [{"row": 6}])  # and continued with checksums
    assert list(journal) == [*ALL, {"row": 6}]
    content = journal.path.read_text()
    journal.path.write_text(content.replace('{"row": 1, "value": 0.5}\n', ""))
    with pytest.raises(ValueError, match="the group that line 2 ends has 1 records instead of 2"):
        list(journal)
    assert mend(journal) == {1, 2, 3}
    assert list(journal) == [*ALL, {"row": 6}]


def test_a_checksum_cannot_be_left_out_behind_one(journal):
    lines = journal.path.read_bytes().splitlines(keepends=True)
    closing = json.loads(lines[-1])
    del closing["sha256"]
    journal.path.write_bytes(b"".join([*lines[:-1], json.dumps(closing).encode() + b"\n"]))
    with pytest.raises(ValueError, match="its checksum is another one"):
        list(journal)


def test_reading_changes_nothing(journal):
    content = journal.path.read_bytes().replace(b"0.25", b"0.75")
    journal.path.write_bytes(content)
    with pytest.raises(ValueError, match="the group that line 3 ends is not what was written"):
        list(journal)
    assert list(journal.records()) == ALL[2:]
    assert journal.path.read_bytes() == content


def test_a_journal_that_is_not_there_is_empty(tmp_path):
    journal = Journal(Path(tmp_path / "none.jsonl"))
    assert (list(journal), list(journal.records()), journal.recover()) == ([], [], (frozenset(), ()))
    assert not journal.path.exists()
