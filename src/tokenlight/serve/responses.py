"""Responses: JSON, lines of JSON, files. A disconnect cancels the job."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tokenlight.serve.worker import CurveDrawn, Done, Event, Failed, Job, Outcome, Problem, Result, Wrote, event_dict

MakeResponse = Callable[[Any], Response]


def as_json(value: Any) -> bytes:
    """JSON in ASCII, so that no character of a text depends on the encoding of the response."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def json_response(value: Any, status: int = 200) -> Response:
    return Response(as_json(value), status, media_type="application/json")


def error_response(status: int, message: str) -> Response:
    response = json_response({"error": message}, status)
    if status == 503:
        response.headers["Retry-After"] = "2"
    return response


@dataclass(frozen=True)
class AnswerResponse:
    """Waits for the outcome of a job and sends its answer at once."""

    job: Job[Any]
    make_response: MakeResponse = json_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(self.job, receive, self.respond(scope, receive, send))

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome = await self.job.outcome()
        await response_to(outcome, self.make_response)(scope, receive, send)


def response_to(outcome: Outcome[Any], make_response: MakeResponse) -> Response:
    problem = outcome.problem
    if problem is None:
        try:
            return make_response(outcome.answer)
        except ValueError:  # numbers that are not finite, which JSON does not have
            problem = Problem(422, "the answer holds numbers that are not finite")
    return error_response(problem.status, problem.message)


@dataclass(frozen=True)
class EventStream:
    """Sends the events of a job as lines of JSON as they occur. In the end, there is a line for every method."""

    job: Job[None]
    methods: Sequence[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(self.job, receive, self.respond(scope, receive, send))

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Before the first line, a problem is sent as an HTTP status; after it, as a line."""
        open_methods = list(self.methods)
        started = False
        async for received in self.job.events():
            problem = received.problem if isinstance(received, Outcome) else None
            if problem is not None and not started:
                await error_response(problem.status, problem.message)(scope, receive, send)
                return
            if not started:
                await send(START)
                started = True
            for event in events_to_send(received, open_methods):
                if isinstance(event, Result | CurveDrawn | Wrote | Failed) and event.method in open_methods:
                    open_methods.remove(event.method)
                await send({"type": "http.response.body", "body": line_of(event), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/x-ndjson")],
}


def events_to_send(received: Event | Outcome[None], open_methods: Sequence[str]) -> list[Event]:
    """The events to send: for an outcome with a problem, a failure of every method that has no result yet."""
    if not isinstance(received, Outcome):
        return [received]
    problem = received.problem
    return [*([] if problem is None else [Failed(name, problem.message) for name in open_methods]), Done()]


def line_of(event: Event) -> bytes:
    try:
        return as_json(event_dict(event)) + b"\n"
    except ValueError:
        failed = Failed(getattr(event, "method", ""), "the result holds numbers that are not finite")
        return as_json(event_dict(failed)) + b"\n"


async def while_connected(job: Job[Any], receive: Receive, responding: Awaitable[None]) -> None:
    """Send the response; if the client disconnects first, cancel the job."""
    tasks = [asyncio.ensure_future(responding), asyncio.ensure_future(disconnected(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        job.cancel()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
