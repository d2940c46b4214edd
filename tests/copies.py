"""Copies of a process that are killed in the middle of their work, after a number of calls: no clock decides.

A server imports everything once and forks copies of itself, because starting Python takes seconds.
"""

import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.waiting import GIVE_UP

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.corpus.test_explain_dataset", "tests.bench.test_benchmark"])
KILLED = -signal.SIGKILL


def count_calls(work: Callable[[], Any]) -> int:
    """How many functions are called until the work is done."""
    counted = 0

    def count(*_: Any) -> None:
        nonlocal counted
        counted += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def die_at_call(number: int, work: Callable[[], Any]) -> None:
    """Work in a copy, which is killed when it has called so many functions."""
    torch.set_num_threads(1)
    left = number

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    work()


def run_killed(work: Callable[[Path], Any], whole: Path, killed: Path, seed: int) -> None:
    """Once without a break; then as often as not killed somewhere between the beginning and the end, and ended."""
    calls = count_calls(partial(work, whole))
    dice = random.Random(seed)
    exits = []
    for _ in range(4):
        moment = int(dice.uniform(0.02, 0.7) * calls)
        copy: Any = SERVER.Process(target=die_at_call, args=(moment, partial(work, killed)))
        copy.start()
        copy.join(GIVE_UP)
        exits.append(copy.exitcode)
    assert set(exits) <= {KILLED, 0}, exits
    assert exits.count(KILLED) >= 2, "hardly any of the copies lived to be killed"
    work(killed)
