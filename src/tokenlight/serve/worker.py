"""A single worker thread and its job queue; the events that a job sends line by line."""

import asyncio
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from tokenlight.common.progress import on_backward_pass, on_forward_pass, on_step


@dataclass(frozen=True)
class Waiting:
    name: ClassVar[str] = "waiting"
    ahead: int  # jobs that run before this one


@dataclass(frozen=True)
class Progress:
    name: ClassVar[str] = "progress"
    method: str
    done: int
    total: int | None


@dataclass(frozen=True)
class Result:
    name: ClassVar[str] = "result"
    method: str
    explanation: dict[str, Any]
    seconds: float  # of all passes, including those that methods share
    reused: bool


@dataclass(frozen=True)
class CurveDrawn:
    name: ClassVar[str] = "curve"
    method: str
    shares: list[float]
    probabilities: list[float]
    aopc: float
    log_odds: float


@dataclass(frozen=True)
class Writing:
    name: ClassVar[str] = "writing"
    text: str  # generated so far
    tokens: int


@dataclass(frozen=True)
class Wrote:
    name: ClassVar[str] = "wrote"
    method: str  # "write"
    text: str
    ids: list[int]
    ended: bool  # whether the model ended the text, not the limit


@dataclass(frozen=True)
class Failed:
    name: ClassVar[str] = "failed"
    method: str
    error: str


@dataclass(frozen=True)
class Done:
    name: ClassVar[str] = "done"


Event = Waiting | Progress | Result | CurveDrawn | Writing | Wrote | Failed | Done


def event_dict(event: Event) -> dict[str, Any]:
    """An event as JSON values."""
    return {"event": event.name, **vars(event)}


Answer = TypeVar("Answer")
SendEvent = Callable[[Event], None]
Compute = Callable[[SendEvent], Answer]
MAX_WAITING = 32  # jobs in the queue
TIME_LIMIT = 120.0  # seconds for one job, from its start


class QueueFull(Exception):
    """The queue takes no more jobs."""


class Cancelled(Exception):
    """The client has disconnected, or the server is stopping."""


class TimedOut(Exception):
    """The job took longer than its time limit."""


@dataclass(frozen=True)
class Problem:
    """Why there is no answer: an HTTP status and a sentence."""

    status: int
    message: str


@dataclass(frozen=True)
class Outcome(Generic[Answer]):
    """The end of a job: an answer or a problem."""

    answer: Answer | None = None
    problem: Problem | None = None


class Job(Generic[Answer]):
    """A request in the queue. Events and the outcome are received in the event loop that submitted the job."""

    compute: Compute[Answer]
    seconds: float  # its time limit, from its start
    cancelled: bool

    def __init__(self, queue: "JobQueue", compute: Compute[Answer], seconds: float):
        self.compute = compute
        self.seconds = seconds
        self.cancelled = False
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._received: asyncio.Queue[Event | Outcome[Answer]] = asyncio.Queue()

    def send(self, event: Event | Outcome[Answer]) -> None:
        """Send an event or the outcome to the event loop. May be called from any thread."""
        if self.cancelled or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._received.put_nowait, event)

    async def events(self) -> AsyncIterator[Event | Outcome[Answer]]:
        """All events, and then the outcome."""
        event = None
        while not isinstance(event, Outcome):
            event = await self._received.get()
            yield event

    async def outcome(self) -> Outcome[Answer]:
        """The outcome; events before it are discarded."""
        while not isinstance(event := await self._received.get(), Outcome):
            pass
        return event

    def cancel(self) -> None:
        """Remove the job from the queue, or stop it before its next pass."""
        self.cancelled = True
        self._queue.remove(self)


class JobQueue:
    """Runs jobs one after another in a single worker thread, in the order of submission."""

    seconds: float

    def __init__(self, max_waiting: int = MAX_WAITING, seconds: float = TIME_LIMIT):
        self.seconds = seconds
        self._max_waiting = max_waiting
        self._jobs: deque[Job[Any]] = deque()
        self._running: Job[Any] | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="tokenlight", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of jobs in the queue, without the running one."""
        return len(self._jobs)

    @property
    def idle(self) -> bool:
        with self._changed:
            return self._running is None and not self._jobs

    def submit(self, compute: Compute[Answer], times: int = 1) -> Job[Answer]:
        """Add a job. `compute` gets a function that sends events, and returns the answer.

        Jobs that report their progress may take `times` as long as others.
        """
        job = Job(self, compute, times * self.seconds)
        with self._changed:
            if self._closing:
                raise QueueFull("the server is stopping")
            if len(self._jobs) >= self._max_waiting:
                raise QueueFull(f"{self._max_waiting} requests are waiting already: try again in a moment")
            ahead = len(self._jobs) + (self._running is not None)
            if ahead:
                job.send(Waiting(ahead))
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    def remove(self, job: Job[Any]) -> None:
        """Remove a job that has not started."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self._send_positions()

    def stop(self) -> None:
        """Stop before the next pass. Takes no lock, so that a signal handler may call it."""
        self._closing = True

    def close(self, patience: float = 2.0) -> bool:
        """Stop, end all jobs, and wait up to `patience` seconds for the running pass; returns whether it has ended."""
        self.stop()
        with self._changed:
            ended = [*self._jobs, *([] if self._running is None else [self._running])]
            self._jobs.clear()
            self._changed.notify_all()
        for job in ended:
            job.send(Outcome(problem=Problem(503, "the server is stopping")))
            job.cancelled = True  # nothing is sent after the outcome
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while job := self._next():
            outcome = self._compute(job)
            with self._changed:
                self._running = None
            job.send(outcome)  # only now: a client that has the answer finds the worker idle
            del job, outcome  # they may be large, and the next job may come much later

    def _next(self) -> Job[Any] | None:
        """Wait for a job; None when the queue is closing."""
        with self._changed:
            while not self._jobs and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._running = self._jobs.popleft()
            self._send_positions()
            return self._running

    def _send_positions(self) -> None:
        """Send to each waiting job how many jobs run before it."""
        for position, job in enumerate(self._jobs):
            job.send(Waiting(position + (self._running is not None)))

    def _compute(self, job: Job[Any]) -> Outcome[Any]:
        """Run a job. Errors become messages here, since exceptions would keep the tensors of their frames alive."""
        deadline = time.monotonic() + job.seconds

        def check_limits() -> None:
            if job.cancelled or self._closing:
                raise Cancelled
            if time.monotonic() > deadline:
                raise TimedOut

        try:
            with on_forward_pass(check_limits), on_backward_pass(check_limits), on_step(check_limits):
                check_limits()
                return Outcome(answer=job.compute(job.send))
        except Cancelled:
            return Outcome(problem=Problem(503, "the server is stopping"))
        except TimedOut:
            return Outcome(problem=Problem(504, too_long(job.seconds)))
        except ValueError as error:  # refusals of the library, whose messages are for users
            return Outcome(problem=Problem(422, str(error)))
        except Exception as error:  # any error: the worker thread must survive
            traceback.print_exc()
            name = type(error).__name__
            return Outcome(
                problem=Problem(500, f"the computation failed ({name}); the terminal of the server says where")
            )


def too_long(seconds: float) -> str:
    return (
        f"this took longer than {seconds:g} s, the limit for one request: "
        "shorten the text, or ask for fewer or faster methods"
    )
