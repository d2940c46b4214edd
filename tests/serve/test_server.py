"""A real server on a real socket: many at once, clients that leave, Ctrl-C, ports, the command."""

import gc
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tokenlight as tl
from tests.serving import TEXT, listening, small_explainer
from tests.waiting import GIVE_UP, Clock, until
from tests.waiting import gate as gate
from tests.waiting import left as left
from tokenlight.cli import app
from tokenlight.serve import explain
from tokenlight.serve import server as serving
from tokenlight.serve.worker import MAX_WAITING

HEADERS = {"Content-Type": "application/json"}
LONG = "good movie and the key to the book " * 8


def connect(address: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(address.removeprefix("http://"), timeout=GIVE_UP)


def post(address: str, route: str, question: dict[str, Any]) -> tuple[int, Any, bytes]:
    """Status, headers and body, on a connection of its own."""
    connection = connect(address)
    try:
        connection.request("POST", f"/api/{route}", json.dumps(question), HEADERS)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def events(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


@pytest.fixture(scope="module")
def embedded():
    with listening(tl.load()) as made:
        yield made


@pytest.fixture(scope="module")
def small():
    with listening(small_explainer()) as made:
        yield made


def test_fifty_at_once_are_answered_or_told_to_wait(embedded):
    server, address = embedded
    together, refused = threading.Barrier(50), []

    def one(i: int) -> tuple[int, Any, bytes]:
        together.wait()
        status, headers, body = post(address, "explain", {"text": f"a charming film number {i}", "methods": ["lrp"]})
        if status == 503:
            refused.append(headers["retry-after"])
        return status, headers, body

    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(one, range(50)))
    answered = [(i, body) for i, (status, _, body) in enumerate(found) if status == 200]
    assert {status for status, _, _ in found} <= {200, 503}
    assert len(answered) >= MAX_WAITING
    assert len(answered) + len(refused) == 50
    assert all(int(seconds) > 0 for seconds in refused)
    for i, body in answered:
        *_, result, done = events(body)
        assert result["explanation"]["text"] == f"a charming film number {i}"
        assert done == {"event": "done"}
    until(lambda: server.queue.idle)
    status, _, body = post(address, "explain", {"text": "and then another", "methods": ["lrp"]})
    assert (status, events(body)[-1]) == (200, {"event": "done"})


def resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def live_tensors() -> int:
    gc.collect()
    return sum(1 for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter))


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads Linux's own figures")
def test_memory_is_back_where_it_was(embedded):
    """After many requests at once, on many texts; the cache is emptied, since what it keeps is meant to stay."""
    server, address = embedded

    def round_of(start: int) -> None:
        with ThreadPoolExecutor(8) as pool:
            questions = [
                {"text": f"a charming film number {i} " * 2, "methods": ["attcat", "lrp"]}
                for i in range(start, start + 8)
            ]
            found = list(pool.map(lambda question: post(address, "explain", question), questions))
        assert [status for status, _, _ in found] == [200] * 8
        until(lambda: server.queue.idle)
        server.session.cache.clear()

    round_of(0)
    tensors, memory = live_tensors(), resident()
    for start in (100, 200, 300):
        round_of(start)
    assert live_tensors() <= tensors + 5
    assert resident() < memory + 60 * 2**20


@pytest.fixture
def begin():
    """Sends a request and gives its connection, unread: to be closed by the test, or in the end."""
    made = []

    def send(address: str, question: dict[str, Any], route: str = "explain") -> http.client.HTTPConnection:
        made.append(connect(address))
        made[-1].request("POST", f"/api/{route}", json.dumps(question), HEADERS)
        return made[-1]

    yield send
    for connection in made:
        connection.close()


@pytest.fixture
def many_passes(monkeypatch) -> None:
    """Erasure takes as many as there are tokens."""
    monkeypatch.setattr("tokenlight.methods.erasure.CHUNK", 1)


