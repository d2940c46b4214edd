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
    ahead: int  # requests that are served first


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
    seconds: float  # of the passes it shared with the others, where it did
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
    text: str  # all that is written so far
    tokens: int


@dataclass(frozen=True)
class Wrote:
    name: ClassVar[str] = "wrote"
    method: str  # "write"
    text: str
    ids: list[int]
    ended: bool  # by the model itself, not by the limit


@dataclass(frozen=True)
class Failed:
    name: ClassVar[str] = "failed"
    method: str
    error: str


@dataclass(frozen=True)
class Done:
    name: ClassVar[str] = "done"


Event = Waiting | Progress | Result | CurveDrawn | Writing | Wrote | Failed | Done


def plain(event: Event) -> dict[str, Any]:
    return {"event": event.name, **vars(event)}


Answer = TypeVar("Answer")
Say = Callable[[Event], None]
Compute = Callable[[Say], Answer]
ROOM = 32  # requests that may wait
SECONDS = 120.0  # for one request, from when it is its turn


class Busy(Exception):
    """The line is full."""


class Stopped(Exception):
    """Nobody waits for this work any more."""


class TimeUp(Exception):
    """The work took longer than it may."""


@dataclass(frozen=True)
class Problem:
    """Why there is no answer: an HTTP status and a sentence."""

    status: int
    message: str


@dataclass(frozen=True)
class Ending(Generic[Answer]):
    """The last thing a ticket hears."""

    answer: Answer | None = None
    problem: Problem | None = None


class Ticket(Generic[Answer]):
    """A request's place in the line; belongs to the event loop that asked. What the worker says arrives here."""

    compute: Compute[Answer]
    seconds: float  # that it may take, from when it is its turn
    abandoned: bool

    def __init__(self, line: "WaitingLine", compute: Compute[Answer], seconds: float):
        self.compute = compute
        self.seconds = seconds
        self.abandoned = False
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[Event | Ending[Answer]] = asyncio.Queue()

    def tell(self, said: Event | Ending[Answer]) -> None:
        """From any thread."""
        if self.abandoned or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._heard.put_nowait, said)

    async def listen(self) -> AsyncIterator[Event | Ending[Answer]]:
        """Everything that is said, the ending last."""
        said = None
        while not isinstance(said, Ending):
            said = await self._heard.get()
            yield said

    async def ending(self) -> Ending[Answer]:
        """The answer alone."""
        while not isinstance(said := await self._heard.get(), Ending):
            pass
        return said

    def abandon(self) -> None:
        """Work that has not begun never will; work that has stops before its next forward pass."""
        self.abandoned = True
        self._line.leave(self)


class WaitingLine:
    """Computes one request after another, in the order they came."""

    seconds: float

    def __init__(self, room: int = ROOM, seconds: float = SECONDS):
        self.seconds = seconds
        self._room = room
        self._tickets: deque[Ticket[Any]] = deque()
        self._running: Ticket[Any] | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="tokenlight", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many wait, without the one that is computed."""
        return len(self._tickets)

    @property
    def idle(self) -> bool:
        with self._changed:
            return self._running is None and not self._tickets

    def submit(self, compute: Compute[Answer], times: int = 1) -> Ticket[Answer]:
        """A place in the line; `compute` gets something to speak through and returns the answer.

        Work that tells its progress all the while may take so many `times` as long as other work.
        """
        ticket = Ticket(self, compute, times * self.seconds)
        with self._changed:
            if self._closing:
                raise Busy("the server is stopping")
            if len(self._tickets) >= self._room:
                raise Busy(f"{self._room} requests are waiting already: try again in a moment")
            ahead = len(self._tickets) + (self._running is not None)
            if ahead:
                ticket.tell(Waiting(ahead))
            self._tickets.append(ticket)
            self._changed.notify_all()
        return ticket

    def leave(self, ticket: Ticket[Any]) -> None:
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._tell_places()

    def stop(self) -> None:
        """No more passes begin. Takes no lock, so that a signal handler may call it."""
        self._closing = True

    def close(self, patience: float = 2.0) -> bool:
        """Stop, tell everyone at once, and wait for the pass that is running; says whether it has ended."""
        self.stop()
        with self._changed:
            told = [*self._tickets, *([] if self._running is None else [self._running])]
            self._tickets.clear()
            self._changed.notify_all()
        for ticket in told:
            ticket.tell(Ending(problem=Problem(503, "the server is stopping")))
            ticket.abandoned = True  # that was the last it hears
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while ticket := self._next():
            ending = self._compute(ticket)
            with self._changed:
                self._running = None
            ticket.tell(ending)  # after that: who has an answer finds the worker free
            del ticket, ending  # may be large, and the next request may be long in coming

    def _next(self) -> Ticket[Any] | None:
        with self._changed:
            while not self._tickets and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._running = self._tickets.popleft()
            self._tell_places()
            return self._running

    def _tell_places(self) -> None:
        for place, ticket in enumerate(self._tickets):
            ticket.tell(Waiting(place + (self._running is not None)))

    def _compute(self, ticket: Ticket[Any]) -> Ending[Any]:
        """Errors end here, as sentences: an exception would keep alive whatever the work held."""
        deadline = time.monotonic() + ticket.seconds

        def may_go_on() -> None:
            if ticket.abandoned or self._closing:
                raise Stopped
            if time.monotonic() > deadline:
                raise TimeUp

        try:
            with on_forward_pass(may_go_on), on_backward_pass(may_go_on), on_step(may_go_on):
                may_go_on()
                return Ending(answer=ticket.compute(ticket.tell))
        except Stopped:
            return Ending(problem=Problem(503, "the server is stopping"))
        except TimeUp:
            return Ending(problem=Problem(504, too_long(ticket.seconds)))
        except ValueError as error:  # the library says in a sentence what cannot be done
            return Ending(problem=Problem(422, str(error)))
        except Exception as error:  # whatever it is, the next request must find a worker
            traceback.print_exc()
            name = type(error).__name__
            return Ending(
                problem=Problem(500, f"the computation failed ({name}); the terminal of the server says where")
            )


def too_long(seconds: float) -> str:
    return (
        f"this took longer than {seconds:g} s, the limit for one request: "
        "shorten the text, or ask for fewer or faster methods"
    )
