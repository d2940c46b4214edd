"""Language models on the page: they write, and any part of an answer is explained; the numbers are the library's."""

import copy
import json
import math
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests.model.test_untouched import assert_same, state
from tests.rounding import assert_near
from tests.serving import ask, in_process, lines, small_explainer
from tests.text.test_tokenize import PLAIN
from tests.tokenizers_ import explainer_for
from tokenlight.common.progress import on_backward_pass, on_forward_pass
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.serve import explain
from tokenlight.serve.predict import answer_write
from tokenlight.serve.requests import WriteRequest
from tokenlight.serve.worker import Cancelled
from tokenlight.views.answer_page import packed

PROMPT = {"text": "The keys to the cabinet"}
METHODS = ["attn_lrp", "rollout"]
PART = (2, 5)


@pytest.fixture(autouse=True)
def _speaks_only_when_asked(monkeypatch):
    monkeypatch.setattr(explain, "PROGRESS_INTERVAL", math.inf)


@pytest.fixture(scope="module")
def client():
    """In double precision, so that two ways to the same numbers can be told from wrong ones."""
    with in_process(explainer_for("llama", "text-generation", dtype=torch.float64)) as made:
        yield made


@pytest.fixture(scope="module")
def answer(client):
    """As the library explains it."""
    explainer = client.session.explainer
    return explainer.explain_answer(PROMPT["text"], " are on the table here", progress=False)


def about(answer: Any, **more: Any) -> dict[str, Any]:
    return {**PROMPT, "answer": list(answer.ids), **more}


# --- writing ----------------------------------------------------------------------------------------------------------


def test_an_answer_is_told_token_by_token_and_leaves_the_model_as_it_was(client, answer):
    before = state(client.session.explainer.model)
    *told, last = lines(client, "write", {**PROMPT, "tokens": 8})
    assert [(one["event"], one["tokens"]) for one in told] == [("writing", i) for i in range(1, 9)]
    assert last["event"] == "wrote"
    explainer = client.session.explainer
    assert tuple(last["ids"]) == explainer.generate(PROMPT["text"], max_new_tokens=8, do_sample=False).ids
    assert last["text"].startswith(told[2]["text"])
    assert_same(before, state(client.session.explainer.model))


