"""Who may ask, and for what: our own page on this machine, JSON of a limited size, files of the package by name."""

import pytest

from tests.serving import PORT, TEXT, in_process, small_explainer
from tokenlight.serve.app import MAX_BODY, own_hosts, page_files

QUESTIONS = ("predict", "write", "answer", "explain", "curves", "attention", "remove", "download")


@pytest.fixture(scope="module")
def client():
    with in_process(small_explainer()) as made:
        yield made


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"])
def test_our_own_names_are_answered(client, host):
    assert client.get("/api/model", headers={"Host": host}).status_code == 200
    asked = client.post("/api/predict", json={"text": TEXT}, headers={"Host": host, "Origin": f"http://{host}"})
    assert asked.status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/model", "/static/style.css", "/nothing"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "localhost:80", f"127.0.0.1.evil.example:{PORT}", ""],
)
def test_other_hosts_are_refused_even_for_reading(client, path, host):
    response = client.get(path, headers={"Host": host})
    assert response.status_code == 403
    assert "Host" in response.json()["error"]


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1", f"http://127.0.0.1:{PORT + 1}"],
)
@pytest.mark.parametrize("route", QUESTIONS)
def test_other_origins_are_refused(client, route, origin):
    response = client.post(f"/api/{route}", json={"text": TEXT}, headers={"Origin": origin})
    assert response.status_code == 403
    assert "Origin" in response.json()["error"]


def test_port_80_has_no_number():
    assert {"localhost", "localhost:80"} <= own_hosts(80)
    assert "localhost" not in own_hosts(81)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
@pytest.mark.parametrize("route", QUESTIONS)
def test_only_json_is_read(client, route, kind):
    """The kinds that any site's form can send are refused; JSON makes browsers ask us first."""
    response = client.post(f"/api/{route}", content=b'{"text": "a"}', headers={"Content-Type": kind})
    assert response.status_code == 415
    assert "application/json" in response.json()["error"]


def test_json_with_a_charset_is_json(client):
    kind = {"Content-Type": "application/json; charset=utf-8"}
    assert client.post("/api/predict", content=b'{"text": "a movie"}', headers=kind).status_code == 200


def test_nobody_is_allowed_across_origins(client):
    response = client.options("/api/predict", headers={"Origin": "http://evil.example"})
    assert response.status_code == 403
    assert not any(name.startswith("access-control") for name in response.headers)


@pytest.mark.parametrize("declared", [True, False])
def test_large_bodies_are_refused(client, declared):
    body = b'{"text": "' + b"x" * MAX_BODY + b'"}'
    parts = body if declared else iter([body[:1000], body[1000:]])  # without a declared length: in chunks
    response = client.post("/api/predict", content=parts, headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert "256 kB" in response.json()["error"]


def test_the_longest_text_fits_into_a_body_however_it_is_written(client):
    text = "\U0001f600" * 20_000  # twelve bytes each where JSON is written in ASCII
    assert client.post("/api/predict", json={"text": text}).status_code == 200


def test_headers_are_strict_on_every_answer(client):
    answers = [
        client.get("/"),
        client.get("/api/model"),
        client.get("/nothing"),
        client.get("/", headers={"Host": "evil.example"}),
        client.post("/api/predict", json={"text": TEXT}),
        client.post("/api/explain", json={"text": TEXT, "methods": ["lrp"]}),
    ]
    for response in answers:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in response.headers


def test_the_page_and_its_files(client):
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    found = {name: file for name, file in page_files().items() if name.rsplit(".", 1)[-1] in kinds}
    assert {"main.js", "page.css", "style.css", "heatmap.js"} <= set(found)  # the last two lie with the views
    for name, file in found.items():
        response = client.get(f"/static/{name}")
        assert response.status_code == 200
        assert response.headers["content-type"] == f"{kinds[name.rsplit('.', 1)[-1]]}; charset=utf-8"
        assert response.content == file.read_bytes()


@pytest.mark.parametrize("route", QUESTIONS)
def test_questions_are_posted(client, route):
    response = client.get(f"/api/{route}")
    assert response.status_code == 405
    assert "another method" in response.json()["error"]


def test_reading_changes_nothing(client):
    assert client.post("/", json={}).status_code == 405
    assert client.put("/api/model", json={}).status_code == 405
    assert client.delete("/static/style.css", headers={"Content-Type": "application/json"}).status_code == 405
