"""Accessibility of the page: phones, keyboard, screen readers, reduced motion, print."""

from typing import Any

import pytest

from tests.browser import NARROW, SENTENCE, Served, choose, expect, explain, opened
from tests.browser import chromium as chromium
from tests.browser import page as page
from tests.browser import served as served
from tests.browser import window as window

pytestmark = pytest.mark.xdist_group("browser")
TOP = "box => box.getBoundingClientRect().top"


def test_results_and_the_whole_head_map_fit_on_a_phone(chromium: Any, served: Served) -> None:
    settings = {"viewport": NARROW, "reduced_motion": "reduce"}  # so that scrolling is instant
    with opened(chromium, served.url, **settings) as tab:
        page = tab.page
        explain(page, methods=("attn_lrp", "attcat"))
        assert 0 <= page.locator("#results").evaluate(TOP) < NARROW["height"] / 4
        last_head = page.locator(".head").last.bounding_box()
        assert last_head["x"] + last_head["width"] <= NARROW["width"]
        count_alone_on_a_line = """all => all.filter((element) => {
            const neighbor = element.previousElementSibling ?? element.nextElementSibling;
            const [box, other] = [element.getBoundingClientRect(), [...neighbor.getClientRects()].at(-1)];
            return box.bottom <= other.top || other.bottom <= box.top;
        }).length"""
        assert page.locator("#heatmaps .special").evaluate_all(count_alone_on_a_line) == 0


def test_wide_content_scrolls_and_fades_at_the_hidden_edge(chromium: Any, served: Served) -> None:
    with opened(chromium, served.url, viewport=NARROW) as tab:
        page = tab.page
        explain(page, methods=("attn_lrp",))
        page.select_option("#layers-method", "attn_lrp")
        box = page.locator("#layers .scroll.has-more")
        expect(box).to_be_visible()
        assert box.evaluate("box => box.tabIndex") == 0  # so that it can be scrolled by keyboard
        page.locator("#layers .scroll").evaluate("box => box.scrollTo(box.scrollWidth, 0)")
        expect(page.locator("#layers .scroll.has-less:not(.has-more)")).to_be_visible()


def test_curves_have_a_note_and_are_read_to_screen_readers(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    page.click("#measure")
    expect(page.locator("#curves-table tbody tr")).to_have_count(3)
    note = page.locator("#curves-note")
    expect(note).to_contain_text("A model also predicts something for a text without words")
    expect(note).to_contain_text("A single text is noisy")
    page.locator("svg.chart").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#status")).to_contain_text("% removed: AttnLRP 0.")


def test_a_note_is_shown_once_and_not_repeated_in_comparisons(page: Any) -> None:
    explain(page, methods=("attcat", "attn_lrp"))
    page.select_option("#first-method", "attcat")
    page.select_option("#second-method", "attn_lrp")
    expect(page.locator("#difference .heatmap")).to_have_count(3)
    assert page.locator(".note:visible", has_text="the sign is that of gradient").count() == 1
    page.fill("#text", "a dull film, " * 400)  # too long for the model: every method has a note
    page.click("#explain")
    expect(page.locator("#heatmaps .note", has_text="too long")).to_have_count(1)


def test_words_and_heads_have_text_labels_with_their_numbers(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    labels = page.locator("#heatmaps .word").evaluate_all("all => all.map((word) => word.getAttribute('aria-label'))")
    assert all("score" in name and "rank" in name for name in labels)
    page.locator(".head").first.hover()
    expect(page.locator("svg.arcs desc")).to_contain_text("The strongest: ")
    expect(page.locator("#status")).to_contain_text("All chosen methods are shown")


def test_a_resting_pointer_does_not_replace_the_word_focused_by_keyboard(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    words = page.locator("#heatmaps .word")
    page.locator("#heatmaps h3").hover()
    words.nth(1).focus()
    page.locator("#heatmaps h3").dispatch_event("pointerover", {"bubbles": True})
    expect(page.locator("#heatmaps .readout")).to_have_text("“charming”")


def test_print_shows_results_and_hides_controls(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    page.emulate_media(media="print", color_scheme="dark")
    for visible in ("#heatmaps .word >> nth=0", "#prediction-card", "#explained"):
        expect(page.locator(visible)).to_be_visible()
    for hidden in (
        "#text",
        "#explain",
        "#methods",
        "#share-card",
        "#compare-card",
        "#faithful-card",
        "#layers-card",
    ):
        expect(page.locator(hidden)).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card')") == "#ffffff"
    page.emulate_media(media="screen", color_scheme="light")
    assert page.locator("#text").input_value() == SENTENCE


def test_results_are_scrolled_into_view_with_animation(chromium: Any, served: Served) -> None:
    with opened(chromium, served.url, viewport=NARROW) as tab:
        page = tab.page
        choose(page, ("attn_lrp",))
        page.locator(".example").first.click()
        expect(page.locator("#heatmaps-title")).to_be_in_viewport()
