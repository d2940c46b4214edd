"""An answer as a standalone file: its data is the matrix and the text, nothing of it is code, and choosing works."""

import base64
import dataclasses
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.browser import chromium as chromium
from tests.browser import colors, new_window
from tests.tokenizers_ import explainer_for
from tests.views.test_interactive import Elements
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.views.answer_page import answer_frame, answer_page, drawable_answer, joined_scripts
from tokenlight.views.drawing import shade

pytestmark = pytest.mark.xdist_group("browser")
HOSTILE = "</script><script>alert(1)</script> <!-- <img src=x onerror=alert(1)> &amp; ' \" \u2028 ok"
PROMPT = "The keys 😀 to the cabinet. Who wrote the book?"
ANSWER = " The author 👍🏽. It is שלום here."


@pytest.fixture(scope="module")
def answer() -> ExplainedAnswer:
    return explainer_for("gpt2", "text-generation").explain_answer(PROMPT, ANSWER, "attn_lrp", progress=False)


def test_scripts_that_are_joined_define_no_name_twice():
    """One module may not: nothing of it would run."""
    names = re.findall(r"^(?:export )?(?:function|const|let|class) (\w+)", joined_scripts(), re.MULTILINE)
    assert len(names) > 40
    assert sorted(names) == sorted(set(names))


def drawn_text(block: dict[str, Any]) -> str:
    return "".join(piece["text"] for piece in block["pieces"])


def test_every_token_and_every_character_is_drawn_once(answer):
    plain = drawable_answer(answer)
    assert [drawn_text(block) for block in plain["blocks"]] == [PROMPT, ANSWER]
    tokens = [t for block in plain["blocks"] for piece in block["head"] + block["pieces"] for t in piece["tokens"]]
    assert sorted(tokens) == list(range(len(answer.tokens)))
    assert all(piece["text"] for block in plain["blocks"] for piece in block["pieces"])
    words = {}
    for piece in plain["blocks"][1]["pieces"]:
        words[piece["word"]] = words.get(piece["word"], "") + piece["text"]
    assert {"👍🏽", "שלום"} <= set(words.values())  # whole, whatever bytes their tokens are
    assert sorted(t for group in plain["groups"] for t in group["tokens"]) == list(range(answer.prompt_length))


def test_the_packed_matrix_is_equal_after_unpacking(answer):
    data = base64.b64decode(drawable_answer(answer)["matrix"])
    values = struct.unpack(f"<{len(data) // 4}f", data)
    assert torch.equal(torch.tensor(values).reshape(answer.matrix.shape), answer.matrix)


def test_hostile_text_is_only_data():
    explainer = explainer_for("gpt2", "text-generation")
    answer = explainer.explain_answer(HOSTILE, HOSTILE, "gradient_x_input", progress=False)
    answer = dataclasses.replace(answer, notes=(HOSTILE,), model=HOSTILE)
    elements = Elements(answer_page(answer, HOSTILE))
    (data,) = elements.all("script", type="application/json")
    assert "<" not in data
    assert [drawn_text(block) for block in json.loads(data)["blocks"]] == [HOSTILE, HOSTILE]
    assert len(elements.all("script")) == 2
    assert not elements.all("img")
    frame = Elements(answer_frame(answer))
    assert [tag for tag, _ in frame.found] == ["div", "iframe"]
    assert frame.found[1][1]["srcdoc"] == answer_page(answer)
    assert frame.found[1][1]["sandbox"] == "allow-scripts"


def test_weak_sentences_of_a_long_prompt_are_folded(answer):
    count, words = 60, 10
    text = " ".join(" ".join(f"W{i}x{j}" for j in range(words - 1)) + " end." for i in range(count))
    spans, place = [], 0
    for word in text.split():
        place = text.index(word, place)
        spans.append((place, place + len(word)))
    own = len(answer)
    matrix = torch.zeros(own, len(spans) + own)
    matrix[:, 305] = -3.0  # in sentence 30
    matrix[0, 455] = 2.0  # in sentence 45, for one word alone
    long = dataclasses.replace(
        answer,
        prompt=text,
        tokens=[*text.split(), *answer.tokens[-own:]],
        special=torch.zeros(len(spans) + own, dtype=torch.bool),
        segments=[*[0] * len(spans), *[1] * own],
        spans=[*spans, *answer.spans[-own:]],
        matrix=matrix,
    )
    plain = drawable_answer(long)
    block = plain["blocks"][0]
    folded = {t for first, end, _ in block["folds"] for piece in block["pieces"][first:end] for t in piece["tokens"]}
    assert drawn_text(block) == text
    assert folded.isdisjoint({0, 305, 455, len(spans) - 1})
    assert len(folded) > 400
    assert plain["blocks"][1]["folds"] == []


