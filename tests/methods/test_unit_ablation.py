"""Leave-one-out and ContextCite: against the model itself, against the metrics; the sparse fit against its theory."""

import numpy as np
import pytest
import torch

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight.methods.unit_ablation import CONVERGED, log_odds, sparse_fit
from tokenlight.metrics.evaluate import draw_curves
from tokenlight.metrics.perturbation import Perturbation

TEXT = "It is a good movie. They are not bad at all! The key is here"
ANSWER = " are on the table"


@pytest.fixture(scope="module")
def explainer() -> tl.Explainer:
    return explainer_for("gpt2", "text-generation", dtype=torch.float64)  # keeps double precision all the way


@pytest.mark.parametrize("units", ["words", "sentences"])
def test_leaving_one_out_is_the_fall_of_the_log_probability(explainer, units):
    e = explainer.explain(TEXT, "leave_one_out", target=ANSWER, units=units, progress=False)
    ids, answer = torch.tensor(explainer.encode([TEXT])[0].input_ids), torch.tensor(e.indices)

    def chance(before: torch.Tensor) -> float:
        logits = explainer.model(torch.cat([before, answer])[None]).logits[0].log_softmax(-1)
        return float(logits[len(before) - 1 : -1].gather(1, answer[:, None]).sum())

    shown = e.sentences() if units == "sentences" else [word for word in e.words() if not word.special]
    with torch.no_grad():
        for one in shown:
            left = torch.tensor([i for i in range(len(ids)) if i not in one.tokens])
            assert one.score == pytest.approx(chance(ids) - chance(ids[left]), rel=1e-9)
            assert len(set(e.scores[list(one.tokens)].tolist())) == 1
    assert e.notes == (f"leave_one_out: what the {units} score is spread evenly over their tokens",)


def test_the_next_token_is_read_at_what_is_left(explainer):
    e = explainer.explain(TEXT, "leave_one_out", progress=False)
    last = e.sentences()[-1]
    ids = torch.tensor([explainer.encode([TEXT])[0].input_ids])
    with torch.no_grad():
        whole, left = (explainer.model(some).logits[0, -1].log_softmax(-1) for some in (ids, ids[:, : last.tokens[0]]))
    assert last.score == pytest.approx(float((whole - left)[e.indices[0]]), rel=1e-9)


def test_a_text_of_one_unit_leaves_the_token_for_an_empty_text(explainer):
    text = "the key is here"
    e = explainer.explain(text, "leave_one_out", target=ANSWER, progress=False)
    metric = e.evaluate(["top_k_drop"], units="sentences")
    assert float(e.scores.sum()) == pytest.approx(metric["top_k_drop"])


@pytest.mark.parametrize("units", ["words", "sentences"])
def test_contextcite_is_the_fit_to_what_the_metrics_ask(explainer, units):
    e = explainer.explain(TEXT, "contextcite", target=ANSWER, units=units, progress=False)
    random = Perturbation(units=units, ablations=64)
    curve = draw_curves(explainer, [e], random)[0]
    groups = explainer.encode([TEXT])[0].units(units)
    kept = torch.rand(64, len(groups), generator=torch.Generator().manual_seed(0)) < 0.5
    outcomes = log_odds(curve.log_probabilities[1:, None]) / len(e.indices)
    expected = len(e.indices) * sparse_fit(kept.double().numpy(), outcomes.numpy(), 0.01)[:, 0]
    found = [float(e.scores[group].sum()) for group in groups]
    assert found == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-9)
    assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize("method", ["leave_one_out", "contextcite"])
