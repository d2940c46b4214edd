"""The page with hostile texts, keyboard only, narrow screens, dark mode and failing servers."""

import re
from typing import Any

import pytest

from tests.browser import (
    NARROW,
    SENTENCE,
    WIDE,
    Served,
    choose,
    colors,
    contrast,
    expect,
    explain,
    new_tab,
    opened,
    scores,
)
from tests.browser import chromium as chromium
from tests.browser import page as page
from tests.browser import served as served
from tests.browser import window as window

pytestmark = pytest.mark.xdist_group("browser")
HOSTILE = {
    "html": '<img src=x onerror="alert(1)"><script>alert(2)</script> a </p></textarea> bad & good film &amp; {{7*7}}',
    "one word": "w" * 10_000,
    "cut off": "a really long and dull film, " * 90 + '<img src=x onerror="alert(1)"> <script>alert(2)</script>',
    "marks": "👩‍👩‍👧‍👦 a great film 🏳️‍🌈 👍🏽 🇫🇷 e\u0301 "  # emoji, right to left, zero width
    "פילם נהדר وفيلم رائع a film \u202eesrever\u202c end a\u200b good\u200d\ufeff fi\u2060lm \u00ad\u200b",
    "lines": "a good film\n\n\tand\r\na bad one\u2028here \x07\x00",
}
MANY = ("rollout", "attcat", "alti", "attn_lrp", "mask_lrp")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_shown_as_texts(page: Any, name: str) -> None:
    text = HOSTILE[name]
    choose(page, ("attcat", "attn_lrp"))
    page.locator("#text").evaluate(
        "(field, text) => { field.value = text; field.dispatchEvent(new Event('input')) }", text
    )
    page.click("#explain")
    expect(page.locator("#heatmaps .heatmap")).to_have_count(2)
    expect(page.locator("#prediction-error")).to_be_empty()
    typed = page.locator("#text").input_value()  # a field may change line ends, nothing else
    assert typed == text.replace("\r\n", "\n")
    first = page.locator("#heatmaps .heatmap-text").first
    while first.locator(".fold").count():  # folded text counts, too
        first.locator(".fold").first.click()
    shown = first.text_content()
    for word in typed.split():
        assert word.replace("\x00", "") in shown.replace("\x00", "")
    assert page.locator("#heatmaps img, #heatmaps script, #choices img").count() == 0
    page.get_by_label("sub-words").check()
    page.locator("#heatmaps .word").first.hover()
    assert has_no_horizontal_scrollbar(page)
    page.locator(".head").first.hover()
    expect(page.locator("svg.arcs")).to_be_visible()
    expect(page).to_have_url(re.compile("&u=token"))  # the URL is updated with a delay
    page.reload()  # the link contains the text
    expect(page.locator("#heatmaps .heatmap")).to_have_count(2)
    assert page.locator("#text").input_value() == typed


def test_html_tags_inside_one_word_are_shown_as_text(page: Any) -> None:
    """A tokenizer may keep a whole tag together as one word, although none in the tests does."""
    tag = '<img src=x onerror="alert(1)">'
    word = {"text": tag, "score": 1.0, "tokens": [0], "special": False, "segment": 0, "span": [0, 30], "rank": 1}
    piece = {"text": tag, "word": 0, "tokens": [0]}
    explanation = {"method": tag, "notes": [tag], "words": [word], "pieces": [piece], "signed": True, "scores": [1.0]}
    explanation |= {"special": [False], "token_pieces": [piece], "token_ranks": [1]}
    draw = """async (explanation) => {
        const { drawHeatmaps } = await import('/static/heatmap.js');
        const box = document.createElement('div');
        document.body.append(box);
        box.id = 'drawn';
        for (const unit of ['word', 'token']) drawHeatmaps(box, [explanation], { unit });
    }"""
    page.evaluate(draw, explanation)
    page.locator("#drawn .word").hover()
    expect(page.locator("#drawn .readout")).to_have_text(f"“{tag}”")
    assert page.locator("#drawn .word").text_content() == tag
    assert page.locator("#drawn img").count() == 0


