"""Links, files, comparisons, canceling, and the other kinds of models, in a real browser."""

import json
from pathlib import Path
from threading import Event
from typing import Any
from xml.etree import ElementTree

import pytest

import tokenlight as tl
from tests.browser import SENTENCE, Served, choose, expect, explain, new_tab, opened, scores, serve
from tests.browser import chromium as chromium
from tests.browser import page as page
from tests.browser import served as served
from tests.browser import window as window
from tests.tokenizers_ import explainer_for
from tests.waiting import GIVE_UP, Gate, until
from tests.waiting import gate as gate
from tests.waiting import left as left
from tokenlight.views.difference import difference

pytestmark = pytest.mark.xdist_group("browser")
PNG = b"\x89PNG\r\n\x1a\n"


def url_after_update(page: Any) -> str:
    """The URL after the delayed updates of the page.

    Browsers run timers in the order they are due: this one is set after those of the page, which have a delay of at
    most 250 milliseconds.
    """
    page.evaluate("new Promise((done) => setTimeout(done, 300))")
    expect(page.locator("#cancel")).to_be_hidden()
    return page.url


def test_a_link_brings_everything_back(window: Any, served: Served, page: Any) -> None:
    text = 'Ünïcode & "quotes" + 100 % #fun, a good film'
    explain(page, text, ("attcat", "mask_lrp"))
    page.get_by_label("explain negative").click()
    page.get_by_label("rather than positive").click()
    page.locator('.head[data-layer="3"][data-head="5"]').click()
    page.get_by_label("sub-words").check()
    page.select_option("#layers-method", "attcat")
    expect(page.locator(".layer-grid")).to_be_visible()  # it pushes the buttons below it down
    page.select_option("#first-method", "attcat")
    page.select_option("#second-method", "mask_lrp")
    page.click("#edit")
    page.fill("#edited", "a bad film")
    page.click("#explain-edited")
    expect(page.locator("#pair-edited .heatmap")).to_have_count(2)
    expect(page.locator("#explained")).to_have_text("Which words speak for negative rather than positive?")
    page.click("#measure")
    expect(page.locator("#curves-table tbody tr")).to_have_count(4)
    link = url_after_update(page)
    with new_tab(window, link) as tab:
        again = tab.page
        expect(again.locator("#heatmaps .heatmap")).to_have_count(2)
        expect(again.locator("#explained")).to_have_text("Which words speak for negative rather than positive?")
        expect(again.locator("#pair-edited .heatmap")).to_have_count(2)
        expect(again.locator("#curves-table tbody tr")).to_have_count(4)
        expect(again.locator("#lit-count")).to_have_text("3 of 72 heads lit")
        expect(again.locator(".layer-grid")).to_be_visible()
        assert again.locator("#text").input_value() == text
        assert again.locator('.head[data-layer="3"][data-head="5"]').get_attribute("aria-selected") == "true"
        assert again.get_by_label("sub-words").is_checked()
        for method in ("attcat", "mask_lrp"):
            assert scores(again, method) == pytest.approx(scores(page, method))
        expect(again.locator("#difference .heatmap")).to_have_count(3)
        assert url_after_update(again) == link


@pytest.mark.parametrize("damage", ["#t=hello&m=nonsense.attcat&h=bzz&d=a&y={&u=x", "#%%%", "#h=.nobody&p=[]&t=a"])
def test_a_damaged_link_breaks_nothing(window: Any, served: Served, damage: str) -> None:
    with new_tab(window, served.url + damage, allowed_message="Failed to load resource") as tab:
        explain(tab.page, methods=("attcat",))


def saved(page: Any, name: str) -> Path:
    with page.expect_download() as waiting:
        page.click(f"#save-{name}")
    return waiting.value.path()


def test_downloads(page: Any, chromium: Any) -> None:
    explain(page, '<b>A</b> "charming" & $100 film_', ("attcat", "attn_lrp"))
    kept = json.loads(saved(page, "json").read_text(encoding="utf-8"))
    assert [tl.Explanation.from_dict(one).method for one in kept] == ["attcat", "attn_lrp"]
    assert saved(page, "png").read_bytes().startswith(PNG)
    picture = saved(page, "svg").read_text(encoding="utf-8")
    assert "AttnLRP" in picture
    assert "&lt;" in picture
    assert "<b>" not in picture
    latex = saved(page, "latex").read_text(encoding="utf-8")
    assert r"\$" in latex
    report = saved(page, "html")
    context = chromium.new_context(offline=True)
    tab = context.new_page()
    troubles: list[str] = []
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.set_content(report.read_text(encoding="utf-8"))
    expect(tab.locator(".heatmap")).to_have_count(2)
    tab.locator(".word", has_text="charming").first.hover()
    assert tab.locator(".is-chosen").all_text_contents() == ["charming"] * 2
    assert tab.locator(".heatmap-score").first.inner_text().strip()
    assert troubles == []
    context.close()