@pytest.fixture(scope="module")
def drawn(chromium: Any, answer: ExplainedAnswer, tmp_path_factory: Any) -> Iterator[Any]:
    """The file in a browser, without a network; anything on the console fails."""
    path = tmp_path_factory.mktemp("page") / "answer.html"
    path.write_text(answer.to_html(), encoding="utf-8")
    context = new_window(chromium, offline=True)
    page, troubles = context.new_page(), []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(".turn-answer .word")
    yield page
    assert troubles == []
    context.close()


def painted(page: Any, side: str) -> list[tuple[int, ...]]:
    return colors(page.locator(f".turn-{side} .turn-text .word"))


def expected(answer: ExplainedAnswer, scores: torch.Tensor, side: int) -> list[tuple[int, ...]]:
    """The shade of each piece of a block: its tokens' scores over the prompt's largest, where the prompt has any."""
    pieces = [[piece for piece in block["pieces"] if piece["tokens"]] for block in drawable_answer(answer)["blocks"]]
    sums = [[float(scores[piece["tokens"]].sum()) for piece in some] for some in pieces]
    largest = max(map(abs, sums[0])) or max(map(abs, sums[1]))
    return [shade(value / largest) for value in sums[side]]


def close(found: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> bool:
    """The browser has 200 shades of each color."""
    return len(found) == len(expected) and all(
        abs(one - other) <= 1 for pair in zip(found, expected, strict=True) for one, other in zip(*pair, strict=True)
    )


def test_shades_of_chosen_tokens_equal_the_matrix(drawn, answer):
    drawn.locator(".answer-unit input").check()  # a word for each token, but for the emoji's bytes
    whole = answer.matrix.sum(0)
    assert close(painted(drawn, "prompt"), expected(answer, whole, 0))
    assert close(painted(drawn, "answer"), expected(answer, whole, 1))
    pieces = [piece["tokens"] for piece in drawable_answer(answer)["blocks"][1]["pieces"] if piece["tokens"]]
    rows = [token - answer.prompt_length for token in pieces[2]]
    words = drawn.locator(".turn-answer .turn-text .word")
    words.nth(2).click()
    assert close(painted(drawn, "prompt"), expected(answer, answer.matrix[rows].sum(0), 0))
    words.nth(4).click(modifiers=["Shift"])
    rows = [token - answer.prompt_length for some in pieces[2:5] for token in some]
    assert close(painted(drawn, "prompt"), expected(answer, answer.matrix[rows].sum(0), 0))
    assert close(painted(drawn, "answer"), expected(answer, answer.matrix[rows].sum(0), 1))
    drawn.locator(".answer-sentence").nth(1).click()
    rows = answer.sentences()[1]
    assert close(painted(drawn, "prompt"), expected(answer, answer.matrix[rows].sum(0), 0))
    drawn.locator(".turn-prompt .turn-text .word").nth(1).click()
    column = torch.zeros(len(answer.tokens))
    column[answer.prompt_length :] = answer.matrix[:, 1]
    assert close(painted(drawn, "answer"), expected(answer, column, 1))
    drawn.keyboard.press("Escape")
    assert close(painted(drawn, "prompt"), expected(answer, whole, 0))


def test_the_page_can_be_used_with_the_keyboard_alone(drawn, answer):
    drawn.keyboard.press("Escape")
    drawn.locator(".turn-answer [data-unit]").first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        drawn.keyboard.press(key)
    assert drawn.locator(".turn-answer .is-chosen").count() == 1
    assert "probability" in drawn.locator(".panel-line").first.inner_text()
    drawn.keyboard.press("s")
    assert drawn.locator(".turn-answer .is-chosen").count() > 1
    drawn.keyboard.press("Escape")
    assert drawn.locator(".is-chosen").count() == 0
