"""The result: words, saving and loading, tables."""

import copy
import dataclasses
import json
import math
import pickle
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight.methods import METHODS

FAMILIES = ["bert", "roberta", "xlm_roberta", "gpt2", "llama"]
MIXED = "It isn't naïve – 東京 😀 ok"


def explanation(text: Any = MIXED, family: str = "bert", method: str = "attcat", **options: Any) -> tl.Explanation:
    return explainer_for(family).explain(text, method, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_word_scores_sum_to_token_scores(family):
    e = explanation(family=family)
    words = e.words()
    assert math.fsum(word.score for word in words) == pytest.approx(math.fsum(e.scores.tolist()), abs=1e-6)
    for word in words:
        assert word.score == pytest.approx(math.fsum(float(e.scores[i]) for i in word.tokens), abs=1e-6)
    assert [i for word in words for i in word.tokens] == list(range(len(e.tokens)))


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_pieces_of_the_text(family):
    words = [word for word in explanation(family=family).words() if not word.special]
    assert [word.text for word in words] == ["It", "isn't", "naïve", "–", "東", "京", "😀", "ok"]
    assert all(MIXED[slice(*word.span)] == word.text and word.segment == 0 for word in words)


def test_special_words_carry_their_token():
    first, *_, last = explanation().words()
    assert (first.text, first.special, first.segment) == ("[CLS]", True, None)
    assert (last.text, last.special) == ("[SEP]", True)


def test_words_of_a_pair_point_into_their_own_text():
    pair = ("the key", "the young author")
    words = [word for word in explanation(pair).words() if not word.special]
    assert [(word.segment, word.text) for word in words] == [
        *((0, "the"), (0, "key"), (1, "the"), (1, "young"), (1, "author"))
    ]
    assert all(pair[word.segment or 0][slice(*word.span)] == word.text for word in words)


def test_top_is_sorted_and_leaves_special_tokens_out():
    e = explanation("it is a good movie")
    scores = torch.tensor([9.0, 1.0, -5.0, 3.0, 2.0, 0.5, 8.0])
    top = dataclasses.replace(e, scores=scores).top(3)
    assert [(word.text, word.score) for word in top] == [("a", 3.0), ("good", 2.0), ("it", 1.0)]
    assert len(e.top(100)) == 5
    assert e.top(0) == []


@pytest.mark.parametrize("method", [name for name in METHODS if models.runs_here(name)])
def test_saved_and_loaded_is_equal(method, tmp_path):
    e = explanation(method=method, target="positive", **models.quick_options(method))
    e.save(tmp_path / "e.json")
    loaded = tl.Explanation.load(tmp_path / "e.json")
    assert loaded == e
    assert torch.equal(loaded.scores, e.scores)
    assert loaded.scores.dtype == e.scores.dtype
    assert torch.equal(loaded.special, e.special)
    assert loaded.words() == e.words()
    assert loaded.to_html() == e.to_html()


@pytest.mark.parametrize("text", [MIXED, ("who ?", "the author"), "line\nbreak \x1b and \u2028 separator"])
def test_every_text_survives_saving(text, tmp_path):
    e = explanation(text)
    e.save(str(tmp_path / "e.json"))
    loaded = tl.Explanation.load(str(tmp_path / "e.json"))
    assert loaded == e
    assert loaded.text == text
    assert isinstance(loaded.text, type(text))


def test_double_precision_survives_saving(tmp_path):
    e = dataclasses.replace(explanation("ok"), scores=torch.tensor([1 / 3, 1e-300, -2 / 7], dtype=torch.float64))
    e.save(tmp_path / "e.json")
    loaded = tl.Explanation.load(tmp_path / "e.json")
    assert torch.equal(loaded.scores, e.scores)


def test_explanations_that_differ_are_not_equal():
    one = explanation("ok")
    assert one == explanation("ok")
    assert one != explanation("ok", method="cat")
    assert one != dataclasses.replace(one, scores=one.scores + 1)
    assert one != "ok"


@pytest.mark.parametrize("method", [name for name in METHODS if models.runs_here(name)])
def test_to_dict_is_plain(method):
    plain = explanation(method=method, **models.quick_options(method)).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["format"] == "tokenlight.explanation"
    assert plain["version"] == 1


def test_a_function_as_target_can_be_saved(tmp_path):
    explanation("ok", target=lambda output: output.logits[:, 0]).save(tmp_path / "e.json")
    assert tl.Explanation.load(tmp_path / "e.json").target == "<lambda>"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a saved explanation: expected format 'tokenlight.explanation', found 'other'"),
        ({"format": None}, "not a saved explanation"),
        ({"version": 2}, "saved in version 2, but this tokenlight reads version 1"),
        ({"version": None}, "saved in version None"),
    ],
)
def test_other_formats_and_versions_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        tl.Explanation.from_dict({**explanation("ok").to_dict(), **change})


