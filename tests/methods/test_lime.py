"""LIME against its release, transcribed step by step: sets, cosine distances, kernel, ridge regression."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.methods.lime import sample_sets, weighted_ridge
from tokenlight.text import context_draws

SAMPLES, PAD = 40, models.SMALL["pad_token_id"]


def transcribed(present: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Weights of the units: the regression as ordinary least squares, with rows that pull the weights to 0."""
    whole = np.ones(present.shape[1])
    rows, targets = [], []
    for there, outcome in zip(present, outcomes, strict=True):
        length = np.linalg.norm(there)
        similarity = there @ whole / (length * np.linalg.norm(whole)) if length else 0.0
        weight = np.sqrt(np.exp(-(((1 - similarity) * 100) ** 2) / 25**2))
        rows.append(np.sqrt(weight) * np.append(there, 1.0))  # the last column is the intercept
        targets.append(np.sqrt(weight) * outcome)
    pulls = np.eye(present.shape[1], present.shape[1] + 1)
    fit = np.linalg.lstsq(np.vstack([*rows, pulls]), np.append(targets, np.zeros(len(pulls))), rcond=None)
    return fit[0][:-1]


def classifier(problem: str | None, labels: int = 3) -> Any:
    model: Any = copy.deepcopy(models.model("bert", dtype=torch.float64))
    model.config.problem_type = problem
    if labels == 1:
        model.classifier = copy.deepcopy(model.classifier)
        model.classifier.weight = torch.nn.Parameter(model.classifier.weight[:1].clone())
        model.classifier.bias = torch.nn.Parameter(model.classifier.bias[:1].clone())
        model.config.num_labels = 1
    return model


def of_head(task: str) -> Any:
    return models.model("llama" if task == "text-generation" else "bert", task, torch.float64)


CASES: dict[str, tuple[Any, Any, Any]] = {  # model, target, what is fitted
    "one label": (lambda: classifier(None), 1, lambda out: out.logits.softmax(-1)[0, 1]),
    "several labels": (lambda: classifier("multi_label_classification"), 1, lambda out: out.logits.sigmoid()[0, 1]),
    "several numbers": (lambda: classifier("regression"), 1, lambda out: out.logits[0, 1]),
    "one number": (lambda: classifier(None, 1), 0, lambda out: out.logits[0, 0]),
    "answer": (
        lambda: of_head("question-answering"),
        (1, 4),
        lambda out: out.start_logits.softmax(-1)[0, 1] * out.end_logits.softmax(-1)[0, 3],
    ),
    "token": (lambda: of_head("token-classification"), (2, 1), lambda out: out.logits.softmax(-1)[0, 2, 1]),
    "next token": (lambda: of_head("text-generation"), 7, lambda out: out.logits.softmax(-1)[0, -1, 7]),
    "function": (lambda: classifier(None), lambda out: out.logits[:, 2], lambda out: out.logits[0, 2]),
}


@pytest.mark.parametrize("case", CASES)
def test_weights_equal_the_transcription(case):
    make, target, outcome = CASES[case]
    model, ids = make(), models.ids(1, 5)
    present = sample_sets(5, SAMPLES, context_draws.of_text(ids[0], 3)).numpy()
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        changed = [torch.where(torch.from_numpy(there), ids, PAD) for there in present]
        outcomes = np.array([float(outcome(eager(row))) for row in changed])
    beside = torch.cat([ids, torch.full((1, 2), PAD)], 1)  # in a batch with a longer text
    batch, mask = torch.cat([beside, models.ids(1, 7, seed=1)]), torch.ones(2, 7, dtype=torch.long)
    mask[0, 5:] = 0
    expected = transcribed(present.astype(float), outcomes)
    assert np.abs(expected).max() > 1e-4
    options: dict[str, Any] = {"method": "lime", "target": target, "samples": SAMPLES, "removal": "pad", "seed": 3}
    precision = torch.float32 if case == "next token" else torch.float64  # eager Llama casts inside its norms
    alone = tl.attribute(model, ids, **options)[0]
    assert_near(alone, torch.from_numpy(expected), size=np.abs(outcomes).max(), precision=precision)
    if case != "function":
        assert_near(tl.attribute(model, batch, mask, **options)[0, :5], alone, size=np.abs(outcomes).max())