def test_copy_link(chromium: Any, served: Served) -> None:
    with opened(chromium, served.url, permissions=["clipboard-read", "clipboard-write"]) as tab:
        explain(tab.page, methods=("attcat",))
        link = url_after_update(tab.page)
        tab.page.click("#copy-link")
        expect(tab.page.locator("#share-words")).to_contain_text("The link is copied")
        assert tab.page.evaluate("navigator.clipboard.readText()") == link


def test_two_methods_as_a_difference(page: Any) -> None:
    explain(page, methods=("attcat", "attn_lrp"))
    page.select_option("#first-method", "attn_lrp")
    page.select_option("#second-method", "attcat")
    words = page.locator("#difference .heatmap").first.locator(".word")
    expect(page.locator("#difference .heatmap")).to_have_count(3)
    found = words.evaluate_all("all => all.map((word) => Number(word.dataset.score))")
    first, second = (tl.load().explain(SENTENCE, method=name) for name in ("attn_lrp", "attcat"))
    expected = [word.score for word in difference(first, second).words() if not word.special]
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
    underlined = words.evaluate_all(
        "all => all.map((word) => getComputedStyle(word).textDecorationLine === 'underline')"
    )
    assert underlined == [score < -0.05 for score in found]
    assert True in underlined


def test_two_texts_side_by_side(page: Any) -> None:
    explain(page, methods=("attcat", "attn_lrp"))
    page.click("#edit")
    assert page.locator("#edited").input_value() == SENTENCE
    page.fill("#edited", "A dull, often boring journey with a wooden lead.")
    page.click("#explain-edited")
    expect(page.locator("#pair-edited .heatmap")).to_have_count(2)
    expect(page.locator("#original-says")).to_contain_text("says positive")
    expect(page.locator("#edited-says")).to_contain_text("says negative")
    expect(page.locator("#edited-says")).to_contain_text("explained: positive")  # the same question of both
    assert scores(page, "attcat", "#pair-original") == scores(page, "attcat")
    assert len(scores(page, "attcat", "#pair-edited")) == 11  # with the comma and the full stop
    page.click("#edit-close")
    expect(page.locator("#pair")).to_be_hidden()


def test_cancel_frees_the_server(page: Any, served: Served, gate: Gate, left: Event, monkeypatch) -> None:
    monkeypatch.setattr("tokenlight.serve.explain.PROGRESS_INTERVAL", 0.0)  # about every pass
    gate.allow(4)
    choose(page, ("attn_lrp", "integrated_gradients", "erasure"))
    page.fill("#text", "a film that goes on and on and never quite ends " * 4)
    expect(page.locator("#says")).to_contain_text("The model says")  # with a pass of its own
    page.click("#explain")
    expect(page.locator("#waiting progress").first).to_be_visible()
    expect(page.locator("#waiting")).to_contain_text(" of ")  # it says how far it is
    gate.await_pass(5)
    with page.expect_event("requestfailed") as stopped:
        page.click("#cancel")
    assert stopped.value.url == f"{served.url}api/explain"
    expect(page.locator("#waiting progress")).to_have_count(0)
    expect(page.locator("#waiting")).to_contain_text("was not run")
    assert left.wait(GIVE_UP), "the server does not notice"
    gate.open()
    until(lambda: served.server.queue.idle, "the end of the work")
    assert gate.passes == 5  # it had more to do
    explain(page, methods=("attn_lrp",))


TASKS = {
    "question-answering": ("who wrote the book ?", "the book was written by a young author in Paris"),
    "fill-mask": ("the keys [MASK] on the [MASK]", None),
    "token-classification": ("the keys are here", None),
    "text-generation": ("the keys to the cabinet", None),
}


