"""Killed at random moments, interrupted, in use twice: nothing is lost, nothing is doubled."""

import math
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.test_explain import succeed
from tests.copies import run_killed
from tests.corpus.test_explain_dataset import METHODS, contents, explain, phrases
from tokenlight.cli import app
from tokenlight.common.progress import on_forward_pass
from tokenlight.runs.workers import Workers

pytestmark = pytest.mark.xdist_group("copies")


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in [*phrases(35), "", *phrases(25)]))
    return path


def explain_alone(source: Path, folder: Path) -> None:
    explain(source, folder, METHODS, Workers(threads=1))


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed the way of Unix")
def test_killed_at_random_moments_the_output_is_the_same(source, tmp_path):
    run_killed(partial(explain_alone, source), tmp_path / "whole", tmp_path / "killed", seed=3)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.fixture
def control_c():
    """A handler as in a program of its own: shells let what they start in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield partial(signal.raise_signal, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_control_c_stops_cleanly_and_the_same_command_goes_on(source, tmp_path, checkpoint, control_c, monkeypatch):
    monkeypatch.setattr("tokenlight.common.progress.LINE_INTERVAL", math.inf)  # a slow machine would say how far it is
    settings = ["--method", "erasure", "--chunk-rows", "10", "--tokens", "64", "--threads", "1"]
    command = ["explain-file", str(source), "-m", checkpoint, *settings, "-o", str(tmp_path / "stopped")]

    def in_the_middle() -> None:
        if any((tmp_path / "stopped" / "parts").glob("part-*")):
            control_c()

    with on_forward_pass(in_the_middle):
        stopped = CliRunner().invoke(app, command)
    assert stopped.exit_code == 130
    (line,) = stopped.stderr.splitlines()
    assert line.startswith("tokenlight: stopped; ")
    assert line.endswith("run the same command again to continue")
    there = contents(tmp_path / "stopped")
    assert "_SUCCESS" not in there
    assert not any(name.endswith(".part") for name in there)
    printed = succeed(*command)
    assert printed.startswith("60 texts explained in 7 parts, 1 row skipped (see bad_rows.jsonl): ")
    assert there.items() <= contents(tmp_path / "stopped").items()
