"""Shuffled weights: which layers, in which order, on a copy."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

import tokenlight as tl
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for, tokenizer_for
from tokenlight.metrics.sanity import fix_targets, layers_from_top, sanity
from tokenlight.tasks.classification import Classification
from tokenlight.text.tokenized_text import Text, TokenizedText

TEXTS = ["it is a good movie and they are not bad at all", "who wrote the book ?", "unbelievable films are rarely bad"]
QUESTION = ("who wrote the book ?", "the book was written by a young author in Paris")


def test_from_the_head_to_the_embeddings():
    found = sanity(explainer_for("bert"), TEXTS, "gradient_x_input")
    assert [name for name, _ in found] == ["head", "bert.encoder.layer.1", "bert.encoder.layer.0", "embeddings"]
    assert all(-1 <= value <= 1 for _, value in found)
    assert min(abs(value) for _, value in found) < 0.9


def test_a_method_that_reads_no_weights_does_not_change():
    assert all(value == pytest.approx(1) for _, value in sanity(explainer_for("bert"), TEXTS, "random"))


def test_attention_does_not_see_the_head():
    found = dict(sanity(explainer_for("bert"), TEXTS, "raw_attention"))
    assert found["head"] == pytest.approx(1)
    assert found["bert.encoder.layer.1"] < 1


def test_the_same_seed_gives_the_same_numbers():
    explainer = explainer_for("bert")
    one, two, other = (dict(sanity(explainer, TEXTS, "attcat", seed=seed)) for seed in (3, 3, 4))
    assert one == pytest.approx(two)
    assert one != pytest.approx(other)


class ReadsWeights(torch.nn.Module):
    """Uses the weights of a layer without calling it, as torch.nn.MultiheadAttention does, and has one more expert."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.expert = layer, copy.deepcopy(layer)

    def forward(self, state):
        return torch.nn.functional.linear(state, self.layer.weight, self.layer.bias)


def test_all_weights_of_a_block_are_shuffled_with_it():
    explainer = explainer_for("bert")
    model: Any = copy.deepcopy(explainer.inner)
    for block in model.bert.encoder.layer:
        block.output.dense = ReadsWeights(block.output.dense)
    parts = dict(layers_from_top(tl.Explainer(model, explainer.tokenizer), TEXTS[0]))
    for number, block in enumerate(model.bert.encoder.layer):
        shuffled = {id(parameter) for parameter in parts[f"bert.encoder.layer.{number}"]}
        assert shuffled == {id(parameter) for parameter in block.parameters()}


def test_the_model_is_untouched():
    explainer = explainer_for("gpt2", "text-generation")
    before = copy.deepcopy(explainer.model.state_dict())
    sanity(explainer, TEXTS, "attcat")
    after = explainer.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(module._forward_pre_hooks for module in explainer.model.modules())


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "opt", "llama", "gpt_neox"])
def test_every_parameter_is_in_one_part(family):
    explainer = explainer_for(family, "text-classification" if family != "opt" else "text-generation")
    parts = layers_from_top(explainer, TEXTS[0])
    found = [id(parameter) for _, group in parts for parameter in group]
    assert len(found) == len(set(found))
    assert set(found) == {id(parameter) for parameter in explainer.model.parameters()}
    assert (parts[0][0], parts[-1][0]) == ("head", "embeddings")


def test_weights_that_are_read_without_a_call_belong_to_their_block():
    tokenizer = tokenizer_for("gpt2")
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=16, state_size=4, num_hidden_layers=2)
    model = MambaForCausalLM(config).eval()
    parts = dict(layers_from_top(tl.Explainer(model, tokenizer), TEXTS[0]))
    for i, block in enumerate(model.backbone.layers):
        assert {id(one) for one in parts[f"backbone.layers.{i}"]} == {id(one) for one in block.parameters()}


def test_the_explained_target_stays():
    explainer = explainer_for("bert")
    targets: list[object] = []
    explain = tl.Explainer.explain_configs

    def spy(self, *args, **asked):
        found = explain(self, *args, **asked)
        targets.append([e.target for e in found["attcat"]])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tl.Explainer, "explain_configs", spy)
        sanity(explainer, TEXTS, "attcat")
    assert len(targets) == 5
    assert all(one == targets[0] for one in targets)


@pytest.mark.parametrize(
    ("family", "task", "texts", "target"),
    [
        ("bert", "question-answering", [QUESTION], None),
        ("bert", "fill-mask", ["the key [MASK] here and they are not"], None),
        ("bert", "token-classification", TEXTS, (2, None)),
        ("llama", "text-generation", TEXTS, None),
        ("bert", "text-classification", TEXTS, ["positive", 0, "neutral"]),
        ("bert", "text-classification", TEXTS, lambda output: output["logits"].sum(1)),
    ],
)
def test_every_task(family, task, texts, target):
    found = sanity(explainer_for(family, task), texts, "gradient_x_input", target=target, absolute=True)
    assert len(found) == 4


def test_a_model_is_shuffled_behind_its_own_head_mask():
    explainer = tl.load()
    found = sanity(explainer, ["a charming and often affecting journey ."], "mask_lrp")
    assert len(found) == 8  # head, six blocks, embeddings
    assert all(-1 <= similarity <= 1 for _, similarity in found)


def test_all_tokens_of_a_continuation_stay_the_target():
    """Not its first token alone."""
    explainer, ids = explainer_for("llama", "text-generation"), (7, 9)
    explanations = explainer.explain(TEXTS, "gradient_x_input", target=ids)
    (first, *_) = fix_targets(explainer, explanations, ids)
    again = explainer.explain(TEXTS[0], "gradient_x_input", target=first)
    assert again.indices == ids
    assert_near(again.scores, explanations[0].scores)  # alone and in a batch


def test_the_task_is_that_of_the_explainer():
    class Shortened(Classification):
        """Reads no "very"."""

        def encode(self, texts: Sequence[Text]) -> list[TokenizedText]:
            return super().encode([str(text).replace("very ", "") for text in texts])

    plain = explainer_for("bert")
    explainer = tl.Explainer(plain.model, plain.tokenizer, Shortened)
    expected = sanity(plain, ["it is a good movie"], "gradient_x_input")
    assert sanity(explainer, ["it is a very good movie"], "gradient_x_input") == expected