@pytest.mark.parametrize("task", TASKS)
def test_other_tasks(window: Any, task: str) -> None:
    text, second = TASKS[task]
    family = "gpt2" if task == "text-generation" else "bert"
    with serve(explainer_for(family, task)) as running, new_tab(window, running.url) as tab:
        page = tab.page
        assert page.locator("#second-field").is_visible() == (second is not None)
        if second is not None:
            page.fill("#second", second)
        explain(page, text, ("attcat", "attn_lrp"))
        expect(page.locator("#choices .choice").first).to_be_visible()
        before = page.locator("#explained").inner_text()
        predicted = page.locator("#says b").inner_text().strip()
        names = page.locator('.pick[data-pick="target"]').evaluate_all("all => all.map((pick) => pick.dataset.choice)")
        target, foil = [number for number, name in enumerate(names) if name.strip() != predicted][:2]
        page.locator('.pick[data-pick="target"]').nth(target).click()
        expect(page.locator("#explained")).not_to_have_text(before)
        page.locator('.pick[data-pick="foil"]').nth(foil).click()
        expect(page.locator("#explained")).to_contain_text("rather than")
        if task in ("fill-mask", "token-classification"):
            page.locator("#positions button").last.click()
            expect(page.locator("#positions button").last).to_have_attribute("aria-pressed", "true")
            expect(page.locator("#explained")).not_to_contain_text("rather than")
        if task in ("fill-mask", "text-generation"):
            page.fill("#other-target", "are" if task == "fill-mask" else " are")
            page.keyboard.press("Tab")
            expect(page.locator("#explained")).to_contain_text("Which words speak for are")
        page.locator("#top-k").fill("2")
        expect(page.locator("#removal-answer b, #removal-error:not(:empty)")).to_have_count(1)
        assert page.locator("#removal-error").inner_text() == ""
        if task == "text-generation":  # folded: nothing is known of its heads
            page.locator("#headmap-fold > summary").click()
        page.locator(".head").first.hover()
        expect(page.locator("svg.arcs")).to_be_visible()
        assert page.locator("#waiting .failed").count() == 0


def test_a_picture_of_a_text_with_control_characters_can_be_read(page: Any) -> None:
    explain(page, "a good\x01 film \x1b[1m \ufffe \U0001f600 here", ("attcat",))
    picture = ElementTree.fromstring(saved(page, "svg").read_text(encoding="utf-8"))
    assert "good" in "".join(picture.itertext())
    assert saved(page, "png").read_bytes().startswith(PNG)


def test_other_methods_explain_an_edited_text_for_the_same_target(page: Any) -> None:
    explain(page, methods=("attcat",))
    page.click("#edit")
    page.fill("#edited", "A dull, often boring journey with a wooden lead.")
    page.click("#explain-edited")
    expect(page.locator("#edited-says")).to_contain_text("explained: positive")
    choose(page, ("attn_lrp",))  # none, and then another
    expect(page.locator('#pair-edited .heatmap[data-method="attn_lrp"]')).to_have_count(1)
    expect(page.locator("#edited-says")).to_contain_text("explained: positive")


def test_the_token_that_an_edited_text_is_explained_for_is_named(window: Any) -> None:
    with serve(explainer_for("bert", "token-classification")) as running, new_tab(window, running.url) as tab:
        page = tab.page
        explain(page, "the key is here", ("attcat",))
        page.locator("#positions button", has_text="key").click()
        page.click("#edit")
        page.fill("#edited", "here the key is")
        page.click("#explain-edited")
        expect(page.locator("#original-says")).to_contain_text("at token 2, key")
        expect(page.locator("#edited-says")).to_contain_text("at token 2, the")


def test_explain_tries_again_what_has_failed(window: Any, served: Served) -> None:
    with new_tab(window, served.url, allowed_message="Failed to load resource") as tab:
        page = tab.page
        page.route("**/api/explain", lambda route: route.fulfill(status=503, json={"error": "too many wait"}))
        choose(page, ("attcat",))
        page.fill("#text", SENTENCE)
        page.click("#explain")
        expect(page.locator("#waiting .failed")).to_contain_text("too many wait")
        page.unroute("**/api/explain")
        page.click("#explain")
        expect(page.locator("#heatmaps .heatmap")).to_have_count(1)
        expect(page.locator("#waiting .failed")).to_have_count(0)


@pytest.mark.parametrize("end", ["canceled", "failed"])
def test_the_heatmap_of_another_mask_does_not_stay_where_the_new_one_never_came(
    window: Any, served: Served, end: str
) -> None:
    with new_tab(window, served.url, allowed_message="Failed to load resource") as tab:
        page = tab.page
        explain(page, methods=("mask_lrp", "attcat"))
        hold = end == "canceled"
        page.route("**/api/explain", lambda route: hold or route.fulfill(status=503, json={"error": "too many"}))
        page.locator('.head[data-layer="3"][data-head="5"]').click()
        if hold:
            page.click("#cancel")
        expect(page.locator("#waiting")).to_contain_text("was not run" if hold else "too many")
        expect(page.locator("#heatmaps .heatmap")).to_have_count(1)


def test_what_the_model_says_without_other_words_does_not_stay_beside_an_error(window: Any, served: Served) -> None:
    with new_tab(window, served.url, allowed_message="Failed to load resource") as tab:
        page = tab.page
        explain(page, methods=("attcat",))
        page.locator("#top-k").fill("1")
        expect(page.locator("#removal-answer")).to_contain_text("Without this word")
        page.route("**/api/remove", lambda route: route.fulfill(status=503, json={"error": "too many wait"}))
        page.locator("#top-k").fill("2")
        expect(page.locator("#removal-error")).to_have_text("too many wait")
        expect(page.locator("#removal-answer")).to_be_empty()
