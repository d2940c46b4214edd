"""Files are written whole or not at all, with the permissions that `open` would give, wherever a path leads."""

import ast
import errno
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tokenlight as tl
from tests.cli.test_explain import run
from tests.house.plan import PACKAGE
from tests.tokenizers_ import explainer_for
from tokenlight.common.files import atomic_write, final_target, write_atomically
from tokenlight.heads.mask import HeadMask
from tokenlight.views.drawing import new_figure, save

TEXT = "it is a good movie"
GOOD = "what was there before"


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def full_disk(monkeypatch) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)


def an_answer() -> tl.ExplainedAnswer:
    return explainer_for("gpt2", "text-generation").explain_answer(TEXT, " and good", "gradient_x_input")


SAVED = {
    "e.json": lambda path: explainer_for("bert").explain(TEXT).save(path),
    "a.json": lambda path: an_answer().save(path),
    "a.parquet": lambda path: an_answer().save(path),
    "m.json": lambda path: HeadMask.by_hand([[1.0]]).save(path),
    "f.png": lambda path: save(new_figure(1, 1), path),
    "f.svg": lambda path: save(new_figure(1, 1), path),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_the_old_file_unchanged(tmp_path, name):
    (tmp_path / name).write_text(GOOD)
    with pytest.raises(OSError, match=rf"no space left for {name} .* unchanged"):
        SAVED[name](tmp_path / name)
    assert files_in(tmp_path) == {name: GOOD.encode()}


@pytest.mark.parametrize("name", ["x.html", "x.json", "x.txt"])
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_outputs_of_commands_unchanged(tmp_path, name):
    (tmp_path / name).write_text(GOOD)
    result = run("explain", TEXT, "-o", str(tmp_path / name))
    assert result.exit_code == 2
    assert "no space left" in result.stderr
    assert files_in(tmp_path) == {name: GOOD.encode()}


def test_a_text_that_cannot_be_encoded_leaves_the_old_file_unchanged(tmp_path):
    path = tmp_path / "e.json"
    explanation = explainer_for("bert").explain(TEXT)
    explanation.save(path)
    before = files_in(tmp_path)
    with pytest.raises(UnicodeEncodeError):
        replace(explanation, model="\udcff").save(path)
    assert files_in(tmp_path) == before


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def interrupted() -> None:
        with atomic_write(tmp_path / "x") as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_of_a_new_file_are_those_of_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "x", "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_permissions_of_an_existing_file_are_kept(tmp_path, mode):
    (tmp_path / "x").touch()
    (tmp_path / "x").chmod(mode)
    write_atomically(tmp_path / "x", "a")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


def test_a_file_that_replaces_a_private_one_is_private_from_the_start(tmp_path):
    (tmp_path / "x").touch()
    (tmp_path / "x").chmod(0o600)
    before = os.umask(0o022)
    try:
        with atomic_write(tmp_path / "x") as part:
            assert stat.S_IMODE(part.stat().st_mode) == 0o600
            part.write_text("a")
            assert stat.S_IMODE(part.stat().st_mode) == 0o600
            (tmp_path / "x").unlink()  # somebody else
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_a_folder_in_shared_memory_is_an_ordinary_folder():
    """Only names of open files are written directly."""
    assert final_target(Path("/dev/shm/no such folder/x")) == Path("/dev/shm/no such folder/x")
    for name in ("/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/self/fd/1"):
        assert final_target(Path(name)) is None


def test_a_link_to_the_folder_of_open_files(tmp_path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here")
    (tmp_path / "link").symlink_to("/proc/self/fd")
    with open(tmp_path / "out", "w") as out:
        write_atomically(tmp_path / "link" / str(out.fileno()), "a")
        assert (tmp_path / "out").stat().st_ino == os.fstat(out.fileno()).st_ino


def test_links_stay_links(tmp_path):
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "target"
    target.write_text("old")
    (tmp_path / "second").symlink_to("there/target")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    (tmp_path / "dangling").symlink_to("there/new")
    write_atomically(tmp_path / "first", "a")
    write_atomically(tmp_path / "dangling", "b")
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert files_in(tmp_path / "there") == {"target": b"a", "new": b"b"}
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        write_atomically(tmp_path / "loop", "a")


def test_a_pipe_is_written_directly(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", "a")
    assert os.read(reader, 10) == b"a"
    os.close(reader)
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


def test_standard_output_by_its_name(tmp_path):
    """Over a link in a folder of our own: no test may put a file in the place of /dev/stdout."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    program = f"from tokenlight.common.files import write_atomically as w; w({str(tmp_path / 'link')!r}, 'a')"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "a"
    with open(tmp_path / "out", "w") as out:  # the shell's redirection: the file that is open, not another of its name
        subprocess.run(command, stdout=out, check=True)
        inode = os.fstat(out.fileno()).st_ino
    assert (tmp_path / "out").stat().st_ino == inode
    assert (tmp_path / "out").read_text() == "a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_errors_are_those_of_open(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(IsADirectoryError, match="there"):
        write_atomically(tmp_path / "there", "a")
    with pytest.raises(FileNotFoundError, match="gone"):
        write_atomically(tmp_path / "gone" / "x", "a")
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]


def test_files_without_write_permission_are_refused(tmp_path, monkeypatch):
    (tmp_path / "x").write_text(GOOD)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).is_dir())  # tests may run as root
    with pytest.raises(PermissionError, match="x"):
        write_atomically(tmp_path / "x", "a")
    assert files_in(tmp_path) == {"x": GOOD.encode()}


def test_a_file_in_a_folder_that_takes_no_new_ones_is_written_in_place(tmp_path, monkeypatch):
    (tmp_path / "x").write_text(GOOD)
    inode = (tmp_path / "x").stat().st_ino
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_dir())
    write_atomically(tmp_path / "x", "a")
    assert (tmp_path / "x").stat().st_ino == inode
    assert files_in(tmp_path) == {"x": b"a"}


def test_a_very_long_name(tmp_path):
    write_atomically(tmp_path / ("x" * 255), "a")
    assert files_in(tmp_path) == {"x" * 255: b"a"}


def test_nothing_in_the_package_writes_in_another_way():
    writing = {"write_text", "write_bytes", "savefig", "write_table"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modes = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if name in writing or (name == "open" and any(set(mode) & set("wxa+") for mode in modes)):
                found.add(f"{path.relative_to(PACKAGE).as_posix()}: {name}")
    assert found == {
        "corpus/shards.py: open",  # these two inside `atomic_write`
        "corpus/shards.py: write_table",
        "corpus/shards.py: write_text",
        "common/files.py: open",
        "common/files.py: write_text",
        "results/answer_parquet.py: write_table",
        "runs/run_folder.py: open",  # lines are appended
        "views/drawing.py: savefig",
    }
