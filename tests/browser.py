"""A real browser on the real page: Debian's Chromium, driven by Playwright, nothing downloaded."""

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
    """A tab, and everything that went wrong in it."""

    page: Any
    troubles: list[str] = field(default_factory=list)


def missing(what: str) -> NoReturn:
    """Without a browser nothing is tested: elsewhere that is only said, in continuous integration it fails."""
    reason = f"{what}: the page is not tested in a browser. Debian: apt-get install chromium; pip install playwright"
    pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """For one file: while it is open, Playwright's event loop is in the way of tests that run one of their own."""
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
    """The page of the model inside the package; not started where there is no browser to look at it."""
    with serve(tl.load()) as running:
        yield running


@pytest.fixture(scope="module")
def window(chromium: Any) -> Iterator[Any]:
    """Where tests have a tab each, which takes half the time of a window each."""
    context = new_window(chromium)
    yield context
    assert context.storage_state() == {"cookies": [], "origins": []}  # no tab left anything for the next
    context.close()


def new_window(chromium: Any, **settings: Any) -> Any:
    context = chromium.new_context(**{"viewport": WIDE, **settings})
    context.set_default_timeout(PATIENCE)
    return context


@contextmanager
def opened(chromium: Any, url: str, forgiven: str | None = None, **settings: Any) -> Iterator[Opened]:
    """A fresh tab in a window of its own, with settings of its own."""
    context = new_window(chromium, **settings)
    try:
        with new_tab(context, url, forgiven) as tab:
            yield tab
    finally:
        context.close()


@contextmanager
def new_tab(window: Any, url: str, forgiven: str | None = None) -> Iterator[Opened]:
    """A fresh tab. Messages on the console, refusals by the content policy, errors and dialogs fail the test.

    Messages that begin with `forgiven` do not: the browser itself writes refused requests on the console.
    """
    tab = Opened(window.new_page())
    tab.page.on("console", lambda message: hear(message, forgiven, tab.troubles))
    tab.page.on("pageerror", lambda error: tab.troubles.append(f"error: {error}"))
    tab.page.on("dialog", lambda dialog: (tab.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    tab.page.on("request", lambda request: outside(request.url, url, tab.troubles))
    try:
        tab.page.goto(url)
        tab.page.wait_for_selector("#methods details")
        yield tab
        assert tab.troubles == []
    finally:
        tab.page.close()


def hear(message: Any, forgiven: str | None, troubles: list[str]) -> None:
    if forgiven is None or not message.text.startswith(forgiven):
        troubles.append(f"console {message.type}: {message.text}")


def outside(asked: str, url: str, troubles: list[str]) -> None:
    """Nothing is loaded from elsewhere."""
    if not asked.startswith((url.split("#")[0], "data:", "blob:")):
        troubles.append(f"asked for {asked}")


@pytest.fixture
def page(window: Any, served: Served) -> Iterator[Any]:
    with new_tab(window, served.url) as tab:
        yield tab.page


def expect(locator: Any) -> Any:
    """Playwright's assertions, which wait; imported late, because the tests are collected without Playwright too."""
    from playwright.sync_api import expect

    return expect(locator)


def explain(page: Any, text: str = SENTENCE, methods: tuple[str, ...] | None = None) -> None:
    """Type a text, choose methods, and wait until all are there."""
    if methods is not None:
        choose(page, methods)
    page.fill("#text", text)
    page.click("#explain")
    count = page.locator("#methods input:checked").count()
    expect(page.locator("#heatmaps .heatmap")).to_have_count(count)
    expect(page.locator("#cancel")).to_be_hidden()


def choose(page: Any, methods: tuple[str, ...]) -> None:
    """Open every school, and by clicking put out what is chosen, light what is wanted."""
    page.click("#methods-none")
    page.locator("#methods details").evaluate_all("all => all.forEach((school) => (school.open = true))")
    for name in methods:
        page.check(f'#methods input[value="{name}"]')


def scores(page: Any, method: str, box: str = "#heatmaps") -> list[float]:
    """What a heatmap shows, word by word, special tokens left out."""
    words = page.locator(f'{box} .heatmap[data-method="{method}"] .word')
    return words.evaluate_all("words => words.map((word) => Number(word.dataset.score))")


def colors(locator: Any, kind: str = "backgroundColor") -> list[tuple[int, ...]]:
    """Computed colors, as the browser paints them."""
    found = locator.evaluate_all(f"all => all.map((one) => getComputedStyle(one).{kind})")
    return [tuple(int(part) for part in COLOR.findall(one)[:3]) for one in found]


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """WCAG's contrast ratio."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: tuple[int, ...]) -> float:
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in color)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
