"""The routes of the page, and the checks before every request: access and headers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenlight.serve.describe import describe
from tokenlight.serve.download import File, make_download
from tokenlight.serve.explain import ANSWER_TIME_FACTOR, curve_names, send_answers, send_curves, send_explanations
from tokenlight.serve.predict import WRITE, answer_attention, answer_remove, answer_write, read_question
from tokenlight.serve.requests import (
    AnyRequest,
    AttentionRequest,
    CurvesRequest,
    DownloadRequest,
    ExplainRequest,
    MethodsRequest,
    PageRequest,
    Refused,
    RemoveRequest,
    WriteRequest,
    parse,
)
from tokenlight.serve.responses import AnswerResponse, EventStream, as_json, error_response
from tokenlight.serve.session import Session
from tokenlight.serve.worker import JobQueue, QueueFull

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def own_hosts(port: int) -> frozenset[str]:
    """The values of the Host header with which a browser on this machine reaches the server."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


@dataclass(frozen=True)
class Guard:
    """Refuses requests from pages of other sites (Origin), and under names of other sites (Host, DNS rebinding)."""

    app: ASGIApp
    hosts: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self.refusal(scope["method"], Headers(scope=scope))
        app = self.app if refusal is None else error_response(*refusal)
        await app(scope, receive, send_with_headers)

    def refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Status and message, or None for an accepted request."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 403, f"this server answers to {' and '.join(sorted(self.hosts))}, not to another Host"
        if any(origin.lower() not in {f"http://{host}" for host in self.hosts} for origin in origins):
            return 403, "this request comes from another page, whose Origin is not this server's"
        if method not in ("GET", "HEAD"):
            kind = headers.get("content-type", "").split(";")[0].strip().lower()
            if kind != "application/json":
                return 415, "expected Content-Type: application/json"
        return None


MAX_BODY = 256 * 1024  # bytes of a request
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
Endpoint = Callable[[Request], Any]


class TooLarge(Exception):
    """The body of a request is over the limit."""


def make_app(session: Session, queue: JobQueue, port: int) -> ASGIApp:
    """The page of one model, for a server that listens on this port."""
    description = as_json(describe(session))  # before the worker thread uses the model

    async def model(request: Request) -> Response:
        return Response(description, media_type="application/json")

    async def predict(request: Request) -> Any:
        page_request = await read(request, PageRequest)
        return AnswerResponse(queue.submit(lambda send_event: read_question(session, page_request).to_dict()))

    async def write(request: Request) -> Any:
        page_request = await read(request, WriteRequest)
        return EventStream(
            queue.submit(lambda send_event: answer_write(session, page_request, send_event), ANSWER_TIME_FACTOR),
            [WRITE],
        )

    async def answer(request: Request) -> Any:
        page_request = await read(request, MethodsRequest)
        return EventStream(
            queue.submit(lambda send_event: send_answers(session, page_request, send_event), ANSWER_TIME_FACTOR),
            page_request.methods,
        )

    async def explain(request: Request) -> Any:
        page_request = await read(request, ExplainRequest)
        return EventStream(
            queue.submit(lambda send_event: send_explanations(session, page_request, send_event)), page_request.methods
        )

    async def curves(request: Request) -> Any:
        page_request = await read(request, CurvesRequest)
        return EventStream(
            queue.submit(lambda send_event: send_curves(session, page_request, send_event)), curve_names(page_request)
        )

    async def attention(request: Request) -> Any:
        page_request = await read(request, AttentionRequest)
        return AnswerResponse(queue.submit(lambda send_event: answer_attention(session, page_request)))

    async def remove(request: Request) -> Any:
        page_request = await read(request, RemoveRequest)
        return AnswerResponse(queue.submit(lambda send_event: answer_remove(session, page_request)))

    async def download(request: Request) -> Any:
        page_request = await read(request, DownloadRequest)
        return AnswerResponse(
            queue.submit(lambda send_event: make_download(session, page_request, send_event), ANSWER_TIME_FACTOR),
            attachment,
        )

    endpoints = {"predict": predict, "write": write, "answer": answer, "explain": explain, "curves": curves}
    endpoints |= {"attention": attention, "remove": remove, "download": download}
    routes = [Route("/", index), Route("/static/{name}", static), Route("/api/model", model)]
    routes += [Route(f"/api/{name}", endpoint, methods=["POST"]) for name, endpoint in endpoints.items()]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    return Guard(app, own_hosts(port))


async def read(request: Request, kind: type[AnyRequest]) -> AnyRequest:
    """Read and parse the body; reading stops at the largest allowed size."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise TooLarge
    return parse(bytes(body), kind)


def attachment(file: File) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
    return Response(file.text.encode(), headers=headers, media_type=file.kind)


async def index(request: Request) -> Response:
    return static_file("index.html", "text/html")


async def static(request: Request) -> Response:
    """A file of the page by its name; paths are not accepted."""
    name = request.path_params["name"]
    media_type = next((kind for ending, kind in MEDIA_TYPES.items() if name.endswith(ending)), None)
    if media_type is None or name not in page_files():
        raise HTTPException(404)
    return static_file(name, media_type)


def static_file(name: str, media_type: str) -> Response:
    return Response(page_files()[name].read_bytes(), media_type=f"{media_type}; charset=utf-8")


def page_files() -> dict[str, Traversable]:
    """The files of the page, including those that it shares with standalone reports."""
    folders = [files(package) / "static" for package in ("tokenlight.serve", "tokenlight.views")]
    return {file.name: file for folder in folders for file in folder.iterdir()}


async def refused(request: Request, error: Exception) -> Response:
    return error_response(422, str(error))


async def too_large(request: Request, error: Exception) -> Response:
    return error_response(413, f"the request is larger than {MAX_BODY // 1024} kB: shorten the text")


async def busy(request: Request, error: Exception) -> Response:
    return error_response(503, str(error))


async def http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    messages = {404: "there is nothing here", 405: "this address takes another method"}
    response = error_response(status, messages.get(status, "this request cannot be answered"))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def disconnected(request: Request, error: Exception) -> Response:
    """The response after a disconnect; the client does not receive it."""
    return Response(status_code=400)


HANDLERS: dict[Any, Any] = {
    **{Refused: refused, TooLarge: too_large, QueueFull: busy},
    **{HTTPException: http_error, ClientDisconnect: disconnected},
}
