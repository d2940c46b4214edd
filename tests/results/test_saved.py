"""Files of saved results that were damaged, or written by somebody else: refused with what is wrong."""

import copy
import dataclasses
import json
import math
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.methods import METHODS
from tokenlight.tasks import TASKS
from tokenlight.views.interactive import report

NAN, INFINITE = math.nan, math.inf


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    explanation = explainer_for("bert").explain("it is a good movie", "attn_lrp", detail=("layers", "heads"))
    return json.loads(json.dumps(explanation.to_dict()))


@pytest.fixture(scope="module")
def plain_answer() -> dict[str, Any]:
    explainer = explainer_for("gpt2", "text-generation")
    return json.loads(json.dumps(explainer.explain_answer("The keys", " are here", "gradient_x_input").to_dict()))


def changed(plain: dict[str, Any], name: str, change: Any) -> dict[str, Any]:
    """With another value, or with what a function makes of it."""
    found = copy.deepcopy(plain)
    found[name] = change(found[name]) if callable(change) else change
    return found


def with_first(value: Any) -> Any:
    return lambda values: [value, *values[1:]]


COMMON = {
    "lengths: tokens": ("tokens", lambda tokens: tokens[:-1]),
    "lengths: special": ("special", lambda values: values[:-1]),
    "lengths: spans": ("spans", lambda values: [*values, [0, 0]]),
    "type: tokens": ("tokens", "a text"),
    "type: a token": ("tokens", with_first(3)),
    "type: special": ("special", with_first(1)),
    "type: segments": ("segments", with_first("0")),
    "a segment that is not there": ("segments", lambda values: [*values[:-2], 7, *values[-1:]]),
    "a span beyond the text": ("spans", lambda values: [[0, 10_000] for _ in values]),
    "a span of one number": ("spans", with_first([0])),
    "a span backwards": ("spans", with_first([3, 1])),
    "type: model": ("model", 3),
    "type: signed": ("signed", "yes"),
    "type: method_title": ("method_title", None),
    "type: method_caution": ("method_caution", 3),
    "type: score_word": ("score_word", ["logit"]),
    "type: notes": ("notes", [3]),
    "type: options": ("options", []),
    "dtype": ("dtype", "int8"),
    "dtype that is no text": ("dtype", None),
    "documents": ("documents", [{"name": "x"}]),
}
EXPLANATIONS = COMMON | {
    "lengths: scores": ("scores", lambda scores: scores[:-1]),
    "NaN": ("scores", with_first(NAN)),
    "infinite": ("scores", with_first(INFINITE)),
    "too large for the dtype": ("scores", with_first(1e300)),
    "maps: too large": ("maps", lambda maps: {**maps, "layers": [[1e300 for _ in row] for row in maps["layers"]]}),
    "type: a score": ("scores", with_first("1.0")),
    "type: score": ("score", None),
    "NaN score": ("score", NAN),
    "probability": ("probability", 3.0),
    "position": ("position", 1.5),
    "text": ("text", 3),
    "three texts": ("text", ["a", "b", "c"]),
    "maps: another axis": ("maps", lambda maps: {**maps, "layers": maps["layers"][0]}),
    "maps: lengths": ("maps", lambda maps: {**maps, "layers": [row[:-1] for row in maps["layers"]]}),
    "maps: ragged": ("maps", lambda maps: {**maps, "layers": [maps["layers"][0], []]}),
    "maps: NaN": ("maps", lambda maps: {"heads": [[NAN for _ in row] for row in maps["heads"]]}),
    "maps: unknown": ("maps", {"other": [1.0]}),
}
ANSWERS = COMMON | {
    "lengths: ids": ("ids", lambda ids: [*ids, 1]),
    "lengths: numbers": ("numbers", lambda values: values[:-1]),
    "lengths: rows": ("matrix", lambda matrix: matrix[:-1]),
    "lengths: a row": ("matrix", lambda matrix: [matrix[0][:-1], *matrix[1:]]),
    "NaN": ("matrix", lambda matrix: [[NAN] * len(matrix[0]), *matrix[1:]]),
    "too large for the dtype": ("matrix", lambda matrix: [[1e300, *matrix[0][1:]], *matrix[1:]]),
    "numbers: too large": ("numbers", with_first(1e300)),
    "log-probabilities: too large": ("log_probabilities", with_first(-1e300)),
    "extras: too large": ("extras", lambda extras: {"residual": [1e300, 0.0]}),
    "type: matrix": ("matrix", "text"),
    "log-probabilities": ("log_probabilities", with_first(NAN)),
    "alternatives": ("alternatives", lambda values: [[{"token": "a"}], *values[1:]]),
    "extras": ("extras", {"residual": [1.0]}),
    "prompt": ("prompt", ["a", "b"]),
}


