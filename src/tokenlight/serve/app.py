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
from tokenlight.serve.download import File, answer_download
from tokenlight.serve.explain import PATIENCE, answer_answer, answer_curves, answer_explain, curve_names
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
from tokenlight.serve.responses import Lines, WholeAnswer, as_json, told
from tokenlight.serve.session import Session
from tokenlight.serve.worker import Busy, WaitingLine

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STRICT = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def own_hosts(port: int) -> frozenset[str]:
    """What a browser on this machine calls us."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


@dataclass(frozen=True)
class Guard:
    """Another site's page can send requests here, and a name of its own can lead here: both are refused."""

    app: ASGIApp
    hosts: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in STRICT.items():
                    headers[name] = value
            await send(message)

        refusal = self.refusal(scope["method"], Headers(scope=scope))
        answer = self.app if refusal is None else told(*refusal)
        await answer(scope, receive, send_strictly)

    def refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence, or None for a request that may go on."""
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


BODY = 256 * 1024  # bytes of a request
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
Endpoint = Callable[[Request], Any]


class TooLarge(Exception):
    """The body of a request is over the limit."""


def make_app(session: Session, line: WaitingLine, port: int) -> ASGIApp:
    """The page of one model, for a server that listens on this port."""
    described = as_json(describe(session))  # while nobody computes yet

    async def model(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def predict(request: Request) -> Any:
        asked = await read(request, PageRequest)
        return WholeAnswer(line.submit(lambda say: read_question(session, asked).to_dict()))

    async def write(request: Request) -> Any:
        asked = await read(request, WriteRequest)
        return Lines(line.submit(lambda say: answer_write(session, asked, say), PATIENCE), [WRITE])

    async def answer(request: Request) -> Any:
        asked = await read(request, MethodsRequest)
        return Lines(line.submit(lambda say: answer_answer(session, asked, say), PATIENCE), asked.methods)

    async def explain(request: Request) -> Any:
        asked = await read(request, ExplainRequest)
        return Lines(line.submit(lambda say: answer_explain(session, asked, say)), asked.methods)

    async def curves(request: Request) -> Any:
        asked = await read(request, CurvesRequest)
        return Lines(line.submit(lambda say: answer_curves(session, asked, say)), curve_names(asked))

    async def attention(request: Request) -> Any:
        asked = await read(request, AttentionRequest)
        return WholeAnswer(line.submit(lambda say: answer_attention(session, asked)))

    async def remove(request: Request) -> Any:
        asked = await read(request, RemoveRequest)
        return WholeAnswer(line.submit(lambda say: answer_remove(session, asked)))

    async def download(request: Request) -> Any:
        asked = await read(request, DownloadRequest)
        return WholeAnswer(line.submit(lambda say: answer_download(session, asked, say), PATIENCE), attachment)

    questions = {"predict": predict, "write": write, "answer": answer, "explain": explain, "curves": curves}
    questions |= {"attention": attention, "remove": remove, "download": download}
    routes = [Route("/", index), Route("/static/{name}", static), Route("/api/model", model)]
    routes += [Route(f"/api/{name}", endpoint, methods=["POST"]) for name, endpoint in questions.items()]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    return Guard(app, own_hosts(port))


async def read(request: Request, kind: type[AnyRequest]) -> AnyRequest:
    """The body, never more of it than is allowed."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY:
            raise TooLarge
    return parse(bytes(body), kind)


def attachment(file: File) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
    return Response(file.text.encode(), headers=headers, media_type=file.kind)


async def index(request: Request) -> Response:
    return static_file("index.html", "text/html")


async def static(request: Request) -> Response:
    """A file of the page, by its plain name; there is no other way to name one."""
    name = request.path_params["name"]
    kind = next((kind for ending, kind in KINDS.items() if name.endswith(ending)), None)
    if kind is None or name not in page_files():
        raise HTTPException(404)
    return static_file(name, kind)


def static_file(name: str, kind: str) -> Response:
    return Response(page_files()[name].read_bytes(), media_type=f"{kind}; charset=utf-8")


def page_files() -> dict[str, Traversable]:
    """The page's own files, and those that it shares with standalone reports."""
    folders = [files(package) / "static" for package in ("tokenlight.serve", "tokenlight.views")]
    return {file.name: file for folder in folders for file in folder.iterdir()}


async def refused(request: Request, error: Exception) -> Response:
    return told(422, str(error))


async def too_large(request: Request, error: Exception) -> Response:
    return told(413, f"the request is larger than {BODY // 1024} kB: shorten the text")


async def busy(request: Request, error: Exception) -> Response:
    return told(503, str(error))


async def nothing_here(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    sentences = {404: "there is nothing here", 405: "this address takes another method"}
    response = told(status, sentences.get(status, "this request cannot be answered"))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def gone(request: Request, error: Exception) -> Response:
    """Nobody is there to read it."""
    return Response(status_code=400)


HANDLERS: dict[Any, Any] = {
    **{Refused: refused, TooLarge: too_large, Busy: busy},
    **{HTTPException: nothing_here, ClientDisconnect: gone},
}
