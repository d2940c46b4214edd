"""Every route, on tiny models of every task; the numbers are those of the library."""

import copy
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.model.test_untouched import assert_same, state
from tests.serving import QUESTIONS, TEXT, ask, in_process, lines, small_explainer
from tests.tokenizers_ import explainer_for
from tests.waiting import Clock
from tokenlight.common.samples import EMBEDDED
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import METHODS
from tokenlight.metrics.curves import aopc, log_odds
from tokenlight.metrics.evaluate import draw_curves
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import record
from tokenlight.serve import explain, session, worker
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "&lt;b&gt; &amp; ' \" ` ${x} {{y}} %s \\u003c \\",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd",
    "zero\u200bwidth\u200d \ufeff",
    "emoji \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "line\nbreaks\r\nand\ttabs \u2028 \u2029",
    "nul \x00 bell \x07 escape \x1b[31m",
    "'; DROP TABLE texts; --",
]
MASK = HeadMask(
    syntactic=torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.float64),
    positional=torch.tensor([[0.0, 0, 1, 0], [0, 1, 0, 1]], dtype=torch.float64),
)


@pytest.fixture(autouse=True)
def _speaks_only_when_asked(monkeypatch):
    """On a busy machine there would be progress to tell in any test."""
    monkeypatch.setattr(explain, "PROGRESS_INTERVAL", math.inf)


@pytest.fixture(scope="module")
def clients():
    """A client for each kind of question, made once."""
    made: dict[str, Any] = {}
    contexts = []
    for kind in QUESTIONS:
        context = in_process(small_explainer(kind))
        contexts.append(context)
        made[kind] = context.__enter__()
    yield made
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def client(clients):
    return clients["text-classification"]


@pytest.fixture(scope="module")
def masked():
    """A model with a head mask of its own."""
    with in_process(small_explainer(), MASK) as made:
        yield made


def text_of(question: dict[str, Any]) -> Any:
    return (question["text"], question["second"]) if "second" in question else question["text"]


