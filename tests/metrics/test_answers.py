"""Metrics of papers on answers, worked out by hand, and units of several tokens."""

from dataclasses import replace

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.explain.external_scores import from_scores
from tokenlight.metrics.answers import linear_datamodeling_score, mas, rise, top_k_drop
from tokenlight.metrics.evaluate import Measure, draw_curves, evaluate
from tokenlight.metrics.perturbation import Perturbation, perturb
from tokenlight.text.tokenized_text import random_sets

TEXT = "It is a good movie. They are not bad at all! The key is here"


def exp(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).exp()


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- Numbers ---------------------------------------------------------------------------------------------------------


def test_the_drop_is_that_of_the_whole_answer():
    """Three tokens whose mean log-probability falls from -1 to -1.5."""
    assert top_k_drop(exp(-1, -1.5), steps=3) == pytest.approx(1.5)
    assert top_k_drop(exp(-700, -800), steps=2) == pytest.approx(2 * (708.396 - 700), rel=1e-4)  # e^-800 is no number


def test_rise_is_the_area_under_the_log_probability():
    """ln p falls from -1 over -2, rises, and ends at -5: heights 1, 0.75, 0.75 (never rises again), 0."""
    assert rise(exp(-1, -2, -1.5, -5)) == pytest.approx((0.5 + 0.75 + 0.75) / 3)
    at = doubles(0, 0.5, 0.75, 1)
    assert rise(exp(-1, -2, -1.5, -5), at=at) == pytest.approx(0.5 * 0.875 + 0.25 * 0.75 + 0.25 * 0.375)
    assert rise(exp(-1, -1, -1)) == 0.5  # nothing changes the answer
    assert rise(exp(-2, -3, -1)) == 0  # likelier without the text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_probabilities_of_zero_in_single_precision_are_no_nan(dtype):
    """The smallest double is 0 there, and has no logarithm."""
    for curve in ([0.0, 0.0, 0.0], [1.0, 0.5, 0.0]):
        exact, rounded = (torch.tensor(curve, dtype=kind) for kind in (torch.float64, dtype))
        assert top_k_drop(rounded) == top_k_drop(exact)
        assert rise(rounded) == rise(exact)
        assert mas(rounded, left=exact) == mas(exact, left=exact)


def test_mas_adds_how_far_the_scores_are_from_the_response():
    """Heights 1, 0.75, 0; shares left 1, 0.25, 0: 0.75 becomes 0.75 + 0.5, which is cut to 1."""
    curve = exp(-1, -2, -5)
    assert mas(curve, left=doubles(8, 2, 0)) == pytest.approx(0.75)
    assert mas(curve, left=doubles(8, 5, 0)) == pytest.approx((0.5 + 0.875) / 2)
    assert mas(curve, left=doubles(8, 6, 0)) == rise(curve) == pytest.approx((0.5 + 0.75) / 2)  # aligned
    assert mas(curve, left=doubles(0, 3, 0)) == mas(curve, left=doubles(2, 1, 0))  # no shares: they fall evenly


def test_the_linear_score_is_a_rank_correlation_without_the_whole_input():
    curve, left = exp(-9, -3, -1, -2), doubles(99, 1, 30, 2)
    assert linear_datamodeling_score(curve, left=left) == pytest.approx(1)
    assert linear_datamodeling_score(curve, left=-left) == pytest.approx(-1)
    assert linear_datamodeling_score(curve, left=doubles(99, 1, 2, 30)) == pytest.approx(0.5)


# --- Units -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explainer() -> tl.Explainer:
    return explainer_for("gpt2", "text-generation", dtype=torch.float64)  # keeps double precision all the way


