"""The page in a real browser: texts, predictions, methods, heatmaps and the head map."""

import re
from typing import Any

import pytest

from tests.browser import SENTENCE, colors, expect, explain, scores
from tests.browser import chromium as chromium
from tests.browser import page as page
from tests.browser import served as served
from tests.browser import window as window

pytestmark = pytest.mark.xdist_group("browser")
THREE = ("rollout", "attcat", "attn_lrp")
WITH_MASK = ("attcat", "attn_lrp", "mask_lrp")
PAPER = (255, 255, 255)


def shown(page: Any) -> list[str]:
    return page.locator("#heatmaps .heatmap").evaluate_all("all => all.map((one) => one.dataset.method)")


def test_as_many_heatmaps_as_methods_over_the_original_text(page: Any) -> None:
    page.click("#methods-none")
    closed = page.locator("#methods details:not([open]) > summary")
    while closed.count():  # open every group of methods
        closed.first.click()
    explain(page, methods=THREE)
    assert sorted(shown(page)) == sorted(THREE)
    for text in page.locator("#heatmaps .heatmap-text").all_text_contents():
        assert text.strip() == f"[CLS] {SENTENCE} [SEP]"
    assert page.locator("#heatmaps .special").all_text_contents() == [" [CLS] ", " [SEP] "] * 3
    took = page.locator("#heatmaps .remark").all_text_contents()  # they share their passes
    assert len(set(took)) == 1
    assert took[0].endswith(" for 3 methods")
    page.check('#methods input[value="lrp"]')  # a method more is explained at once
    expect(page.locator("#heatmaps .heatmap")).to_have_count(4)
    page.uncheck('#methods input[value="attcat"]')
    expect(page.locator("#heatmaps .heatmap")).to_have_count(3)


def test_the_strongest_word_has_the_strongest_shade_and_the_sign_is_the_color(page: Any) -> None:
    explain(page, methods=THREE)
    for method in THREE:
        words = page.locator(f'#heatmaps .heatmap[data-method="{method}"] .word')
        distance = [sum(abs(a - b) for a, b in zip(c, PAPER, strict=True)) for c in colors(words)]
        found = scores(page, method)
        strongest = max(range(len(found)), key=lambda i: abs(found[i]))
        assert distance[strongest] == max(distance) > 200
        for score, (red, _, blue) in zip(found, colors(words), strict=True):
            if abs(score) > 0.1 * max(map(abs, found)):
                assert (blue > red) == (score > 0)


def test_a_word_has_its_score_and_rank_in_every_method(page: Any) -> None:
    explain(page, methods=THREE)
    page.locator('#heatmaps .heatmap[data-method="attcat"] .word', has_text="luminous").hover()
    expect(page.locator("#heatmaps .readout")).to_have_text("“luminous”")
    assert page.locator("#heatmaps .is-chosen").all_text_contents() == ["luminous"] * 3
    for method in THREE:
        found = scores(page, method)
        place = page.locator(f'#heatmaps .heatmap[data-method="{method}"] .word').all_text_contents().index("luminous")
        rank = 1 + sum(other > found[place] for other in found)
        line = page.locator(f'#heatmaps .heatmap[data-method="{method}"] .heatmap-score').inner_text()
        assert f"rank {rank} of {len(found)}" in line
        assert float(line.split("\n")[0].replace("−", "-")) == pytest.approx(found[place], rel=0.06, abs=1e-9)


def test_sub_words_on_demand(page: Any) -> None:
    explain(page, "An unrepeatable, overwroughtly melodramatized picture.", ("attn_lrp",))
    before = page.locator("#heatmaps .word").count()
    total = sum(scores(page, "attn_lrp"))
    page.get_by_label("sub-words").check()
    expect(page.locator("#heatmaps .word")).not_to_have_count(before)
    assert page.locator("#heatmaps .word").count() > before
    assert sum(scores(page, "attn_lrp")) == pytest.approx(total, rel=1e-4, abs=1e-5)
    text = page.locator("#heatmaps .heatmap-text").text_content()
    assert text.strip() == "[CLS] An unrepeatable, overwroughtly melodramatized picture. [SEP]"


