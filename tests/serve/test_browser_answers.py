"""A language model's page in a real browser: it writes, and its answer is explained word by word."""

import re
from typing import Any

import pytest

from tests.browser import chromium as chromium
from tests.browser import colors, expect, new_tab, serve
from tests.browser import window as window
from tests.serving import small_explainer

pytestmark = pytest.mark.xdist_group("browser")
ANSWER = " are on the table. It is a good movie."


@pytest.fixture(scope="module")
def served(chromium: Any) -> Any:
    with serve(small_explainer("text-generation")) as running:
        yield running


def shades(page: Any) -> list[tuple[int, ...]]:
    return colors(page.locator(".answer-prompt .word"))


def test_write_an_answer_and_ask_why(window: Any, served: Any) -> None:
    with new_tab(window, served.url) as tab:
        page = tab.page
        page.click("#add-passage")
        page.fill('[data-passage="0"] textarea', "The keys to the cabinet.")
        page.fill("#text", "who wrote")
        expect(page.locator("#headmap")).to_be_hidden()  # 270 gray heads are not what one asks a language model for
        page.locator("#writing summary").click()
        page.fill("#tokens", "5")
        page.click("#write")  # streams in, and is explained
        expect(page.locator(".turn-answer")).to_be_visible()
        assert page.locator("#answer-text").input_value()
        page.fill("#answer-text", ANSWER)  # somebody's own
        expect(page.locator("#answer-stale")).to_be_visible()
        page.click("#explain")
        answer = page.locator(".turn-answer .word")
        expect(answer.filter(has_text="movie")).to_be_visible()
        expect(page.locator("#answer-stale")).to_be_hidden()
        words = page.locator(".answer-prompt .word:not(.is-break)").all_inner_texts()
        assert words == ["The", "keys", "to", "the", "cabinet", ".", "who", "wrote"]
        whole = shades(page)

        answer.filter(has_text="table").click()  # the prompt changes
        expect(page.locator(".panel-title")).to_have_text("“table”")
        assert shades(page) != whole
        expect(page).to_have_url(re.compile("&n="))
        linked = page.url
        page.locator(".answer-prompt .answer-document").click()  # what did the passage support?
        expect(page.locator(".panel-title")).to_have_text("passage 1")
        expect(page.locator(".answer-panel")).to_contain_text("What it supported")

        answer.last.click()  # the full stop: a single token, in whose place others can be picked
        expect(page.locator("#prediction-card")).to_be_visible()
        page.locator(".panel-alternatives .panel-link").nth(1).click()
        expect(page.locator("#explained")).to_contain_text("rather than")
        expect(page.locator("#explained")).to_contain_text("given what was written before it")
        expect(page.locator("#heatmaps .heatmap")).to_have_count(1)
        with page.expect_download() as saved:
            page.click("#save-latex")
        assert "tokenlightword" in saved.value.path().read_text(encoding="utf-8")
    assert "w=" in linked
    with new_tab(window, linked) as tab:  # the link has the passage, the answer and the chosen word
        expect(tab.page.locator(".panel-title")).to_have_text("“table”")
        assert tab.page.locator('[data-passage="0"] textarea').input_value() == "The keys to the cabinet."
        assert tab.page.locator("#answer-text").input_value() == ANSWER