@pytest.fixture(scope="module")
def explained(explainer) -> tl.Explanation:
    row = explainer.encode([TEXT])[0]
    scores = torch.rand(len(row), generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 0.5
    return from_scores(explainer, TEXT, scores, target=" are on the table")


@pytest.mark.parametrize("kind", ["words", "sentences"])
def test_units_are_those_of_the_explanation(explainer, explained, kind):
    row = explainer.encode([TEXT])[0]
    shown = [word for word in explained.words() if not word.special] if kind == "words" else explained.sentences()
    assert [tuple(unit) for unit in row.units(kind)] == [one.tokens for one in shown]
    assert len(shown) == {"words": 17, "sentences": 3}[kind]
    changed = perturb(row, explained.scores, Perturbation(removal="delete", grid=None, units=kind))
    ranked = sorted(shown, key=lambda one: -one.score)
    for k, point in enumerate(changed):
        gone = {token for one in ranked[:k] for token in one.tokens}
        assert point.kept == tuple(i for i in range(len(row)) if i not in gone)
        assert point.share == k / len(shown)
        assert point.left == pytest.approx(sum(one.score for one in ranked[k:]))


def test_sentences_go_as_a_whole(explainer, explained):
    """Against the model itself, on the text without its best sentence."""
    drop = Measure("top_k_drop", units="sentences")
    (found,) = evaluate(explainer, [explained], [drop, "aopc"], units="sentences")
    best = max(explained.sentences(), key=lambda sentence: sentence.score)
    ids = torch.tensor(explainer.encode([TEXT])[0].input_ids)
    left = torch.tensor([i for i in range(len(ids)) if i not in best.tokens])

    def chance(before: torch.Tensor) -> float:
        answer = torch.tensor(explained.indices)
        logits = explainer.model(torch.cat([before, answer])[None]).logits[0].log_softmax(-1)
        return float(logits[len(before) - 1 : -1].gather(1, answer[:, None]).sum())

    with torch.no_grad():
        assert found["top_k_drop"] == pytest.approx(chance(ids) - chance(ids[left]))
    curve = draw_curves(explainer, [explained], Perturbation(units="sentences"))[0]
    assert curve.shares.tolist() == pytest.approx([0, *[1 / 3] * 3, *[2 / 3] * 3, *[1] * 4])
    assert found["aopc"] == pytest.approx(float((curve.probabilities[0] - curve.probabilities[1:]).mean()))


def test_random_sets_are_the_same_for_all_methods_and_drawn_anew_by_the_seed(explainer, explained):
    own = Measure("LDS", units="words").resolved_perturbation
    one = draw_curves(explainer, [explained, replace(explained, scores=-explained.scores)], own)
    assert torch.equal(one[0].log_probabilities, one[1].log_probabilities)
    assert torch.equal(one[0].left, -one[1].left)
    assert len(one[0].left) == 65
    assert not torch.equal(random_sets(9, 64, 0), random_sets(9, 64, 1))
    assert random_sets(500, 64, 0).double().mean() == pytest.approx(0.5, abs=0.02)  # 7 standard deviations
    (values,) = evaluate(explainer, [explained], ["LDS"], units="words")
    assert values["linear_datamodeling_score"] == linear_datamodeling_score(one[0].probabilities, left=one[0].left)


def test_evidence_is_found_by_units(explainer, explained):
    sentences = explained.sentences()
    marks = torch.zeros(len(explained.tokens), dtype=torch.bool)
    best = max(range(3), key=lambda number: sentences[number].score)
    marks[sentences[best].tokens[0]] = True  # a token of it is enough
    names = [Measure("recall_at_k", options={"k": 1}, units="sentences"), "mean_reciprocal_rank"]
    assert explained.evaluate(names, explainer=explainer, units="sentences", marks=marks) == {
        "recall_at_k": 100,
        "mean_reciprocal_rank": 1,
    }
    wrong = torch.zeros_like(marks)
    wrong[sentences[best - 1].tokens[0]] = True
    assert explained.evaluate(names[:1], explainer=explainer, marks=wrong) == {"recall_at_k": 0}


def test_units_are_named_right():
    with pytest.raises(ValueError, match="units must be one of tokens, words, sentences, documents"):
        Perturbation(units="letters")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="require units='tokens'"):
        Perturbation(units="words", skip_last=True)
