"""The page in Debian's Chromium, driven by Playwright; nothing is downloaded."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

import tokenlight as tl
from tests.serving import listening
from tests.waiting import GIVE_UP
from tokenlight.serve.server import Server

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
NAMES = ("chromium", "chromium-browser")  # Debian's name first
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SENTENCE = "A charming, often affecting journey with a luminous lead."
COLOR = re.compile(r"\d+")  # the parts of "rgb(33, 102, 172)"
PATIENCE = 1000 * GIVE_UP  # in milliseconds


@dataclass(frozen=True)
class Served:
    """A page that is being served by a thread of this process."""

    url: str
    server: Server


@dataclass
class Opened:
    """A tab and the errors that occurred in it."""

    page: Any
    errors: list[str] = field(default_factory=list)


def missing(what: str) -> NoReturn:
    """Skip the tests if there is no browser; in continuous integration, fail."""
    reason = f"{what}: the page is not tested in a browser. Debian: apt-get install chromium; pip install playwright"
    pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser per test file, because Playwright's event loop conflicts with tests that run their own."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing("Chromium is not installed")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        missing("Playwright is not installed")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def serve(explainer: tl.Explainer) -> Iterator[Served]:
    """The real server, on a free port."""
    with listening(explainer) as (server, address):
        yield Served(f"{address}/", server)


@pytest.fixture(scope="module")
def served(chromium: Any) -> Iterator[Served]:
    """The page of the embedded model; not started if there is no browser."""
    with serve(tl.load()) as running:
        yield running


@pytest.fixture(scope="module")
def window(chromium: Any) -> Iterator[Any]:
    """A window in which each test opens a tab; a window for each test takes twice the time."""
    context = new_window(chromium)
    yield context
    assert context.storage_state() == {"cookies": [], "origins": []}  # no tab stored anything
    context.close()


def new_window(chromium: Any, **settings: Any) -> Any:
    context = chromium.new_context(**{"viewport": WIDE, **settings})
    context.set_default_timeout(PATIENCE)
    return context


@contextmanager
def opened(chromium: Any, url: str, allowed_message: str | None = None, **settings: Any) -> Iterator[Opened]:
    """A new tab in its own window with these settings."""
    context = new_window(chromium, **settings)
    try:
        with new_tab(context, url, allowed_message) as tab:
            yield tab
    finally:
        context.close()


@contextmanager
def new_tab(window: Any, url: str, allowed_message: str | None = None) -> Iterator[Opened]:
    """A new tab. Console messages, violations of the content policy, errors and dialogs fail the test.

    Messages that begin with `allowed_message` do not: the browser logs refused requests on the console.
    """
    tab = Opened(window.new_page())
    tab.page.on("console", lambda message: record_message(message, allowed_message, tab.errors))
    tab.page.on("pageerror", lambda error: tab.errors.append(f"error: {error}"))
    tab.page.on("dialog", lambda dialog: (tab.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    tab.page.on("request", lambda request: record_request(request.url, url, tab.errors))
    try:
        tab.page.goto(url)
        tab.page.wait_for_selector("#methods details")
        yield tab
        assert tab.errors == []
    finally:
        tab.page.close()


def record_message(message: Any, allowed_message: str | None, errors: list[str]) -> None:
    if allowed_message is None or not message.text.startswith(allowed_message):
        errors.append(f"console {message.type}: {message.text}")


def record_request(requested: str, url: str, errors: list[str]) -> None:
    """Record requests to other addresses."""
    if not requested.startswith((url.split("#")[0], "data:", "blob:")):
        errors.append(f"requested {requested}")


@pytest.fixture
def page(window: Any, served: Served) -> Iterator[Any]:
    with new_tab(window, served.url) as tab:
        yield tab.page


def expect(locator: Any) -> Any:
    """Playwright's waiting assertions; imported here, because tests are also collected without Playwright."""
    from playwright.sync_api import expect

    return expect(locator)


def explain(page: Any, text: str = SENTENCE, methods: tuple[str, ...] | None = None) -> None:
    """Type a text, choose methods, and wait until all results are shown."""
    if methods is not None:
        choose(page, methods)
    page.fill("#text", text)
    page.click("#explain")
    count = page.locator("#methods input:checked").count()
    expect(page.locator("#heatmaps .heatmap")).to_have_count(count)
    expect(page.locator("#cancel")).to_be_hidden()


def choose(page: Any, methods: tuple[str, ...]) -> None:
    """Open every group of methods, clear the selection, and select these methods."""
    page.click("#methods-none")
    page.locator("#methods details").evaluate_all("all => all.forEach((group) => (group.open = true))")
    for name in methods:
        page.check(f'#methods input[value="{name}"]')


def scores(page: Any, method: str, box: str = "#heatmaps") -> list[float]:
    """The scores of a heatmap by word, without special tokens."""
    words = page.locator(f'{box} .heatmap[data-method="{method}"] .word')
    return words.evaluate_all("words => words.map((word) => Number(word.dataset.score))")


def colors(locator: Any, kind: str = "backgroundColor") -> list[tuple[int, ...]]:
    """Computed colors, as rendered by the browser."""
    styles = locator.evaluate_all(f"all => all.map((element) => getComputedStyle(element).{kind})")
    return [tuple(int(channel) for channel in COLOR.findall(style)[:3]) for style in styles]


def contrast(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """WCAG's contrast ratio."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: tuple[int, ...]) -> float:
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in color)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