@pytest.mark.usefixtures("many_passes")
@pytest.mark.parametrize("route", ["explain", "curves", "download"])
def test_a_client_that_disconnects_frees_its_work(small, route, begin, gate, left):
    server, address = small
    gate.allow(2)
    question: dict[str, Any] = {"text": f"{LONG} {route}", "methods": ["erasure"]}
    question |= {"format": "json"} if route == "download" else {}
    connection = begin(address, question, route)
    gate.await_pass(3)
    connection.close()
    assert left.wait(GIVE_UP)
    gate.open()
    until(lambda: server.queue.idle)
    assert gate.passes == 3  # the work has more than sixty
    status, _, body = post(address, "predict", {"text": TEXT})
    assert (status, json.loads(body)["tokens"][0]) == (200, "[CLS]")


def test_a_client_that_disconnects_while_waiting_leaves_the_line(small, begin, gate):
    server, address = small
    first = begin(address, {"text": f"{LONG} first", "methods": ["erasure"]})
    gate.await_pass(1)
    waiting = [begin(address, {"text": f"{LONG} {i}", "methods": ["erasure"]}) for i in range(5)]
    until(lambda: server.queue.waiting == 5)
    for connection in waiting:
        connection.close()
    until(lambda: server.queue.waiting == 0)
    assert not server.queue.idle
    first.close()
    gate.open()
    until(lambda: server.queue.idle)


@pytest.mark.usefixtures("many_passes")
def test_lines_arrive_as_they_are_said(small, monkeypatch, begin, gate):
    _, address = small
    monkeypatch.setattr("tokenlight.serve.explain.PROGRESS_INTERVAL", 0.0)  # about every pass
    gate.allow(5)
    response = begin(address, {"text": f"{LONG} streams", "methods": ["erasure", "lrp"]}).getresponse()
    assert json.loads(response.readline())["method"] == "lrp"  # though the other one still stands at the gate
    assert json.loads(response.readline()).items() >= {"event": "progress", "method": "erasure", "done": 1}.items()
    gate.open()
    *progress, result, done = [json.loads(line) for line in response.read().splitlines()]
    assert (result["event"], result["method"], done["event"]) == ("result", "erasure", "done")
    assert [event["done"] for event in progress] == list(range(2, 2 + len(progress)))
    assert len(progress) > 60


def test_progress_is_told_now_and_then(monkeypatch):
    clock, told = Clock().watched_by(monkeypatch, explain.__name__), []
    count = explain.Counter("erasure", 20, told.append, last_sent=clock.now)
    for _ in range(20):
        clock.now += 0.06
        count()
    assert [progress.done for progress in told] == [3, 7, 11, 15, 19]  # every fifth of a second


def test_those_who_wait_are_told_how_many_are_ahead(small, begin, gate, left):
    server, address = small
    first = begin(address, {"text": f"{LONG} ahead", "methods": ["erasure"]})
    gate.await_pass(1)
    response = begin(address, {"text": TEXT, "methods": ["lrp"], "target": "?"}).getresponse()
    assert json.loads(response.readline()) == {"event": "waiting", "ahead": 1}
    first.close()
    assert left.wait(GIVE_UP)
    gate.open()
    failed, done = [json.loads(line) for line in response.read().splitlines()]
    assert (failed["event"], failed["method"], done["event"]) == ("failed", "lrp", "done")
    assert "no label '?'" in failed["error"]
    until(lambda: server.queue.idle)


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/..",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/..%5capp.py",
        "/static/%2fetc%2fpasswd",
        "/static//etc/passwd",
        "/static/style.css/",
        "/static/style.css%00.js",
        "/static/./style.css/../../app.py",
        "/static/STYLE.CSS",
        "/static/index.html",
        "/static/nothing.js",
        "/static/%252e%252e%252fapp.py",
        "/app.py",
        "/api",
        "/api/model/",
        "//evil.example",
        "/../../../../etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_folder(small, path):
    connection = connect(small[1])
    connection.request("GET", path)
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())) == (404, {"error": "there is nothing here"})
    connection.close()


def test_nonsense_on_the_line_does_not_stop_the_server(small):
    _, address = small
    port = int(address.rsplit(":", 1)[1])
    for sent in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /api/predict HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(sent)
            raw.settimeout(GIVE_UP)
            answer = raw.recv(200)
            assert b" 400 " in answer or b" 403 " in answer
    assert post(address, "predict", {"text": TEXT})[0] == 200


