"""The routes: the page and its files, and the questions it asks."""

from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tokenlight.serve.answering import PATIENCE, answer_answer
from tokenlight.serve.checks import Refused
from tokenlight.serve.curves import answer_curves, curve_names
from tokenlight.serve.describing import describe
from tokenlight.serve.download import File, answer_download
from tokenlight.serve.explaining import answer_explain
from tokenlight.serve.guard import Guard, own_hosts
from tokenlight.serve.questions import (
    AnyRequest,
    AttentionRequest,
    CurvesRequest,
    DownloadRequest,
    ExplainRequest,
    MethodsRequest,
    PageRequest,
    RemoveRequest,
    WriteRequest,
    parse,
)
from tokenlight.serve.reading import read_question
from tokenlight.serve.removing import answer_attention, answer_remove
from tokenlight.serve.responses import Lines, WholeAnswer, as_json, told
from tokenlight.serve.session import Session
from tokenlight.serve.waiting_line import Busy, WaitingLine
from tokenlight.serve.writing import WRITE, answer_write

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