def test_drawn_tokens_are_the_same_for_the_same_seed(client):
    drawn = [lines(client, "write", {**PROMPT, "tokens": 6, "temperature": 3, "seed": seed})[-1] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_writing_stops_with_the_token_after_which_nobody_waits(client):
    said: list[Any] = []

    def stop_at_three() -> None:
        if len(said) == 3:
            raise Cancelled

    with pytest.raises(Cancelled), on_forward_pass(stop_at_three):
        answer_write(client.session, WriteRequest(PROMPT["text"], tokens=8), said.append)
    assert len(said) == 3


def test_there_must_be_room_for_an_answer(client):
    most = client.session.explainer.task.max_length
    asked = {"text": "key " * most, "tokens": 8}
    assert f"the model reads {most}: an answer does not fit" in ask(client, "write", asked, 422)["error"]
    text = "The"
    while (left := most - len(client.session.explainer.encode([text])[0])) > 3:
        text += " a"
    assert len(lines(client, "write", {"text": text, "tokens": 256})[-1]["ids"]) == left


# --- explaining -------------------------------------------------------------------------------------------------------


def test_the_whole_answer_has_the_librarys_numbers_and_is_computed_once(client, answer):
    asked = about(answer, methods=METHODS)
    first = {one["method"]: one for one in lines(client, "answer", asked)}
    assert list(first) == METHODS
    assert first["attn_lrp"]["explanation"]["matrix"] == packed(answer.matrix)
    again = lines(client, "answer", {**asked, "answer": answer.answer})  # as text: the same tokens
    assert [one["reused"] for one in again] == [True, True]


def test_every_token_is_a_chance_to_stop(client, answer):
    counted: list[int] = []
    client.session.cache.clear()
    with on_backward_pass(lambda: counted.append(1)):
        client.session.explainer.explain_answer(PROMPT["text"], answer.ids, progress=False)
    assert len(counted) == len(answer.ids)


@pytest.mark.parametrize("part", [PART, (3, 4), None])
def test_a_part_is_explained_alone_as_in_the_whole(client, answer, part):
    """One backward pass instead of one for each token."""
    (found,) = lines(client, "explain", about(answer, part=part, methods=["attn_lrp"]))
    expected = answer.of(tokens=slice(*(part or (None, None))))
    shown = found["explanation"]
    assert_near(torch.tensor(shown["scores"], dtype=torch.float64), expected.scores)
    assert tuple(shown["given"]) == expected.given
    assert_near(shown["score"], expected.score, precision=torch.float64)
    assert_near(shown["extras"]["answer_share"], expected.extras["answer_share"], size=expected.scores)


def test_another_token_in_the_place_of_one(client, answer):
    """Target minus foil, each given what was written before them."""
    written, other = answer.ids[3], answer.alternatives[3][1].index

    def scores(**asked: Any) -> torch.Tensor:
        (found,) = lines(client, "explain", about(answer, part=[3, 4], methods=["attn_lrp"], **asked))
        assert tuple(found["explanation"]["given"]) == answer.ids[:3]
        return torch.tensor(found["explanation"]["scores"], dtype=torch.float64)

    assert_near(scores(), answer.of(tokens=3).scores)
    both = scores(target=other, foil=written)
    assert_near(both, scores(target=other) - scores(), size=answer.matrix)
    assert both.abs().max() > 1e-3


def test_curves_and_removal_measure_the_part(client, answer):
    expected = math.exp(float(answer.log_probabilities[slice(*PART)].mean()))  # of tokens, the geometric mean
    curves = lines(client, "curves", about(answer, part=PART, methods=["attn_lrp"]))
    for curve in curves:
        assert_near(curve["probabilities"][0], expected, precision=torch.float64)
    removed = ask(client, "remove", about(answer, part=PART, gone=[3]))
    assert_near(removed["before"], expected, precision=torch.float64)
    assert removed["target_probability"] != removed["before"]
    whole = ask(client, "predict", about(answer, part=PART))
    assert whole["prediction"] == answer.alternatives[PART[0]][0].token
    assert ask(client, "remove", about(answer, part=PART, gone=[]))["prediction"] == whole["prediction"]


@pytest.mark.parametrize(
    ("route", "asked", "says"),
    [
        ("explain", {"answer": " are", "part": [0, 9]}, "there is no part from 0 up to 9"),
        ("explain", {"part": [0, 1]}, "give the answer, too"),
        ("explain", {"answer": []}, "1 to 256 entries"),
        ("explain", {"answer": "key " * 300}, "tokens"),
        ("explain", {"answer": [10**6]}, "outside the vocabulary"),
        ("answer", {"answer": None}, "missing answer"),
        ("answer", {"answer": " are", "second": "a book"}, "reads one text"),
        ("write", {"tokens": 257}, "1 to 256"),
        ("write", {"temperature": -1}, "from 0"),
        ("write", {"temperature": 1e-320}, "from 0.01 to 10, found 1e-320"),
        ("write", {"temperature": 0.001}, "from 0.01 to 10"),
        ("write", {"messages": [{"role": "user", "content": "a"}]}, "text and messages"),
        ("write", {"text": " "}, "empty"),
    ],
)
def test_what_cannot_be_asked_is_said(client, route, asked, says):
    methods = {} if route == "write" else {"methods": ["attn_lrp"]}
    if route == "answer":
        lines(client, route, {**PROMPT, **methods, "answer": " are"})  # what is known must not answer for it
    assert says in ask(client, route, {**PROMPT, **methods, **asked}, 422)["error"]


def test_only_language_models_write():
    with in_process(small_explainer()) as client:
        assert "only language models" in ask(client, "write", {"text": "a good movie"}, 422)["error"]
        asked = {"text": "a good movie", "methods": ["lrp"], "answer": " yes"}
        for route in ("answer", "explain"):
            assert "language models" in ask(client, route, asked, 422)["error"]


def test_files(client, answer):
    """HTML and JSON hold the whole answer; LaTeX, and everything about another token, the explained part."""

    def saved(**asked: Any) -> str:
        response = client.post("/api/download", json=about(answer, methods=["attn_lrp"], **asked))
        assert response.status_code == 200, response.text
        return response.text

    (read,) = map(ExplainedAnswer.from_dict, json.loads(saved(format="json", part=PART)))
    assert_near(read.matrix, answer.matrix)
    assert "drawAnswer" in saved(format="html")
    assert r"\tokenlightword" in saved(format="latex", part=PART)
    other = answer.alternatives[3][1].index
    (contrast,) = json.loads(saved(format="json", part=[3, 4], foil=other))
    assert contrast["foil_indices"] == [other]


# --- conversations ----------------------------------------------------------------------------------------------------

PASSAGES = ["the key is here", "it is a good movie", "the key is here"]  # one of them twice
TALK = [
    {"role": "user", "content": "The keys"},
    {"role": "assistant", "content": "are here"},
    {"role": "user", "content": "\n\n".join([*PASSAGES, "who?"])},
]


def test_a_conversation_with_passages(client):
    assert client.get("/api/model").json()["chats"] is False
    asked = {"messages": TALK, "documents": PASSAGES, "answer": " a book", "methods": ["attn_lrp"]}
    assert "no chat template" in ask(client, "explain", asked, 422)["error"]
    tokenizer = copy.deepcopy(client.session.explainer.tokenizer)
    tokenizer.chat_template = PLAIN
    explainer = tl.Explainer(client.session.explainer.model, tokenizer)
    with in_process(explainer) as talking:
        assert talking.get("/api/model").json()["chats"] is True
        (found,) = lines(talking, "answer", asked)
        whole = explainer.explain_answer(TALK, " a book", progress=False)
        assert found["explanation"]["matrix"] == packed(whole.matrix)
        assert [block["role"] for block in found["explanation"]["blocks"]][:3] == [one["role"] for one in TALK]
        (told,) = lines(talking, "explain", asked)
        spans = [tuple(source["span"]) for source in told["explanation"]["documents"]]
        assert [TALK[2]["content"][start:end] for start, end in spans] == PASSAGES
        assert [source["segment"] for source in told["explanation"]["documents"]] == [2, 2, 2]
        assert "passage 1 is not in the prompt" in ask(talking, "explain", {**asked, "documents": ["no"]}, 422)["error"]
        again = [
            *TALK[:2],
            {"role": "user", "content": PASSAGES[0]},
            *TALK[1:],
        ]  # passages that stand in an earlier turn
        (told,) = lines(talking, "explain", {**asked, "messages": again})
        assert [source["segment"] for source in told["explanation"]["documents"]] == [4, 4, 4]
        written = lines(talking, "write", {"messages": TALK, "tokens": 3})[-1]
        assert tuple(written["ids"]) == explainer.generate(TALK, max_new_tokens=3, do_sample=False).ids
