"""The page for everybody: phones, the keyboard, screen readers, those who want no motion, paper."""

from typing import Any

import pytest

from tests.browser import NARROW, SENTENCE, Served, choose, expect, explain, opened
from tests.browser import chromium as chromium
from tests.browser import page as page
from tests.browser import served as served
from tests.browser import window as window

pytestmark = pytest.mark.xdist_group("browser")
TOP = "box => box.getBoundingClientRect().top"


def test_a_phone_sees_the_results_and_the_whole_head_map(chromium: Any, served: Served) -> None:
    settings = {"viewport": NARROW, "reduced_motion": "reduce"}  # then scrolling takes no time
    with opened(chromium, served.url, **settings) as tab:
        page = tab.page
        explain(page, methods=("attn_lrp", "attcat"))
        assert 0 <= page.locator("#results").evaluate(TOP) < NARROW["height"] / 4
        last = page.locator(".head").last.bounding_box()
        assert last["x"] + last["width"] <= NARROW["width"]
        alone = """all => all.filter((one) => {
            const near = one.previousElementSibling ?? one.nextElementSibling;
            const [box, other] = [one.getBoundingClientRect(), [...near.getClientRects()].at(-1)];
            return box.bottom <= other.top || other.bottom <= box.top;
        }).length"""
        assert page.locator("#heatmaps .special").evaluate_all(alone) == 0


def test_what_is_wider_fades_until_its_end_is_reached(chromium: Any, served: Served) -> None:
    with opened(chromium, served.url, viewport=NARROW) as tab:
        page = tab.page
        explain(page, methods=("attn_lrp",))
        page.select_option("#layers-method", "attn_lrp")
        box = page.locator("#layers .scroll.has-more")
        expect(box).to_be_visible()
        assert box.evaluate("box => box.tabIndex") == 0  # the keyboard can scroll it
        page.locator("#layers .scroll").evaluate("box => box.scrollTo(box.scrollWidth, 0)")
        expect(page.locator("#layers .scroll.has-less:not(.has-more)")).to_be_visible()


def test_curves_say_what_their_end_means_and_speak(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    page.click("#measure")
    expect(page.locator("#curves-table tbody tr")).to_have_count(3)
    note = page.locator("#curves-note")
    expect(note).to_contain_text("A text without words is an input")
    expect(note).to_contain_text("One text is also noisy")
    page.locator("svg.chart").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#status")).to_contain_text("% away: AttnLRP 0.")


def test_a_note_is_said_once_and_not_again_where_methods_are_compared(page: Any) -> None:
    explain(page, methods=("attcat", "attn_lrp"))
    page.select_option("#first-method", "attcat")
    page.select_option("#second-method", "attn_lrp")
    expect(page.locator("#difference .heatmap")).to_have_count(3)
    assert page.locator(".note:visible", has_text="the sign is that of gradient").count() == 1
    page.fill("#text", "a dull film, " * 400)  # too long for the model: every method says so
    page.click("#explain")
    expect(page.locator("#heatmaps .note", has_text="too long")).to_have_count(1)


def test_words_and_heads_have_their_numbers_as_text(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    names = page.locator("#heatmaps .word").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert all("score" in name and "rank" in name for name in names)
    page.locator(".head").first.hover()
    expect(page.locator("svg.arcs desc")).to_contain_text("The strongest: ")
    expect(page.locator("#status")).to_contain_text("All chosen methods are shown")


def test_a_still_pointer_takes_nothing_from_the_keyboard(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    words = page.locator("#heatmaps .word")
    page.locator("#heatmaps h3").hover()
    words.nth(1).focus()
    page.locator("#heatmaps h3").dispatch_event("pointerover", {"bubbles": True})
    expect(page.locator("#heatmaps .readout")).to_have_text("“charming”")


def test_on_paper_there_are_results_and_no_controls(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    page.emulate_media(media="print", color_scheme="dark")
    for shown in ("#heatmaps .word >> nth=0", "#prediction-card", "#explained"):
        expect(page.locator(shown)).to_be_visible()
    for hidden in ("#text", "#explain", "#methods", "#share-card", "#compare-card", "#faithful-card", "#layers-card"):
        expect(page.locator(hidden)).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card')") == "#ffffff"
    page.emulate_media(media="screen", color_scheme="light")
    assert page.locator("#text").input_value() == SENTENCE


def test_without_a_wish_for_calm_the_results_are_reached_too(chromium: Any, served: Served) -> None:
    with opened(chromium, served.url, viewport=NARROW) as tab:
        page = tab.page
        choose(page, ("attn_lrp",))
        page.locator(".example").first.click()
        expect(page.locator("#heatmaps-title")).to_be_in_viewport()
