"""Long texts on the page in a real browser: the strongest sentences first, folds that open, nothing lost."""

from collections.abc import Iterator
from typing import Any

import pytest

import tokenlight as tl
from tests.browser import chromium as chromium
from tests.browser import expect, explain, new_tab, scores, serve
from tests.browser import window as window
from tests.tokenizers_ import explainer_for
from tokenlight.views.layout import Fold, folded, strongest

pytestmark = pytest.mark.xdist_group("browser")
METHODS = ("gradient_x_input", "attn_lrp")
SENTENCES = ("It is a good movie.", "They were not bad, the old story.", "A long book and a new one.")
LONG = " ".join(SENTENCES[i % 3] for i in range(130))  # 800 words and more


@pytest.fixture(scope="module")
def explainer() -> tl.Explainer:
    return explainer_for("bert", max_position_embeddings=4096)


@pytest.fixture(scope="module")
def long_page(chromium: Any, window: Any, explainer: tl.Explainer) -> Iterator[Any]:
    with serve(explainer) as running, new_tab(window, running.url) as tab:
        explain(tab.page, LONG, METHODS)
        yield tab.page


def row(page: Any, method: str) -> Any:
    return page.locator(f'#heatmaps .heatmap[data-method="{method}"]')


def test_folds_and_strongest_sentences_are_those_of_the_other_views(long_page: Any, explainer: tl.Explainer) -> None:
    for method, e in explainer.explain_all(LONG, METHODS).items():
        labels = [f" {part.label} " for part in folded(e) if isinstance(part, Fold)]
        assert len(labels) > 2
        assert row(long_page, method).locator(".fold").all_text_contents() == labels
        front = row(long_page, method).locator(".strongest li span").all_text_contents()
        assert front == [passage.text for passage in strongest(e)]


def test_the_strongest_sentences_stand_above_the_text(long_page: Any) -> None:
    box = row(long_page, "attn_lrp")
    above, text = box.locator(".strongest").bounding_box(), box.locator(".heatmap-text").bounding_box()
    assert above["y"] + above["height"] <= text["y"]
    assert above["x"] >= box.locator(".heatmap-name").bounding_box()["x"]


def test_folded_words_get_elements_when_they_are_opened_and_none_is_lost(
    long_page: Any, explainer: tl.Explainer
) -> None:
    e = explainer.explain(LONG, "attn_lrp")
    box = row(long_page, "attn_lrp")
    assert box.locator(".word").count() < len(e.words()) / 2
    box.locator(".fold").first.click()
    assert box.locator(".word:focus").count() == 1
    box.locator(".fold").first.press("Enter")
    folds = box.locator(".fold")
    while folds.count():
        folds.first.press(" ")
    assert box.locator(".heatmap-text").text_content().split()[1:-1] == LONG.split()
    expected = [word.score for word in e.words() if not word.special]
    assert scores(long_page, "attn_lrp") == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_a_word_that_is_folded_elsewhere_still_has_its_score_there(long_page: Any) -> None:
    long_page.get_by_label("sub-words").check()  # draws anew, and folds again
    drawn = "all => all.map((one) => Number(one.dataset.index))"
    here, there = (
        set(row(long_page, method).locator(".word").evaluate_all(drawn)) for method in ("attn_lrp", "gradient_x_input")
    )
    only = min(here - there)
    row(long_page, "attn_lrp").locator(f'.word[data-index="{only}"]').focus()
    expect(row(long_page, "gradient_x_input").locator(".heatmap-score")).to_contain_text("rank")
    long_page.keyboard.press("ArrowUp")  # folded there: the focus stays
    assert long_page.evaluate("Number(document.activeElement.dataset.index)") == only


def test_layers_leave_folded_tokens_out_and_a_difference_is_whole(long_page: Any, explainer: tl.Explainer) -> None:
    long_page.get_by_label("words", exact=True).check()
    long_page.select_option("#layers-method", "attn_lrp")
    expect(long_page.locator("#layers")).to_contain_text("tokens of folded passages are left out")
    assert 0 < long_page.locator(".layer-token").count() < len(explainer.explain(LONG).tokens) / 2
    long_page.select_option("#first-method", METHODS[0])
    long_page.select_option("#second-method", METHODS[1])
    between = long_page.locator("#difference .heatmap").first
    assert between.locator(".fold").count() == 0
    assert between.locator(".heatmap-text").text_content().split()[1:-1] == LONG.split()