def test_sources_are_units_and_nothing_else_has_a_score(explainer, method):
    documents = {"last": "The key is here", "first": "It is a good movie."}
    options = {"documents": documents, "units": "documents", "progress": False}
    answer = explainer.explain_answer(TEXT, ANSWER, method, **options)
    e = explainer.explain(TEXT, method, target=ANSWER, **options)
    assert [one.name for one in e.by_document()] == ["first", "last", "rest of the prompt", "the answer itself"]
    assert [one.score for one in e.by_document()][2:] == [0, 0]
    assert answer.total().documents == e.documents
    drop = e.evaluate(["top_k_drop"], units="documents")["top_k_drop"]
    best = max(e.by_document()[:2], key=lambda source: source.score)
    alone = explainer.explain(TEXT, "leave_one_out", target=ANSWER, **options).by_document()
    assert drop == pytest.approx(next(one.score for one in alone if one.name == best.name))
    curve = draw_curves(explainer, [e], Perturbation(units="documents", grid=None))[0]
    assert curve.shares.tolist() == [0, 0.5, 1]
    with pytest.raises(ValueError, match="name them with documents="):
        explainer.explain(TEXT, method, target=ANSWER, units="documents", progress=False)


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("method", ["leave_one_out", "contextcite"])
def test_answers_are_the_same_together(explainer, method, low_memory):
    prompts, answers = [TEXT, "It is here. The key is not."], [ANSWER, " a good movie"]
    together = explainer.explain_answer(prompts, answers, method, low_memory=low_memory, progress=False)
    for prompt, answer, found in zip(prompts, answers, together, strict=True):
        alone = explainer.explain_answer(prompt, answer, method, progress=False)
        torch.testing.assert_close(found.matrix, alone.matrix, rtol=1e-8, atol=1e-10)
        assert not found.matrix[:, found.prompt_length :].any()  # the answer's own tokens are given


# --- The sparse fit --------------------------------------------------------------------------------------------------


def test_with_independent_columns_weights_are_cut_by_alpha():
    """All eight sets of three units: columns ±1 that do not know of each other, so each weight is shrunk alone."""
    sets = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)], dtype=float)
    outcomes = sets @ np.array([[3.0, 0.1], [-0.5, 0.0], [0.01, 2.0]]) + 7
    found = sparse_fit(sets, outcomes, 0.1)  # standardized, a weight is half as large: 1.5 - 0.1 = 2.8 / 2
    assert found == pytest.approx(np.array([[2.8, 0.0], [-0.3, 0.0], [0.0, 1.8]]))


@pytest.mark.parametrize(("sets", "units"), [(64, 6), (64, 40), (20, 30)])
def test_the_fit_is_where_no_weight_can_move(sets, units):
    """Karush, Kuhn and Tucker: residuals pull with α at weights that are not 0, and with no more at the others."""
    chance = np.random.default_rng(units)
    columns = (chance.random((sets, units)) < 0.5).astype(float)
    columns[:, 0] = 1  # a unit that was never removed
    outcomes = columns @ chance.normal(size=(units, 2)) + chance.normal(size=(sets, 2))
    found = sparse_fit(columns, outcomes, 0.05)
    scale = columns.std(0)
    centered = (columns - columns.mean(0)) / np.where(scale == 0, 1, scale)
    weights = found * scale[:, None]
    pull = centered.T @ (outcomes - outcomes.mean(0) - centered @ weights) / sets
    assert (found[0] == 0).all()
    assert (weights != 0).sum() > units / 4
    allowed = (
        units * CONVERGED * np.abs(centered.T @ (outcomes - outcomes.mean(0)) / sets).max()
    )  # the last sweep's moves
    assert np.abs(pull - 0.05 * np.sign(weights))[weights != 0].max() < allowed
    assert np.abs(pull).max() < 0.05 + allowed


def test_log_odds_stay_numbers():
    values = torch.tensor([0.0, -1e-9, -0.5, -700.0, -2000.0], dtype=torch.float64)
    assert log_odds(values)[2:].tolist() == pytest.approx([float(torch.logit(values[2].exp())), -700, -2000])
    assert log_odds(values).diff().lt(0).all()
    assert log_odds(values).isfinite().all()


# --- What cannot be asked --------------------------------------------------------------------------------------------


def test_refusals(explainer):
    ids = models.ids(1, 5)
    with pytest.raises(ValueError, match="token ids alone have no sentences"):
        tl.attribute(explainer.model, ids, method="leave_one_out", target=3)
    assert tl.attribute(explainer.model, ids, method="leave_one_out", target=3, units="tokens").abs().min() > 0
    with pytest.raises(tl.UnsupportedModelError, match="not a language model"):
        explainer_for("bert").explain(TEXT, "contextcite")
    with pytest.raises(ValueError, match="has no probability"):
        explainer.explain(TEXT, "leave_one_out", target=lambda output: output.logits[:, -1, 0])
