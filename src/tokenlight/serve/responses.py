"""Responses: JSON, lines of JSON, files. A disconnect cancels the job."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tokenlight.serve.worker import CurveDrawn, Done, Ending, Event, Failed, Problem, Result, Ticket, Wrote, plain

Finish = Callable[[Any], Response]


def as_json(value: Any) -> bytes:
    """In ASCII: whatever a text holds, it goes over the wire and through the browser unharmed."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def json_response(value: Any, status: int = 200) -> Response:
    return Response(as_json(value), status, media_type="application/json")


def told(status: int, sentence: str) -> Response:
    """An error."""
    response = json_response({"error": sentence}, status)
    if status == 503:
        response.headers["Retry-After"] = "2"
    return response


@dataclass(frozen=True)
class WholeAnswer:
    """Waits for the work and sends its answer in one piece."""

    ticket: Ticket[Any]
    finish: Finish = json_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(self.ticket, receive, self.answer(scope, receive, send))

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        ending = await self.ticket.ending()
        await respond(ending, self.finish)(scope, receive, send)


def respond(ending: Ending[Any], finish: Finish) -> Response:
    problem = ending.problem
    if problem is None:
        try:
            return finish(ending.answer)
        except ValueError:  # only numbers that are not finite: JSON has none
            problem = Problem(422, "the answer holds numbers that are not finite")
    return told(problem.status, problem.message)


@dataclass(frozen=True)
class Lines:
    """Sends what the work says line by line, as it is said. Every method has a line of its own in the end."""

    ticket: Ticket[None]
    methods: Sequence[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(self.ticket, receive, self.answer(scope, receive, send))

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A question that is refused at once has a status of its own; once lines were sent, a line tells it."""
        open_methods = list(self.methods)
        begun = False
        async for said in self.ticket.listen():
            problem = said.problem if isinstance(said, Ending) else None
            if problem is not None and not begun:
                await told(problem.status, problem.message)(scope, receive, send)
                return
            if not begun:
                await send(START)
                begun = True
            for event in events_of(said, open_methods):
                if isinstance(event, Result | CurveDrawn | Wrote | Failed) and event.method in open_methods:
                    open_methods.remove(event.method)
                await send({"type": "http.response.body", "body": line_of(event), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/x-ndjson")],
}


def events_of(said: Event | Ending[None], open_methods: Sequence[str]) -> list[Event]:
    """What is sent for what was said: at the end, methods without an answer fail by the same reason."""
    if not isinstance(said, Ending):
        return [said]
    problem = said.problem
    return [*([] if problem is None else [Failed(name, problem.message) for name in open_methods]), Done()]


def line_of(event: Event) -> bytes:
    try:
        return as_json(plain(event)) + b"\n"
    except ValueError:
        failed = Failed(getattr(event, "method", ""), "the result holds numbers that are not finite")
        return as_json(plain(failed)) + b"\n"


async def while_connected(ticket: Ticket[Any], receive: Receive, answering: Awaitable[None]) -> None:
    """Answer, unless the client goes away first."""
    tasks = [asyncio.ensure_future(answering), asyncio.ensure_future(disconnected(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ticket.abandon()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
