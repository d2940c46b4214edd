"""Killed at random moments, interrupted, in use twice: nothing is lost, nothing is doubled."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_explain import succeed
from tests.corpus.test_explain_dataset import METHODS, contents, explain, phrases
from tests.tokenizers_ import model_for, tokenizer_for
from tokenlight.runs.workers import Workers

ROOT = Path(__file__).parents[2]
ALONE = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
# Starting Python takes seconds, so that one process starts once and lets copies of itself be killed.
KILLING = """
import os, random, signal, sys, time
from pathlib import Path
from tests.corpus.test_explain_dataset import METHODS, explain
from tokenlight.runs.workers import Workers

source, folder, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
dice, kills = random.Random(seed), 0

def parts():
    return len(list((folder / "parts").glob("part-*")))

while True:
    child = os.fork()
    if not child:
        explain(source, folder, METHODS, workers=Workers(threads=1))
        os._exit(0)
    goal = parts() + dice.randrange(3)
    while kills < 6 and parts() < goal:
        time.sleep(0.002)
    time.sleep(dice.uniform(0, 0.05))
    if kills < 6 and not (folder / "_SUCCESS").exists():
        os.kill(child, signal.SIGKILL)
        kills += 1
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert status == 0, status
        break
print(kills)
"""


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in [*phrases(35), "", *phrases(25)]))
    return path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be copied here")
def test_killed_at_random_moments_the_output_is_the_same(source, tmp_path):
    source.write_text(source.read_text() * 3)
    explain(source, tmp_path / "whole", METHODS, workers=Workers(threads=1))
    seed = random.randrange(10**6)
    command = [sys.executable, "-c", KILLING, str(source), str(tmp_path / "killed"), str(seed)]
    done = subprocess.run(command, cwd=ROOT, env=ALONE, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2, f"seed {seed}: it was never killed"
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole"), f"seed {seed}"


def listen_to_control_c() -> None:
    """Shells let what they start in the background ignore it, and so would all that is started from there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_control_c_stops_cleanly_and_the_same_command_goes_on(source, tmp_path):
    checkpoint = tmp_path / "model"
    model_for("bert").save_pretrained(checkpoint)
    tokenizer_for("bert").save_pretrained(checkpoint)
    settings = ["--method", "erasure", "--part-rows", "10", "--tokens", "64", "--threads", "1"]
    command = [sys.executable, "-m", "tokenlight", "explain-file", str(source), "-m", str(checkpoint), *settings, "-o"]
    again = [*command, str(tmp_path / "stopped")]
    running = subprocess.Popen(again, env=ALONE, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_control_c)
    deadline = time.monotonic() + 120
    while not any((tmp_path / "stopped" / "parts").glob("part-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    (line,) = said.splitlines()
    assert line.startswith("tokenlight: stopped; ")
    assert line.endswith("the same command goes on from there")
    there = contents(tmp_path / "stopped")
    assert "_SUCCESS" not in there
    assert not any(name.endswith(".part") for name in there)
    printed = succeed(*again[3:])
    assert printed.startswith("60 texts explained in 7 parts, 1 row set aside in bad_rows.jsonl: ")
    assert there.items() <= contents(tmp_path / "stopped").items()