def explained(client: Any, question: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Results by method; no line tells anything else."""
    events = lines(client, "explain", question)
    assert {event["event"] for event in events} == {"result"}
    return {event["method"]: event for event in events}


# --- the model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", QUESTIONS)
def test_the_model_is_described(clients, kind):
    model = clients[kind].get("/api/model").json()
    task = "text-classification" if kind == "pair" else kind
    assert (model["task"], model["layers"], model["heads"]) == (task, 2, 4)
    assert [method["name"] for method in model["methods"]] == list(METHODS)
    assert (model["labels"] is None) == ("classification" not in task)
    assert model["form"]["second_required"] == (task == "question-answering")
    assert model["limits"] == {"characters": 30_000, "answer": 256}
    assert model["writes"] == (task == "text-generation")
    assert model["versions"]["tokenlight"]
    usable = {m["name"] for m in model["methods"] if m["available"]}
    assert set(model["default_methods"]) <= usable
    assert model["default_methods"]
    assert all((m["reason"] is None) == (m["available"] and not m["needs_heads"]) for m in model["methods"])
    assert all(m["group"] != "Others" and m["title"] and m["paper"] and m["summary"] for m in model["methods"])
    assert [one["name"] for one in model["masks"]] == ["all", "none"]
    assert model["map"] is None


@pytest.mark.parametrize("kind", QUESTIONS)
def test_examples_can_be_asked(clients, kind):
    for example in clients[kind].get("/api/model").json()["form"]["examples"]:
        passages = example.pop("passages", [])
        assert ask(clients[kind], "predict", {**example, "text": " ".join([*passages, example["text"]])})["tokens"]


def test_a_mask_gives_presets_and_a_map(masked):
    model = masked.get("/api/model").json()
    lit = {one["name"]: one["lit"] for one in model["masks"]}
    assert list(lit) == ["paper", "syntactic", "positional", "all", "none"]
    assert lit["paper"] == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert lit["syntactic"] == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert lit["positional"] == [[0, 0, 1, 0], [0, 1, 0, 1]]
    assert lit["all"] == [[1] * 4] * 2
    assert lit["none"] == [[0] * 4] * 2
    kinds = [[head["kind"] for head in layer] for layer in model["map"]]
    assert kinds == [["syntactic", "dark", "positional", "dark"], ["dark", "both", "dark", "positional"]]
    assert {"kind", "label", "relation", "accuracy", "offset", "share"} <= set(model["map"][0][0])
    assert "mask_lrp" in model["default_methods"]
    takes = {method["name"] for method in model["methods"] if method["heads"]}
    assert takes == {name for name, method in METHODS.items() if "heads" in method.options}


def test_a_calibrated_mask_from_a_file_is_the_default_of_methods_that_want_one():
    calibrated = replace(MASK, calibrated=MASK.lit * 0.5, made={"method": "attn_lrp", "texts": 3})
    with in_process(small_explainer(), calibrated) as client:
        model = client.get("/api/model").json()
        assert model["masks"][0]["lit"] == [[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]]
        assert not any(method["needs_heads"] for method in model["methods"])
        (event,) = explained(client, {"text": TEXT, "methods": ["calibrated_lrp"]}).values()
        expected = client.session.explainer.explain(TEXT, "attn_lrp", heads=calibrated)
        assert event["explanation"]["scores"] == pytest.approx(expected.scores.tolist())
        lit = model["masks"][0]["lit"]
        (same,) = explained(client, {"text": TEXT, "methods": ["calibrated_lrp"], "heads": lit}).values()
        assert same["explanation"] == event["explanation"]


def test_the_embedded_model_has_its_own_mask():
    with in_process(tl.load()) as client:
        model = client.get("/api/model").json()
    assert model["name"] == EMBEDDED
    assert [one["name"] for one in model["masks"]][:3] == ["paper", "syntactic", "positional"]
    assert any(head["relation"] for layer in model["map"] for head in layer)
    assert model["form"]["second"] is None


# --- prediction -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_prediction_is_the_librarys(clients, kind):
    client, question = clients[kind], QUESTIONS[kind]
    said = ask(client, "predict", question)
    target = (question["position"], None) if "position" in question else None
    expected = client.session.explainer.explain(text_of(question), "random", target=target)
    assert said["tokens"] == expected.tokens
    assert said["prediction"] == expected.prediction
    assert said["probability"] == pytest.approx(expected.probability)
    assert said["position"] == expected.position
    assert said["truncated"] == 0
    assert [word["text"] for word in said["words"]] == [word.text for word in expected.words()]
    assert [word["tokens"] for word in said["words"]] == [list(word.tokens) for word in expected.words()]
    chances = [choice["probability"] for choice in said["choices"]]
    best = said["choices"][chances.index(max(chances))]
    assert best["name"] == said["prediction"]
    if kind in ("fill-mask", "text-generation", "question-answering"):
        assert len(chances) == 10
        assert chances == sorted(chances, reverse=True)
    else:
        assert sum(chances) == pytest.approx(1)


def test_answers_are_spans_of_the_context(clients):
    question = QUESTIONS["question-answering"]
    said = ask(clients["question-answering"], "predict", question)
    for choice in said["choices"]:
        assert choice["name"] in question["second"]
        again = ask(clients["question-answering"], "predict", {**question, "target_span": choice["span"]})
        assert again["prediction"] == said["prediction"]


def test_a_token_that_is_asked_for_is_among_the_choices(clients):
    client, question = clients["text-generation"], QUESTIONS["text-generation"]
    known = {choice["index"] for choice in ask(client, "predict", question)["choices"]}
    rare = next(i for i in range(300) if i not in known)
    assert rare in [c["index"] for c in ask(client, "predict", {**question, "foil": rare})["choices"]]


def test_regression_and_several_labels():
    for settings in ({"num_labels": 1, "problem_type": "regression"}, {"problem_type": "multi_label_classification"}):
        with in_process(explainer_for("bert", **settings)) as client:
            said = ask(client, "predict", {"text": TEXT})
            (first, *_) = said["choices"]
            if "num_labels" in settings:
                assert said["probability"] is None
                assert f"{first['value']:.4g}" == said["prediction"]
                assert ask(client, "curves", {"text": TEXT, "methods": ["lrp"]}, 422)["error"]
                assert ask(client, "remove", {"text": TEXT, "gone": [1]}, 422)["error"]
            else:
                assert sum(c["probability"] for c in said["choices"]) != pytest.approx(1)


def test_a_long_text_says_what_was_cut_off(client):
    assert ask(client, "predict", {"text": "good movie " * 300})["truncated"] == 302


# --- explanations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", QUESTIONS)
def test_explanations_are_the_librarys(clients, kind):
    client, question = clients[kind], QUESTIONS[kind]
    methods = ["attn_lrp", "attcat", "rollout", "erasure", "random"]
    found = explained(client, {**question, "methods": methods})
    assert sorted(found) == sorted(methods)
    for name, event in found.items():
        target = (question["position"], None) if "position" in question else None
        expected = client.session.explainer.explain(text_of(question), name, target=target)
        plain = expected.to_dict()
        scores = torch.tensor(event["explanation"]["scores"])
        assert torch.allclose(scores, expected.scores.to(scores), rtol=1e-4, atol=1e-6)
        assert {key: event["explanation"][key] for key in ("tokens", "target", "spans", "method", "text")} == {
            key: plain[key] for key in ("tokens", "target", "spans", "method", "text")
        }
        assert event["seconds"] >= 0


@pytest.mark.parametrize(
    ("kind", "target_fields"),
    [
        ("text-classification", {"target": "positive", "foil": "negative"}),
        ("text-classification", {"target": 2, "foil": 0}),
        ("pair", {"target": "neutral"}),
        ("question-answering", {"target": "author", "foil": "book"}),
        ("question-answering", {"target_span": [8, 10], "foil_span": [10, 12]}),
        ("fill-mask", {"target": "good", "foil": "bad"}),
        ("token-classification", {"target": "neutral"}),
        ("text-generation", {"target": " are", "foil": " is"}),
    ],
)
def test_target_and_foil(clients, kind, target_fields):
    question = {**QUESTIONS[kind], **target_fields}
    (event,) = explained(clients[kind], {**question, "methods": ["attn_lrp"]}).values()
    target = target_fields.get("target", tuple(target_fields.get("target_span", ())))
    foil = target_fields.get("foil", tuple(target_fields.get("foil_span", ())) or None)
    target = (question["position"], target) if "position" in question else target
    expected = clients[kind].session.explainer.explain(text_of(question), "attn_lrp", target=target, foil=foil)
    assert event["explanation"]["scores"] == pytest.approx(expected.scores.tolist(), rel=1e-4, abs=1e-6)
    assert (event["explanation"]["target"], event["explanation"]["foil"]) == (expected.target, expected.foil)


def test_words_ranks_and_pieces(client):
    text = "It is unbelievable, isn't it?"
    (event,) = explained(client, {"text": text, "methods": ["attn_lrp"]}).values()
    e = event["explanation"]
    plain = [word for word in e["words"] if not word["special"]]
    by_rank = sorted(plain, key=lambda word: word["rank"])
    assert [word["rank"] for word in by_rank] == list(range(1, len(plain) + 1))
    assert [word["score"] for word in by_rank] == sorted((word["score"] for word in plain), reverse=True)
    assert all(word["rank"] is None for word in e["words"] if word["special"])
    assert [rank is None for rank in e["token_ranks"]] == e["special"]
    for name in ("pieces", "token_pieces"):
        drawn = "".join(p["text"] for p in e[name] if p["word"] is None or not e["words"][p["word"]]["special"])
        assert drawn == text
        assert sorted(t for p in e[name] for t in p["tokens"]) == list(range(len(e["tokens"])))
        assert all(set(p["tokens"]) <= set(e["words"][p["word"]]["tokens"]) for p in e[name] if p["tokens"])
    assert any(len(piece["tokens"]) > 1 for piece in e["pieces"])
    assert all(len(piece["tokens"]) <= 1 for piece in e["token_pieces"])


def test_layers_where_a_method_has_them(client):
    found = explained(client, {"text": TEXT, "methods": ["attcat", "rollout"], "layers": True})
    maps = found["attcat"]["explanation"]["maps"]
    assert len(maps["layers"]) == 2
    assert all(len(row) == len(found["attcat"]["explanation"]["tokens"]) for row in maps["layers"])
    assert found["rollout"]["explanation"]["maps"] == {}
    assert explained(client, {"text": TEXT, "methods": ["attcat"]})["attcat"]["explanation"]["maps"] == {}


def test_one_method_that_fails_leaves_the_others(client, monkeypatch):
    def broken(trace, *, states="inputs"):
        raise ValueError("not today")

    broken.__module__ = METHODS["cat"].function.__module__
    monkeypatch.setitem(METHODS, "cat", replace(METHODS["cat"], function=broken))
    events = lines(client, "explain", {"text": "a bad movie", "methods": ["attn_lrp", "cat", "rollout"]})
    assert {event["method"]: event["event"] for event in events} == {
        "attn_lrp": "result",
        "cat": "failed",
        "rollout": "result",
    }
    assert [event["error"] for event in events if event["event"] == "failed"] == ["not today"]


def test_a_model_without_a_mask_says_so_for_the_method_that_needs_one(client):
    failed, result = sorted(
        lines(client, "explain", {"text": TEXT, "methods": ["mask_lrp", "lrp"]}), key=lambda event: event["event"]
    )
    assert (failed["event"], failed["method"]) == ("failed", "mask_lrp")
    assert "without a head mask" in failed["error"]
    assert (result["event"], result["method"]) == ("result", "lrp")
    lit = [[1, 0, 1, 0], [0, 1, 1, 0]]
    (event,) = explained(client, {"text": TEXT, "methods": ["mask_lrp"], "heads": lit}).values()
    expected = client.session.explainer.explain(TEXT, "mask_lrp", heads=lit)
    assert event["explanation"]["scores"] == pytest.approx(expected.scores.tolist())


@pytest.mark.parametrize(
    ("kind", "parts", "says"),
    [
        ("text-classification", {"target": "wonderful"}, "no label 'wonderful'"),
        ("text-classification", {"target": 7}, "no label 7"),
        ("text-classification", {"target": 1, "foil": 1}, "nothing to compare"),
        ("text-classification", {"text": "  "}, "empty"),
        ("text-classification", {"position": 2}, "a position is for models"),
        ("text-classification", {"target_span": [1, 2]}, "spans are for question answering"),
        ("question-answering", {"second": None}, "a pair"),
        ("question-answering", {"target": "nowhere"}, "not in the context"),
        ("question-answering", {"target": 3}, "expected an answer"),
        ("question-answering", {"target_span": [5, 3]}, "ends after its first token"),
        ("question-answering", {"target_span": [1, 99]}, "does not follow a token of this text"),
        ("fill-mask", {"text": "no gap"}, "expected one \\[MASK\\]"),
        ("fill-mask", {"second": "more"}, "reads one text"),
        ("token-classification", {"position": 99}, "position 99"),
        ("text-generation", {"target": 10**6}, "outside the vocabulary"),
    ],
)
@pytest.mark.parametrize("route", ["explain", "predict"])
def test_what_cannot_be_asked_of_the_model(clients, route, kind, parts, says):
    question = {**QUESTIONS[kind], **parts}
    question |= {"methods": ["attn_lrp", "mask_lrp"]} if route == "explain" else {}
    response = clients[kind].post(f"/api/{route}", json=question)
    assert response.status_code == 422
    assert re.search(says, response.json()["error"])


def test_targets_of_several_tokens(clients):
    client = clients["text-generation"]
    question = {**QUESTIONS["text-generation"], "target": " are on the table"}
    (event,) = explained(client, {**question, "methods": ["attn_lrp"]}).values()
    explainer = client.session.explainer
    expected = explainer.explain(question["text"], "attn_lrp", target=" are on the table")
    assert event["explanation"]["scores"] == pytest.approx(expected.scores.tolist())
    said, plain = (ask(client, "predict", one) for one in (question, QUESTIONS["text-generation"]))
    assert said["prediction"] == plain["prediction"]  # right behind the text, whatever is asked about
    assert said["probability"] == pytest.approx(plain["probability"])
    fewer = ask(client, "remove", {**question, "gone": [1]})
    answer = explainer.explain_answer(question["text"], " are on the table", "gradient_x_input")
    assert fewer["before"] == pytest.approx(float(answer.log_probabilities.mean().exp()), rel=1e-3)
    refused = ask(client, "predict", {**question, "foil": " is here"}, 422)
    assert "compares single tokens" in refused["error"]


@pytest.mark.parametrize(
    ("heads", "says"),
    [
        ([[1, 1]], "heads has 1 rows of 2 numbers; the model has 2 layers of 4 heads"),
        ([[1, 1, 1, 1], [1]], "heads has 2 rows of 1 or 4 numbers; the model has 2 layers of 4 heads"),
    ],
)
@pytest.mark.parametrize("route", ["explain", "curves", "download"])
def test_heads_of_another_shape(client, route, heads, says):
    question = {"text": TEXT, "methods": ["lrp"], "heads": heads} | ({"format": "json"} if route == "download" else {})
    assert ask(client, route, question, 422)["error"] == says


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_it_went_in(client, text):
    text = f"a good {text} movie"
    (event,) = explained(client, {"text": text, "methods": ["attcat"]}).values()
    assert event["explanation"]["text"] == text
    drawn = [p["text"] for p in event["explanation"]["pieces"] if p["text"] not in (" [CLS] ", " [SEP] ")]
    assert "".join(drawn) == text
    refused = ask(client, "predict", {"text": "a", "target": text}, 422)
    assert repr(text) in refused["error"]


def test_ten_thousand_characters(client):
    (event,) = explained(client, {"text": "good movie " * 909, "methods": ["attcat"]}).values()
    assert any("too long" in note for note in event["explanation"]["notes"])


# --- the head mask --------------------------------------------------------------------------------------------------


def test_lit_heads_are_for_the_methods_they_are_meant_for(masked):
    methods = ["mask_lrp", "attn_lrp", "lrp", "zplus_lrp", "transformer_attribution", "rollout"]
    base = {"text": TEXT, "methods": methods}
    lit = {"heads": [[1, 0, 0, 0], [0, 1, 0, 1]]}
    before = explained(masked, base)
    after = explained(masked, {**base, **lit, "masked": ["mask_lrp"]})
    changed = {name for name in methods if before[name]["explanation"] != after[name]["explanation"]}
    assert changed == {"mask_lrp"}
    assert {name for name in methods if after[name]["reused"]} == set(methods) - {"mask_lrp"}
    everywhere = explained(masked, {**base, **lit})
    changed = {name for name in methods if before[name]["explanation"] != everywhere[name]["explanation"]}
    assert changed == {name for name in methods if "heads" in METHODS[name].options}
    assert "attn_lrp" in changed
    nowhere = explained(masked, {**base, **lit, "masked": []})
    assert {name: event["explanation"] for name, event in nowhere.items()} == {
        name: event["explanation"] for name, event in before.items()
    }


def test_the_own_mask_lit_by_hand_is_the_own_mask(masked):
    lit = [[1, 0, 1, 0], [0, 1, 0, 1]]
    own = explained(masked, {"text": TEXT, "methods": ["mask_lrp"]})["mask_lrp"]["explanation"]
    same = explained(masked, {"text": TEXT, "methods": ["mask_lrp"], "heads": lit})["mask_lrp"]["explanation"]
    assert same["scores"] == own["scores"]
    expected = masked.session.explainer.explain(TEXT, "mask_lrp", heads=MASK)
    assert own["scores"] == pytest.approx(expected.scores.tolist())


def test_lit_heads_keep_their_group(masked):
    """Mask-LRP scales syntactic and positional heads apart; those of no group count as syntactic."""
    lit = [[0, 1, 1, 0], [0, 1, 0, 0]]
    (event,) = explained(masked, {"text": TEXT, "methods": ["mask_lrp"], "heads": lit}).values()
    mask = HeadMask(
        syntactic=torch.tensor([[0.0, 1, 0, 0], [0, 1, 0, 0]], dtype=torch.float64),
        positional=torch.tensor([[0.0, 0, 1, 0], [0, 1, 0, 0]], dtype=torch.float64),
    )
    expected = masked.session.explainer.explain(TEXT, "mask_lrp", heads=mask)
    assert event["explanation"]["scores"] == pytest.approx(expected.scores.tolist())
    assert event["explanation"]["options"]["heads"] == "3 of 8 heads (2 syntactic, 2 positional; by hand)"


def test_a_change_of_heads_runs_no_forward_pass(masked, monkeypatch):
    ran = []
    monkeypatch.setattr("tokenlight.model.instrumented.report_forward_pass", lambda: ran.append(1))
    text = {"text": "both passes are known", "methods": ["mask_lrp"]}
    explained(masked, text)
    assert len(ran) == 2
    explained(masked, {**text, "heads": [[1, 1, 0, 0], [0, 0, 0, 0]]})
    assert len(ran) == 2


# --- reuse ----------------------------------------------------------------------------------------------------------


def test_the_same_request_is_reused(client, monkeypatch):
    question = {"text": "the same again", "methods": ["attn_lrp", "erasure"]}
    first = explained(client, question)
    monkeypatch.setattr(
        "tokenlight.model.instrumented.report_forward_pass", lambda: pytest.fail("the model was asked again")
    )
    second = explained(client, question)
    assert all(event["reused"] for event in second.values())
    assert not any(event["reused"] for event in first.values())
    assert {name: event["explanation"] for name, event in first.items()} == {
        name: event["explanation"] for name, event in second.items()
    }


@pytest.mark.parametrize("change", [{"target": 0}, {"foil": 0}, {"text": "the same againn"}, {"layers": True}])
def test_another_request_is_not(client, change):
    question = {"text": "the same again", "target": 1, "methods": ["attn_lrp"]}
    explained(client, question)
    other = {**question, **change}
    assert not explained(client, other)["attn_lrp"]["reused"]


def test_slow_methods_come_last(client):
    methods = ["erasure", "attn_lrp", "integrated_gradients", "rollout"]
    events = lines(client, "explain", {"text": "slow ones come last", "methods": methods})
    assert [event["method"] for event in events] == ["attn_lrp", "rollout", "erasure", "integrated_gradients"]


# --- progress -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "text"), [("erasure", "good movie " * 80), ("integrated_gradients", "a good key")])
def test_progress_counts_the_passes(client, method, text, monkeypatch):
    monkeypatch.setattr(explain, "PROGRESS_INTERVAL", 0.0)
    *progress, result = lines(client, "explain", {"text": text, "methods": [method]})
    assert result["event"] == "result"
    (total,) = {event["total"] for event in progress}
    assert [event["done"] for event in progress] == list(range(1, total))
    assert all(event == {**event, "event": "progress", "method": method} for event in progress)


# --- attention ------------------------------------------------------------------------------------------------------


def test_attention_of_one_head(client, monkeypatch):
    said = ask(client, "attention", {"text": TEXT, "layer": 1, "head": 2})
    explainer = client.session.explainer
    batch = explainer.collate(explainer.encode([TEXT]))
    resolved = BatchTarget(models.task("text-classification"), (ResolvedTarget(),))
    (trace,) = record(explainer.model, batch, resolved, PassSpec({"attention"})).traces
    expected = trace.attention[1].value[0, 2]
    assert torch.allclose(torch.tensor(said["attention"]), expected, atol=5.1e-5)
    assert len(said["tokens"]) == len(said["attention"])
    monkeypatch.setattr(
        "tokenlight.model.instrumented.report_forward_pass", lambda: pytest.fail("the model was asked again")
    )
    assert ask(client, "attention", {"text": TEXT, "layer": 0, "head": 3})["tokens"] == said["tokens"]


@pytest.mark.parametrize(
    ("place", "says"), [({"layer": 2, "head": 0}, "layers 0 to 1"), ({"layer": 0, "head": 4}, "heads 0 to 3")]
)
def test_heads_that_do_not_exist(client, place, says):
    assert says in ask(client, "attention", {"text": TEXT, **place}, 422)["error"]


# --- faithfulness ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", QUESTIONS)
def test_curves_are_the_librarys(clients, kind):
    client, question = clients[kind], QUESTIONS[kind]
    events = [e for e in lines(client, "curves", {**question, "methods": ["attn_lrp"]}) if e["event"] != "progress"]
    assert {event["method"] for event in events} == {"attn_lrp", "random", "erasure"}
    target = (question["position"], None) if "position" in question else None
    explainer = client.session.explainer
    for event in events:
        assert event["event"] == "curve"
        seeds = [{"seed": seed} for seed in range(5)] if event["method"] == "random" else [{}]
        found = [explainer.explain(text_of(question), event["method"], target=target, **options) for options in seeds]
        curves = [curve.probabilities for curve in draw_curves(explainer, found)]
        assert event["probabilities"] == pytest.approx(torch.stack(curves).mean(0).tolist(), rel=1e-4)
        assert event["aopc"] == pytest.approx(sum(map(aopc, curves)) / len(curves), rel=1e-3, abs=1e-6)
        assert event["log_odds"] == pytest.approx(sum(map(log_odds, curves)) / len(curves), rel=1e-3, abs=1e-6)
        assert len(event["shares"]) == len(event["probabilities"]) == 11
        assert (event["shares"][0], event["shares"][-1]) == (0, 1)


@pytest.mark.parametrize(
    ("name", "perturbation"),
    [
        ("mask", Perturbation(removal="mask")),
        ("pad", Perturbation(removal="pad")),
        ("delete", Perturbation(removal="delete")),
    ],
)
def test_curves_by_each_way_of_taking_away(client, name, perturbation):
    question = {"text": TEXT, "methods": ["lrp", "erasure"], "perturbation": name}
    events = [event for event in lines(client, "curves", question) if event["event"] == "curve"]
    assert [event["method"] for event in events] == ["lrp", "random", "erasure"]
    explainer = client.session.explainer
    (expected,) = draw_curves(explainer, [explainer.explain(TEXT, "lrp")], perturbation)
    assert events[0]["probabilities"] == pytest.approx(expected.probabilities.tolist())


def test_curves_of_a_method_that_fails(client):
    events = lines(client, "curves", {"text": TEXT, "methods": ["mask_lrp"]})
    found = {event["method"]: event["event"] for event in events if event["event"] != "progress"}
    assert found == {"mask_lrp": "failed", "random": "curve", "erasure": "curve"}


@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("perturbation", ["delete", "mask"])
def test_tokens_that_go(clients, kind, perturbation):
    client, question = clients[kind], QUESTIONS[kind]
    target = (question["position"], None) if "position" in question else None
    explainer = client.session.explainer
    e = explainer.explain(text_of(question), "erasure", target=target)
    eligible = [i for i, special in enumerate(e.special.tolist()) if not special and i != e.position]
    ranked = sorted(eligible, key=lambda i: -e.scores[i])
    removal = (
        Perturbation(removal="delete", grid=(1, 2))
        if perturbation == "delete"
        else Perturbation(removal="mask", grid=(1, 2))
    )
    (curve,) = draw_curves(explainer, [e], removal)
    for k in (0, 1, 2):
        said = ask(client, "remove", {**question, "gone": ranked[:k], "perturbation": perturbation})
        assert said["target_probability"] == pytest.approx(float(curve.probabilities[k]), rel=1e-4)
        assert said["before"] == pytest.approx(float(curve.probabilities[0]), rel=1e-4)
        best = max(choice["probability"] for choice in said["choices"])
        assert said["probability"] == pytest.approx(best, rel=1e-4)
        assert said["prediction"] in [choice["name"] for choice in said["choices"]]
    whole = ask(client, "predict", question)
    nothing = ask(client, "remove", {**question, "gone": [], "perturbation": perturbation})
    assert nothing["prediction"] == whole["prediction"]


@pytest.mark.parametrize(
    ("kind", "parts", "says"),
    [
        ("text-classification", {"gone": [0]}, "token 0 (\\[CLS\\]) cannot be removed"),
        ("text-classification", {"gone": [99]}, "there is no token 99"),
        ("token-classification", {"gone": [4]}, "the target is read there"),
        ("fill-mask", {"gone": [4]}, "cannot be removed"),
        ("text-generation", {"gone": "all", "perturbation": "delete"}, "all tokens are removed"),
        ("question-answering", {"gone": "second", "perturbation": "delete"}, "nothing of the context is left"),
    ],
)
def test_tokens_that_cannot_be_removed_are_refused(clients, kind, parts, says):
    client, question = clients[kind], QUESTIONS[kind]
    words = ask(client, "predict", question)["words"]
    inside = [
        t for w in words if not w["special"] and (parts["gone"] == "all" or w["segment"] == 1) for t in w["tokens"]
    ]
    gone = inside if isinstance(parts["gone"], str) else parts["gone"]
    error = ask(client, "remove", {**question, **parts, "gone": gone}, 422)["error"]
    assert says.replace("\\", "") in error


def test_a_vocabulary_without_the_token_says_so():
    with in_process(explainer_for("llama", "text-generation")) as client:
        question = {"text": "the is are", "methods": ["lrp"], "perturbation": "mask"}
        assert "no mask token" in ask(client, "curves", question, 422)["error"]
        assert (
            "no mask token"
            in ask(client, "remove", {"text": "the is", "gone": [1], "perturbation": "mask"}, 422)["error"]
        )


# --- downloads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "kind", "begins"),
    [("html", "text/html", "<!doctype html>"), ("latex", "application/x-tex", "% "), ("json", "application/json", "[")],
)
def test_downloads(client, format, kind, begins):
    question = {"text": TEXT, "methods": ["attn_lrp", "rollout", "erasure"], "format": format}
    response = client.post("/api/download", json=question)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(kind)
    ending = {"latex": "tex"}.get(format, format)
    assert response.headers["content-disposition"] == f'attachment; filename="tokenlight.{ending}"'
    assert response.text.startswith(begins)
    if format == "json":
        loaded = [tl.Explanation.from_dict(plain) for plain in json.loads(response.text)]
        assert [e.method for e in loaded] == question["methods"]


def test_a_download_lacks_nothing(client):
    question = {"text": TEXT, "methods": ["lrp", "mask_lrp"], "format": "json"}
    error = ask(client, "download", question, 422)["error"]
    assert error.startswith("mask_lrp: ")


# --- limits ---------------------------------------------------------------------------------------------------------


def test_the_time_limit_is_told():
    with in_process(small_explainer(), seconds=-1.0) as client:  # up before it begins
        response = client.post("/api/explain", json={"text": TEXT, "methods": ["lrp", "erasure"]})
        assert response.status_code == 504
        assert "longer than -1 s" in response.json()["error"]
        assert ask(client, "predict", {"text": TEXT}, 504)["error"]


def test_what_was_found_in_time_is_told(monkeypatch):
    clock = Clock().watched_by(monkeypatch, worker.__name__)
    with in_process(small_explainer(), seconds=60.0) as client:
        explained(client, {"text": TEXT, "methods": ["lrp"]})  # known: needs no pass
        real = explain.explain_request

        def slowly(*args, **kwargs):
            clock.now += 61.0
            return real(*args, **kwargs)

        monkeypatch.setattr(explain, "explain_request", slowly)
        events = lines(client, "explain", {"text": TEXT, "methods": ["lrp", "attcat", "erasure"]})
        assert [(event["event"], event["method"]) for event in events] == [
            ("result", "lrp"),
            ("failed", "attcat"),
            ("failed", "erasure"),
        ]
        assert all("longer than 60 s" in event["error"] for event in events[1:])


def test_numbers_that_json_does_not_have(client, monkeypatch):
    monkeypatch.setattr("tokenlight.serve.explain.drawable", lambda e: {"x": math.nan})
    (event,) = lines(client, "explain", {"text": "not a number", "methods": ["lrp"]})
    assert (event["event"], event["method"]) == ("failed", "lrp")
    assert "not finite" in event["error"]


def test_the_users_model_is_untouched():
    explainer = tl.Explainer(*copy.deepcopy((small_explainer().model, small_explainer().tokenizer)))
    before = state(explainer.model)
    tokenizer = explainer.tokenizer.backend_tokenizer.to_str()
    with in_process(explainer, MASK) as client:
        methods = [name for name in METHODS if name != "mask_lrp"]
        lines(client, "explain", {"text": TEXT, "methods": [*methods, "mask_lrp"], "layers": True})
        lines(client, "curves", {"text": TEXT, "methods": ["attcat"]})
        ask(client, "remove", {"text": TEXT, "gone": [1]})
        ask(client, "attention", {"text": TEXT, "layer": 0, "head": 0})
        ask(client, "predict", {"text": "x " * 2000})
    assert_same(before, state(explainer.model))
    assert explainer.tokenizer.backend_tokenizer.to_str() == tokenizer


def test_a_text_of_too_many_tokens_is_refused(monkeypatch):
    monkeypatch.setattr(session, "TOKENS", 6)
    with in_process(small_explainer()) as client:
        answer = client.post("/api/predict", json={"text": "it is a good movie and they are not bad"})
        assert answer.status_code == 422
        assert "tokens, the page takes 6: shorten it" in answer.json()["error"]
