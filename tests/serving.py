"""A page's server for tests: in the process, or behind a real socket."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tests.waiting import GIVE_UP, until
from tokenlight.heads.mask import HeadMask, own_heads
from tokenlight.serve.app import make_app
from tokenlight.serve.server import Server, listen, make_server
from tokenlight.serve.session import Session
from tokenlight.serve.worker import JobQueue

PORT = 8765
ADDRESS = f"http://127.0.0.1:{PORT}"
TEXT = "it is a good movie"
QUESTIONS: dict[str, dict[str, Any]] = {
    "text-classification": {"text": TEXT},
    "pair": {"text": TEXT, "second": "they are not bad"},
    "question-answering": {"text": "who wrote the book ?", "second": "the book was written by a young author"},
    "fill-mask": {"text": "it is a [MASK] movie"},
    "token-classification": {"text": TEXT, "position": 4},
    "text-generation": {"text": "The keys to the cabinet"},
}


def small_explainer(kind: str = "text-classification") -> tl.Explainer:
    task = "text-classification" if kind == "pair" else kind
    return explainer_for("gpt2" if task == "text-generation" else "bert", task)


@contextmanager
def in_process(explainer: tl.Explainer, mask: HeadMask | None = None, **settings: Any) -> Iterator[Any]:
    """A client that needs no socket; `client.queue` and `client.session` serve its requests."""
    session = Session(explainer, mask or own_heads(explainer.inner))
    queue = JobQueue(**settings)
    client: Any = TestClient(make_app(session, queue, PORT), base_url=ADDRESS)
    client.queue, client.session = queue, session
    try:
        with client:
            yield client
    finally:
        queue.close()


@contextmanager
def listening(explainer: tl.Explainer) -> Iterator[tuple[Server, str]]:
    """A real server on a free port, and its address."""
    sock = listen(0)
    server = make_server(explainer, sock)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    until(lambda: server.started)
    try:
        yield server, f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.queue.stop()
        server.should_exit = True
        thread.join(GIVE_UP)
        sock.close()
        assert not thread.is_alive()


def ask(client: Any, route: str, question: dict[str, Any], status: int = 200) -> Any:
    """The answer of a route that answers in one piece."""
    response = client.post(f"/api/{route}", json=question)
    assert response.status_code == status, response.text
    return response.json()


def lines(client: Any, route: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a route that answers line by line; the last one is checked and left out."""
    response = client.post(f"/api/{route}", json=question)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    *events, last = [json.loads(line) for line in response.text.splitlines()]
    assert last == {"event": "done"}
    return events