def loads(kind: Any, plain: Any, folder: Any) -> Any:
    (folder / "x.json").write_text(json.dumps(plain))
    return kind.load(folder / "x.json")


@pytest.mark.parametrize("case", EXPLANATIONS)
def test_damaged_explanations(plain, tmp_path, case):
    with pytest.raises(ValueError, match="this saved explanation is damaged: "):
        loads(tl.Explanation, changed(plain, *EXPLANATIONS[case]), tmp_path)


@pytest.mark.parametrize("case", ANSWERS)
def test_damaged_answers(plain_answer, tmp_path, case):
    with pytest.raises(ValueError, match="this saved answer is damaged: "):
        loads(tl.ExplainedAnswer, changed(plain_answer, *ANSWERS[case]), tmp_path)


@pytest.mark.parametrize(
    ("version", "advice"),
    [(2, "update"), (0, "again"), ("1", "again"), (None, "again"), (True, "again")],
)
def test_other_versions(plain, plain_answer, tmp_path, version, advice):
    for kind, saved in ((tl.Explanation, plain), (tl.ExplainedAnswer, plain_answer)):
        with pytest.raises(ValueError, match=rf"saved in version .*, but this tokenlight reads version 1.*{advice}"):
            loads(kind, changed(saved, "version", version), tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"3", b'{"format": "other"}'])
@pytest.mark.parametrize("kind", [tl.Explanation, tl.ExplainedAnswer])
def test_files_that_hold_no_result(tmp_path, kind, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"not a saved (explanation|answer)"):
        kind.load(tmp_path / "x.json")


def test_what_was_saved_is_read_again(plain, plain_answer, tmp_path):
    assert loads(tl.Explanation, plain, tmp_path).to_dict() == plain
    assert loads(tl.ExplainedAnswer, plain_answer, tmp_path).to_dict() == plain_answer


@pytest.mark.parametrize("form", ["exact", "cage", "flashtrace"])
def test_an_answer_whose_shares_were_passed_on_can_be_loaded_again(tmp_path, form):
    """FlashTrace leaves scores at tokens of its own sentence, also at later ones."""
    answer = explainer_for("gpt2", "text-generation").explain_answer("The keys", " are here", "gradient_x_input")
    passed_on = answer.through(form)
    passed_on.save(tmp_path / "x.json")
    assert tl.ExplainedAnswer.load(tmp_path / "x.json").to_dict() == passed_on.to_dict()


PRESENTATION = ("method_title", "method_caution", "score_word")


def test_a_saved_result_looks_the_same_when_methods_have_other_titles(plain_answer, monkeypatch):
    e = explainer_for("bert").explain("it is a good movie", "attcat")
    e = dataclasses.replace(e, scores=torch.linspace(-1, 1, len(e.tokens)))
    answer = tl.ExplainedAnswer.from_dict(plain_answer)
    shown = report([e]), e.to_html(), answer.to_html()
    for text in ('"AttCAT"', f"logit {e.score:.3g}", "the sign is that of gradient"):
        assert text in shown[0]
    assert '"Gradient x Input"' in shown[2]
    for name in ("attcat", "gradient_x_input"):
        monkeypatch.setitem(METHODS, name, dataclasses.replace(METHODS[name], title="another", caution="another"))
    monkeypatch.setattr(TASKS["text-classification"], "score_word", "another")
    e, answer = tl.Explanation.from_dict(e.to_dict()), tl.ExplainedAnswer.from_dict(plain_answer)
    assert (report([e]), e.to_html(), answer.to_html()) == shown


def test_parts_of_an_answer_have_its_title_caution_and_score_word(plain_answer):
    answer = tl.ExplainedAnswer.from_dict(plain_answer)
    method = METHODS["gradient_x_input"]
    for result in (answer, answer.total(), answer.of(tokens=0), answer.through("exact")):
        assert (result.method_title, result.method_caution) == (method.title, method.caution)
        assert result.score_word == "logits above the mean" if result.options["quantity"] != "logit" else "logit"


def test_files_without_title_caution_and_score_word_are_read(plain, plain_answer, tmp_path):
    for kind, saved in ((tl.Explanation, plain), (tl.ExplainedAnswer, plain_answer)):
        loaded = loads(kind, {name: value for name, value in saved.items() if name not in PRESENTATION}, tmp_path)
        assert (loaded.method_title, loaded.method_caution, loaded.score_word) == ("", "", "score")
        assert loaded.to_dict() == {**saved, "method_title": "", "method_caution": "", "score_word": "score"}
        assert loaded.method in loaded.to_html()
    e = tl.Explanation.from_dict({**plain, "method_title": "", "score_word": "score"})
    assert f"score {e.score:.3g}" in report([e])
    assert '{"attn_lrp": "attn_lrp"}' in report([e])