def test_it_listens_on_this_machine_only():
    sock = serving.listen(0)
    assert sock.getsockname()[0] == "127.0.0.1"
    sock.close()


# --- ports ----------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told():
    taken = serving.listen(0)
    with pytest.raises(ValueError, match=r"cannot listen on port \d+: another program uses it; choose another"):
        serving.listen(taken.getsockname()[1])
    taken.close()


def test_without_a_port_the_next_free_one_is_taken(monkeypatch):
    taken = serving.listen(0)
    port = taken.getsockname()[1]
    monkeypatch.setattr(serving, "PORT", port)
    found = serving.listen(None)
    assert port < found.getsockname()[1] < port + serving.TRIES
    found.close()
    monkeypatch.setattr(serving, "TRIES", 1)
    with pytest.raises(ValueError, match="all in use"):
        serving.listen(None)
    taken.close()


# --- the command ----------------------------------------------------------------------------------------------------


def start_command(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The running command and the address it prints."""
    program = [sys.executable, "-m", "tokenlight", "serve", "--no-browser", "--port", "0", *arguments]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "The page is at http://127.0.0.1:" in line, process.communicate()
    return process, line.split("at ")[1].split("/ ")[0]


def test_ctrl_c_stops_at_once_in_the_middle_of_work(begin):
    process, address = start_command()
    until(lambda: answers(address))
    question = {
        "text": "a charming and often affecting journey " * 80,
        "methods": ["attcat", "erasure"],
    }  # many seconds
    answer = begin(address, question).getresponse()
    assert json.loads(answer.readline())["method"] == "attcat"  # the other one is being computed from here on
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=GIVE_UP)
    assert process.returncode == 0
    assert "Traceback" not in errors
    said = [json.loads(line) for line in answer.read().splitlines()]
    assert "result" not in [one["event"] for one in said]  # it did not wait for the work to end


def answers(address: str) -> bool:
    connection = connect(address)
    try:
        connection.request("GET", "/api/model")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["serve", *arguments])


def test_the_command_says_what_is_wrong_in_one_line(tmp_path):
    taken = serving.listen(0)
    taken.listen()
    port = str(taken.getsockname()[1])
    for arguments, says in (
        (["--port", port], f"cannot listen on port {port}"),
        (["./nowhere", "--port", "0"], "there is no such folder"),
        (["--heads", str(tmp_path / "none.json"), "--port", "0", "--no-browser"], "there is no head mask"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith("tokenlight: ")
        assert says in line
    taken.close()


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_the_command_says_what_to_install(missing, monkeypatch):
    monkeypatch.setattr(tl, "serve", sys.modules["tokenlight.serve"])  # the package is imported anew: put it back
    for name in [name for name in sys.modules if name.split(".")[0] == missing or name.startswith("tokenlight.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    result = run("--port", "0")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line == f'tokenlight: the page needs {missing}: pip install "tokenlight[serve]"'


class AtOnce:
    """A timer that does not wait."""

    def __init__(self, seconds: float, call: Any, values: list[Any]):
        self.call, self.values, self.daemon = call, values, False

    def start(self) -> None:
        self.call(*self.values)


def test_the_browser_is_opened_unless_told_not_to(monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("threading.Timer", AtOnce)
    monkeypatch.setattr(serving.Server, "run", lambda self, sockets: None)
    result = run("--port", "0")
    assert result.exit_code == 0, result.output
    assert opened[0] in result.stdout
    assert run("--port", "0", "--no-browser").exit_code == 0
    assert len(opened) == 1


def test_a_mask_file_gives_the_head_map(tmp_path, monkeypatch):
    described: list[Any] = []
    path = tmp_path / "masks.json"
    tl.HeadMask.by_hand(torch.eye(6, 12)).save(path)
    monkeypatch.setattr(serving, "make_app", lambda session, line, port: described.append(session.mask))
    monkeypatch.setattr(serving.Server, "run", lambda self, sockets: None)
    assert run("--port", "0", "--no-browser", "--heads", str(path)).exit_code == 0
    assert described[0].lit.tolist() == torch.eye(6, 12).tolist()
