"""Waiting for a state or an event, never for a number of seconds: a busy machine is only slower."""

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

GIVE_UP = 300.0  # seconds: turns what never happens into a failure


def until(true: Callable[[], object], what: str = "it") -> None:
    """Wait for something that happens in another thread or process."""
    end = time.monotonic() + GIVE_UP
    while not true():
        assert time.monotonic() < end, f"waited in vain: {what} never came"
        time.sleep(0.005)


class Gate:
    """Counts the forward passes that begin; lets through as many as are allowed, and all once it is open."""

    def __init__(self) -> None:
        self.passes, self.allowed, self._opened = 0, 0.0, threading.Condition()

    def enter(self) -> None:
        with self._opened:
            self.passes += 1
            number = self.passes
            assert self._opened.wait_for(lambda: number <= self.allowed, GIVE_UP), "nobody opened the gate"

    def allow(self, passes: float) -> None:
        with self._opened:
            self.allowed = passes
            self._opened.notify_all()

    def open(self) -> None:
        self.allow(float("inf"))

    def await_pass(self, number: int) -> None:
        """Until this one has come; unless it is allowed, it stands before the gate from then on."""
        until(lambda: self.passes >= number, f"pass {number}")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Before every forward pass of every model."""
    from tokenlight.model import instrumented

    made, real = Gate(), instrumented.report_forward_pass

    def enter() -> None:
        made.enter()
        real()

    monkeypatch.setattr(instrumented, "report_forward_pass", enter)
    yield made
    made.open()


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the server has noticed that the client of the running job has disconnected."""
    from tokenlight.serve.worker import Job

    disconnected, real = threading.Event(), Job.cancel

    def cancel(job: Any) -> None:
        is_running = job._queue._running is job  # it is called after every answer, too
        real(job)
        if is_running:
            disconnected.set()

    monkeypatch.setattr(Job, "cancel", cancel)
    return disconnected


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def watched_by(self, monkeypatch: pytest.MonkeyPatch, module: str) -> "Clock":
        """One module reads this clock; the rest of the world keeps the real one."""
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=self.monotonic))
        return self