def test_the_score_can_be_fitted_instead():
    model, ids = models.model("bert", dtype=torch.float64), models.ids(1, 5)
    options: dict[str, Any] = {"method": "lime", "samples": SAMPLES}
    by_function = tl.attribute(model, ids, target=lambda out: out.logits[:, 1], **options)
    assert_near(tl.attribute(model, ids, target=1, output="score", **options), by_function)
    assert not torch.allclose(tl.attribute(model, ids, target=1, **options), by_function, rtol=0.1)


def test_a_word_is_removed_as_a_whole():
    explainer = explainer_for("bert", "text-classification", dtype=torch.float64)
    text = "it is an unusually good moviegoer"
    options: dict[str, Any] = {"removal": "pad", "samples": SAMPLES, "target": "positive", "progress": False}
    explanation = explainer.explain(text, "lime", units="words", **options)
    words = [word for word in explanation.words() if not word.special]
    assert max(len(word.tokens) for word in words) > 1
    tokenized_text = explainer.encode([text])[0]
    present = sample_sets(len(words), SAMPLES, context_draws.of_text(torch.tensor(tokenized_text.input_ids), 0))
    ids = torch.tensor(tokenized_text.input_ids).repeat(SAMPLES, 1)
    for number, word in enumerate(words):
        ids[:, word.tokens] = torch.where(
            present[:, number, None], ids[:, word.tokens], explainer.tokenizer.pad_token_id
        )
    with torch.no_grad():
        outcomes = explainer.model(ids).logits.softmax(-1)[:, explainer.task.index("positive")]
    expected = transcribed(present.double().numpy(), outcomes.numpy())
    _, errors = weighted_ridge(present.double().numpy(), outcomes[:, None].numpy())
    assert_near(torch.tensor([word.score for word in words], dtype=torch.float64), torch.from_numpy(expected), size=1)
    assert_near(torch.tensor([word.error for word in words], dtype=torch.float64), errors[0], size=1)
    for word in words:
        assert len(set(explanation.scores[list(word.tokens)].tolist())) == 1
    assert any("words" in note for note in explanation.notes)
    with pytest.raises(ValueError, match="token ids alone have no words"):
        tl.attribute(explainer.model, models.ids(1, 5), method="lime", units="words", target=1)


def test_every_number_of_removals_is_equally_likely():
    present = sample_sets(6, 12_001, torch.Generator().manual_seed(0))
    assert present[0].all()
    counts = (~present[1:]).sum(1).bincount(minlength=7)
    assert counts[0] == 0
    assert (counts[1:] - 2000).abs().max() < 5 * (12_000 * 1 / 6 * 5 / 6) ** 0.5
    kept = present[1:].double().mean(0)  # each unit stays in (0 + ... + 5) / 36 of the sets
    assert (kept - 15 / 36).abs().max() < 5 * 0.5 / 12_000**0.5


def test_standard_errors_are_how_far_weights_vary_with_the_seed():
    def outcome(present: Tensor) -> Tensor:
        return present[:, 0] * present[:, 1] + present[:, 2] * (1 - present[:, 3]) + 0.3 * present[:, 4]

    fits = []
    for seed in range(200):
        present = sample_sets(8, 500, torch.Generator().manual_seed(seed)).double()
        fits.append(torch.stack([x[0] for x in weighted_ridge(present.numpy(), outcome(present)[:, None].numpy())]))
    weights, errors = torch.stack(fits, 1)  # each [seed, unit]
    assert (errors.mean(0) / weights.std(0) - 1).abs().max() < 0.25  # 5 standard errors of a deviation over 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "logit"}, "output is 'probability' or 'score', found 'logit'"),
        ({"samples": 0}, "samples is a positive number, found 0"),
        ({"samples": True}, "samples is a positive number, found True"),
        ({"samples": 1}, "samples is at least 2, found 1"),
        ({"removal": "delete"}, "found 'delete'"),
    ],
)
def test_wrong_values_of_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tl.attribute(models.model("bert"), models.ids(1, 4), method="lime", target=1, **options)
