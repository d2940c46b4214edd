"""A BERT that adds up one known weight for each token: the true order wins every metric, its reverse loses.

One block, attention uniform, values and projections the identity on what carries the weight, no MLP. The three norms
are the identity by construction: word vectors (w, -w, r, -r) have mean 0 and variance 1, and a large constant in the
attention's output fixes the size of what the later norms see.
"""

from functools import cache
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import tokenlight as tl
from tests.tokenizers_ import WORDS, wordpiece
from tokenlight.explain.external_scores import from_scores
from tokenlight.metrics import METRICS
from tokenlight.metrics.evaluate import Measure, evaluate
from tokenlight.metrics.perturbation import Perturbation

LARGE = 1e5
SMALL = 1e-3  # keeps the pooler's tanh straight
TEXT = "it is a good movie and they are not bad at all"


@cache
def true_weights() -> dict[str, float]:
    """Between -1 and 1, more of them positive, all different."""
    places = torch.linspace(-0.6, 1, len(WORDS), dtype=torch.float64)
    shuffled = places[torch.randperm(len(WORDS), generator=torch.Generator().manual_seed(1))]
    return dict(zip(WORDS, shuffled.tolist(), strict=True))


@cache
def adding_machine() -> tl.Explainer:
    """logit("yes") = mean over the input's tokens of their weights × 20; logit("no") = 0."""
    tokenizer = wordpiece()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=4,
        id2label={0: "no", 1: "yes"},
        layer_norm_eps=1e-30,
    )
    model: Any = BertForSequenceClassification(config).eval().double()
    weights = torch.zeros(len(tokenizer), dtype=torch.float64)
    for word, weight in true_weights().items():
        weights[tokenizer.convert_tokens_to_ids(word)] = weight
    rest = (2 - weights.square()).sqrt()
    carries = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        embeddings, block = model.bert.embeddings, model.bert.encoder.layer[0]
        embeddings.word_embeddings.weight.copy_(torch.stack([weights, -weights, rest, -rest], 1))
        block.attention.self.value.weight.copy_(torch.eye(4))
        block.attention.output.dense.weight.copy_(carries)
        block.attention.output.dense.bias.copy_(torch.tensor([0.0, 0.0, LARGE, -LARGE]))
        for norm in (block.attention.output.LayerNorm, block.output.LayerNorm):
            norm.weight.fill_((LARGE + 2**0.5) / 2**0.5)  # the size of (0, 0, c, -c): the norm gives back what came
        model.bert.pooler.dense.weight[0, 0] = SMALL
        model.classifier.weight[1, 0] = 20 / SMALL
    return tl.Explainer(model, tokenizer)


def truth(text: str) -> tuple[list[int], torch.Tensor]:
    tokenized_text = adding_machine().encode([text])[0]
    return tokenized_text.input_ids, torch.tensor(
        [true_weights().get(token, 0.0) for token in tokenized_text.tokens], dtype=torch.float64
    )


@pytest.mark.parametrize("text", [TEXT, "the key is here", "good", "who wrote the book ? [MASK] [MASK]"])
def test_the_machine_adds(text):
    ids, weights = truth(text)
    with torch.no_grad():
        logits = adding_machine().model(torch.tensor([ids])).logits[0]
    assert float(logits[0]) == 0
    assert float(logits[1]) == pytest.approx(20 * float(weights.mean()), rel=1e-3, abs=1e-6)


MEASURES = [
    *(Measure(name) for name, entry in METRICS.items() if entry.kind == "perturbation"),
    *(
        Measure(name, Perturbation(removal="delete", grid=None), name=f"{name}, deleted")
        for name, entry in METRICS.items()
        if entry.kind == "perturbation"
    ),
    Measure("comprehensiveness", options={"envelope": True, "plus_one": True}, name="comprehensiveness, released"),
    Measure("sufficiency", Perturbation(empty=True, keep="top"), {"envelope": True}, name="sufficiency, released"),
    *(Measure(name) for name, entry in METRICS.items() if entry.kind == "evidence" and name not in ("precision_at_k",)),
    Measure("precision_at_k", options={"k": 3}),
    Measure("recall_at_k", options={"k": 3}, name="recall_at_3"),
    *(Measure(name) for name in ("jaccard_top", "spearman", "kendall_confidence")),
]
LEVEL = {"recall_at_k"}  # its 20 are all tokens of the text
SHARES = {"mas", "mas, deleted"}  # wants scores that are shares of a whole: of signed ones, not even the true ones win


@cache
def table() -> list[dict[str, float]]:
    """The true scores, their reverse, and 20 random ones."""
    explainer = adding_machine()
    _, true = truth(TEXT)
    generator = torch.Generator().manual_seed(0)
    rows = [true, -true, *(torch.rand(len(true), generator=generator).double() * 2 - 1 for _ in range(20))]
    explanations = from_scores(explainer, [TEXT] * len(rows), rows)
    assert {e.target for e in explanations} == {"yes"}
    marks = [true > 0] * len(rows)
    results = evaluate(explainer, explanations, MEASURES, marks=marks, others=[true] * len(rows))
    # Confidence compares with the other class, whose true scores are the opposite ones.
    confidence = evaluate(explainer, explanations, ["kendall_confidence"], others=[-true] * len(rows))
    return [a | b for a, b in zip(results, confidence, strict=True)]


@pytest.mark.parametrize("measure", [m for m in MEASURES if m.label not in SHARES], ids=lambda measure: measure.label)
def test_the_truth_wins_and_its_reverse_loses(measure):
    sign = 1 if measure.entry.direction == "higher" else -1
    true, reverse, *random = (sign * row[measure.label] for row in table())
    if measure.label in LEVEL:
        assert true == reverse == random[0]
        return
    assert true >= max(random) - 1e-12
    assert true > sum(random) / len(random)
    assert reverse <= min(random) + 1e-12
    assert reverse < sum(random) / len(random)


def test_perfect_evidence_is_perfect():
    best = table()[0]
    for name in ("pointing_game", "mean_reciprocal_rank", "relevance_mass", "per_token_accuracy"):
        assert best[name] == pytest.approx(1)


@pytest.mark.parametrize("method", ["lrp", "erasure"])
def test_methods_that_are_exact_on_sums_find_the_truth(method):
    explainer = adding_machine()
    _, true = truth(TEXT)
    options: dict[str, Any] = {"removal": "mask"} if method == "erasure" else {}
    e = explainer.explain(TEXT, method, **options)
    found, expected = (evaluate(explainer, from_scores(explainer, [TEXT], [s])) for s in (e.scores, true))
    assert found[0] == pytest.approx(expected[0], abs=1e-9)