def has_no_horizontal_scrollbar(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
def test_the_page_never_scrolls_horizontally(chromium: Any, served: Served, size: Any) -> None:
    with opened(chromium, served.url, viewport=size) as tab:
        page = tab.page
        assert has_no_horizontal_scrollbar(page)
        explain(page, methods=MANY)
        page.select_option("#layers-method", "attcat")
        page.locator(".head").nth(2).hover()
        # Both push the button down: between the press and the release of the mouse, that would lose the click.
        expect(page.locator(".layer-grid")).to_be_visible()
        expect(page.locator("svg.arcs")).to_be_visible()
        page.click("#measure")
        expect(page.locator("#curves-table tbody tr")).to_have_count(len(MANY) + 2)
        page.select_option("#first-method", "attcat")
        page.select_option("#second-method", "alti")
        page.click("#edit")
        page.click("#explain-edited")
        expect(page.locator("#pair-edited .heatmap")).to_have_count(len(MANY))
        expect(page.locator("svg.arcs")).to_be_visible()
        expect(page.locator(".layer-grid")).to_be_visible()
        assert has_no_horizontal_scrollbar(page)
        for card in page.locator(".card:visible").all():
            box = card.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= size["width"]
        first, second = (page.locator(f"#pair-{side}").bounding_box() for side in ("original", "edited"))
        assert (first["y"] == second["y"]) == (size == WIDE)  # side by side on a wide screen


def focused(page: Any, kind: str) -> str | None:
    return page.evaluate(f"document.activeElement.{kind}")


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until an element matches the selector."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"the Tab key does not reach {selector}")


def test_the_page_is_usable_by_keyboard_alone(page: Any) -> None:
    tab_to(page, "#text")
    page.keyboard.insert_text(SENTENCE)
    tab_to(page, "#methods-none")
    page.keyboard.press("Enter")
    tab_to(page, '[data-group="Relevance"] summary')
    page.keyboard.press("Enter")
    for name in ("attn_lrp", "mask_lrp"):
        tab_to(page, f'input[value="{name}"]')
        page.keyboard.press("Space")
    page.locator("#text").focus()
    page.keyboard.press("Control+Enter")
    expect(page.locator("#heatmaps .heatmap")).to_have_count(2)

    tab_to(page, "#heatmaps [role=option]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert focused(page, "textContent") == "charming"
    expect(page.locator("#heatmaps .readout")).to_have_text("“charming”")
    assert page.locator("#heatmaps .is-chosen").count() == 2
    page.keyboard.press("ArrowDown")
    assert focused(page, "closest('.heatmap').dataset.method") == "mask_lrp"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"

    tab_to(page, ".head")
    before = scores(page, "mask_lrp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert (focused(page, "dataset.layer"), focused(page, "dataset.head")) == (
        "1",
        "2",
    )
    expect(page.locator("svg.arcs")).to_have_attribute("aria-label", "Attention of layer 1, head 2")
    for key, lit in (("Enter", 3), ("Space", 2), ("Space", 3)):
        page.keyboard.press(key)
        expect(page.locator("#lit-count")).to_have_text(f"{lit} of 72 heads lit")
    expect(page.locator('.heatmap[data-method="mask_lrp"] .note')).to_contain_text("3 of 72")
    assert scores(page, "mask_lrp") != before
    tab_to(page, "#map-for-all, #layers-method")  # one Tab leaves the grid
    assert focused(page, "closest('.headmap')") is None


def test_every_control_has_a_label(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    find_unlabeled = """all => all.filter((control) => !(control.textContent.trim()
        || control.getAttribute('aria-label') || control.labels?.length)).map((control) => control.outerHTML)"""
    assert (
        page.locator("button, select, textarea, input, [role=option], [role=gridcell]").evaluate_all(find_unlabeled)
        == []
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_ratios_meet_wcag_aa(chromium: Any, served: Served, scheme: str) -> None:
    with opened(chromium, served.url, color_scheme=scheme) as tab:
        page = tab.page
        explain(page, methods=MANY)
        page.select_option("#first-method", "attcat")
        page.select_option("#second-method", "attn_lrp")
        expect(page.locator("#difference")).to_be_visible()
        (card,) = colors(page.locator("#heatmaps-card"))
        assert (max(card) < 60) == (scheme == "dark")
        for selector in (".word", ".sample", "#explain", '.chip[aria-pressed="true"]', '.head[aria-selected="true"]'):
            words = page.locator(f"{selector}:visible")
            assert words.count() > 0
            for back, ink in zip(colors(words), colors(words, "color"), strict=True):
                assert contrast(back, ink) >= 4.5, (selector, back, ink)
        for selector in (".quiet", "h2", "h3", ".special", ".remark", ".note", "label", ".paper", ".example"):
            for ink in set(colors(page.locator(f".card {selector}:visible"), "color")):
                assert contrast(card, ink) >= 4.5, (selector, ink)


def test_the_empty_page_shows_instructions(page: Any) -> None:
    expect(page.locator("#empty")).to_contain_text("Type a sentence or click an example")
    expect(page.locator("#answers")).to_be_hidden()
    page.click("#explain")  # nothing to explain: the text field is focused
    assert focused(page, "id") == "text"


def test_errors_are_shown_next_to_their_cause(window: Any, served: Served) -> None:
    with new_tab(window, served.url, allowed_message="Failed to load resource") as tab:
        page = tab.page
        choose(page, ("attn_lrp",))
        page.fill("#text", "far too long " * 2500)
        expect(page.locator("#prediction-error")).to_contain_text("30,000")
        page.click("#explain")
        expect(page.locator("#waiting .failed")).to_contain_text("32,500 characters")
        explain(page)  # the next request works
        expect(page.locator("#waiting .failed")).to_have_count(0)
        page.route("**/api/explain", lambda route: route.abort())
        page.fill("#text", "Another one.")
        page.click("#explain")
        expect(page.locator("#waiting .failed")).to_contain_text("The server does not answer")