def test_the_same_answer_again_leaves_the_buttons_alone(page: Any) -> None:
    """Otherwise one that is replaced between pressing and letting go loses the click."""
    explain(page, methods=("attcat",))
    page.locator("#choices .pick").first.evaluate("button => { window.kept = button }")
    there_and_back = """field => [field.value + "x", field.value].forEach((text) => {
        field.value = text;
        field.dispatchEvent(new Event("input"));
    })"""
    with page.expect_response("**/api/predict"):
        page.locator("#text").evaluate(there_and_back)
    expect(page.locator("#waiting progress")).to_have_count(0)
    page.evaluate("new Promise((done) => setTimeout(done, 0))")  # behind what the answer has set off
    assert page.evaluate("document.contains(window.kept)")


def test_target_and_foil_by_clicking(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    expect(page.locator("#says")).to_contain_text("positive")
    before = scores(page, "attn_lrp")
    page.get_by_label("explain negative").click()
    expect(page.locator("#explained")).to_have_text("Which words speak for negative?")
    assert page.get_by_label("explain negative").get_attribute("aria-pressed") == "true"
    assert scores(page, "attn_lrp") != before
    page.get_by_label("rather than positive").click()
    expect(page.locator("#explained")).to_have_text("Which words speak for negative rather than positive?")
    page.get_by_label("rather than negative").click()  # a contrast with itself: the target goes back to the prediction
    expect(page.locator("#explained")).to_have_text("Which words speak for positive rather than negative?")


def test_examples_run_at_once(page: Any) -> None:
    page.locator(".example").first.click()
    count = page.locator("#methods input:checked").count()
    assert count > 1
    expect(page.locator("#heatmaps .heatmap")).to_have_count(count)
    expect(page.locator("#empty")).to_be_hidden()


def test_a_head_changes_mask_lrp_and_leaves_the_others(page: Any) -> None:
    explain(page, methods=WITH_MASK)
    before = {method: scores(page, method) for method in WITH_MASK}
    asked: list[Any] = []
    page.on("request", lambda request: "/api/explain" in request.url and asked.append(request.post_data_json))
    page.locator("#heatmaps").evaluate("box => box.querySelectorAll('.heatmap').forEach((row) => (row.marked = true))")
    lit = page.locator('.head[aria-selected="true"]')
    assert lit.count() == 2
    lit.first.click()
    expect(page.locator("#lit-count")).to_have_text("1 of 72 heads lit")
    expect(page.locator('.heatmap[data-method="mask_lrp"] .note')).to_contain_text("1 of 72 heads")
    assert scores(page, "mask_lrp") != before["mask_lrp"]
    for method in ("attcat", "attn_lrp"):
        assert scores(page, method) == before[method]
    assert [one["methods"] for one in asked] == [["mask_lrp"]]
    kept = "all => all.filter((row) => row.marked).map((row) => row.dataset.method)"
    assert page.locator("#heatmaps .heatmap").evaluate_all(kept) == ["attcat", "attn_lrp"]  # not even drawn again


def test_the_map_may_act_on_other_methods(page: Any) -> None:
    explain(page, methods=WITH_MASK)
    before = {method: scores(page, method) for method in WITH_MASK}
    page.get_by_label("let the map act on the other methods").check()
    expect(page.locator('.heatmap[data-method="attn_lrp"] .note').first).to_contain_text("2 of 72 heads")
    assert scores(page, "attn_lrp") != before["attn_lrp"]
    assert scores(page, "attcat") == before["attcat"]
    page.get_by_role("button", name="all heads").click()
    expect(page.locator("#lit-count")).to_have_text("72 of 72 heads lit")
    expect(page.locator('.heatmap[data-method="attn_lrp"] .note').first).to_contain_text("72 of 72 heads")
    assert scores(page, "attn_lrp") == pytest.approx(before["attn_lrp"], rel=1e-3, abs=1e-5)


def test_presets(page: Any) -> None:
    explain(page, methods=("mask_lrp",))
    presets = page.locator("#presets button")
    names = presets.evaluate_all("all => all.map((one) => one.dataset.preset)")
    assert {"paper", "syntactic", "positional", "all", "none", "random"} <= set(names)
    page.locator('[data-preset="random"]').click()
    expect(page.locator("#lit-count")).to_have_text("2 of 72 heads lit")
    page.locator('[data-preset="none"]').click()
    expect(page.locator("#lit-count")).to_have_text("0 of 72 heads lit")
    expect(page.locator('.heatmap[data-method="mask_lrp"] .note').first).to_be_visible()
    page.locator('[data-preset="paper"]').click()
    expect(page.locator('[data-preset="paper"]')).to_have_attribute("aria-pressed", "true")


def test_a_head_shows_its_attention(page: Any) -> None:
    explain(page, methods=("attn_lrp",))
    page.locator('.head[data-layer="0"][data-head="2"]').hover()
    expect(page.locator("svg.arcs")).to_have_attribute("aria-label", "Attention of layer 0, head 2")
    tokens = page.locator("svg.arcs .arc-token").all_text_contents()
    assert (tokens[0], tokens[1], tokens[-1]) == ("[CLS]", "a", "[SEP]")
    assert page.locator("svg.arcs .arc").count() >= len(tokens) - 3  # it looks at the token before
    opacity = page.locator("svg.arcs .arc").evaluate_all("all => all.map((arc) => Number(arc.getAttribute('opacity')))")
    assert all(0 < one <= 1 for one in opacity)
    expect(page.locator("#head-about")).to_contain_text("Layer 0, head 2: ")


def test_through_the_layers(page: Any) -> None:
    explain(page, methods=("attcat",))
    page.select_option("#layers-method", "attcat")
    tokens = page.locator(".layer-token")
    expect(page.locator(".layer-cell")).to_have_count(6 * tokens.count())
    label = page.locator(".layer-cell").first.get_attribute("aria-label")
    assert re.fullmatch(r"layer 5, \[CLS\]: [+−]?[\d.e-]+", label)


def test_curves_and_removal(page: Any) -> None:
    explain(page, methods=("attn_lrp", "rollout"))
    page.click("#measure")
    rows = page.locator("#curves-table tbody tr")
    expect(rows).to_have_count(4)
    names = rows.evaluate_all("all => all.map((one) => one.dataset.curve)")
    assert sorted(names) == ["attn_lrp", "erasure", "random", "rollout"]
    assert page.locator("polyline.curve").count() == 4
    aopc = [float(text.replace("−", "-")) for text in page.locator("#curves-table td:nth-child(2)").all_text_contents()]
    assert aopc == sorted(aopc, reverse=True)
    page.locator("svg.chart").hover()
    expect(page.locator("#curves-table thead th").last).to_contain_text("% removed")
    page.select_option("#removal-method", "attn_lrp")
    page.locator("#top-k").fill("2")
    expect(page.locator("#removal-answer b")).to_be_visible()
    found = scores(page, "attn_lrp")
    words = page.locator('#heatmaps .heatmap[data-method="attn_lrp"] .word').all_text_contents()
    best = sorted(range(len(found)), key=lambda i: -found[i])[:2]
    assert page.locator("#struck del").all_text_contents() == [words[i] for i in sorted(best)]
    page.locator("#top-k").fill("0")
    expect(page.locator("#struck del")).to_have_count(0)
    expect(page.locator("#removal-answer")).to_be_empty()


def test_how_sure_a_mean_over_contexts_is(page):
    """The standard error stands beside the score; words whose sign it leaves open have a dotted line."""
    explain(page, methods=("context_lrp", "attcat"))
    row = page.locator('#heatmaps [data-method="context_lrp"]')
    dotted = row.locator(".word.unsure")
    sure = row.locator(".word:not(.unsure)")
    assert dotted.count() + sure.count() == row.locator(".word").count()
    for words, unsure in ((dotted, True), (sure, False)):
        words.first.hover()
        said = row.locator(".heatmap-score b").inner_text()
        score, error = (float(part.replace("−", "-").replace("+", "")) for part in said.split(" ± "))
        assert (abs(score) < 2 * error) == unsure
    expect(row.locator(".note").last).to_contain_text("Dotted words")
    assert page.locator('#heatmaps [data-method="attcat"] .unsure').count() == 0
    expect(page.locator('#heatmaps [data-method="attcat"] .heatmap-score b')).not_to_contain_text("±")