@pytest.mark.parametrize("content", ["[]", "3", '"text"', "null"])
def test_a_file_with_something_else_is_refused(content, tmp_path):
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(ValueError, match="not a saved explanation"):
        tl.Explanation.load(tmp_path / "e.json")


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "e.json").write_text('{"format": "tokenlight.explanation", "version": 1, "scor')
    with pytest.raises(ValueError, match=r"JSON|delimiter|Unterminated"):
        tl.Explanation.load(tmp_path / "e.json")


@pytest.mark.parametrize("field", ["scores", "dtype", "text", "target", "method"])
def test_a_missing_field_is_named(field):
    plain = explanation("ok").to_dict()
    del plain[field]
    with pytest.raises(ValueError, match=f"damaged.*{field}"):
        tl.Explanation.from_dict(plain)


def test_to_pandas_has_a_row_for_each_token():
    e = explanation()
    table = e.to_pandas()
    assert list(table.columns) == ["token", "score", "special", "segment", "start", "end"]
    assert table["token"].tolist() == e.tokens
    assert table["score"].tolist() == e.scores.tolist()
    assert table["special"].tolist() == e.special.tolist()
    assert list(zip(table["start"], table["end"], strict=True)) == e.spans


def test_the_versions_and_the_model_are_recorded():
    e = explanation("ok")
    assert e.versions["tokenlight"] == tl.__version__
    assert e.versions["torch"] == torch.__version__
    assert set(e.versions) == {"tokenlight", "torch", "transformers", "python"}
    assert e.model == "BertForSequenceClassification"


def test_repr_is_one_short_line_that_a_terminal_can_bear():
    line = repr(explanation("good\x1b[31m movie\nis here", target="positive"))
    assert line.startswith("<Explanation of 'positive' by attcat: ")
    assert line.isprintable()


def test_an_explanation_cannot_be_changed():
    e: Any = explanation("ok")
    with pytest.raises(dataclasses.FrozenInstanceError):
        e.score = 3.0


def test_results_do_not_share_memory():
    one, two = explainer_for("bert").explain(["the key", "the book"])
    before = two.scores.clone()
    one.scores.fill_(7)
    assert torch.equal(two.scores, before)


def test_a_changed_result_can_do_what_the_first_could():
    e = explanation("the key is here")
    assert e.explainer is not None
    turned = dataclasses.replace(e, scores=-e.scores)
    assert turned.explainer is e.explainer
    assert turned.evaluate(["aopc"]) == tl.evaluate(e.explainer, [turned], ["aopc"])[0]


def test_the_model_is_no_part_of_the_result():
    e = explanation("the key is here")
    alone = dataclasses.replace(e, explainer=None)
    assert e == alone
    assert repr(e) == repr(alone)
    assert "explainer" not in e.to_dict()
    with pytest.raises(ValueError, match="does not know its model"):
        alone.evaluate(["aopc"])


def test_pickles_and_copies_leave_the_model_behind():
    e = explanation()
    for copied in (pickle.loads(pickle.dumps(e)), copy.deepcopy(e)):
        assert copied == e
        assert copied.explainer is None
        with pytest.raises(ValueError, match="does not know its model"):
            copied.evaluate()
    assert len(pickle.dumps(e)) < 100_000
    assert set(e.evaluate()) == {"aopc", "log_odds", "comprehensiveness", "sufficiency"}
