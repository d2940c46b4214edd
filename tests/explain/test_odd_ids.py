"""Ids without an embedding, ids of other types, rows that are too long: used where that is right, else refused."""

import copy
from functools import cache
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import assert_near, tolerance
from tests.tokenizers_ import explainer_for, model_for, tokenizer_for
from tokenlight.metrics.perturbation import Perturbation

TEXTS = ["the key is here", "it is a good movie and they are not bad"]


@cache
def padded_beyond(family: str, task: str, in_config: bool = False) -> tl.Explainer:
    """A padding token was added to the tokenizer, and the embeddings were not resized: common for Llama."""
    tokenizer = copy.deepcopy(tokenizer_for(family))
    model = copy.deepcopy(model_for(family, task))
    assert tokenizer.add_special_tokens({"pad_token": "<added padding>"}) == 1
    assert tokenizer.pad_token_id == model.get_input_embeddings().num_embeddings
    model.config.pad_token_id = tokenizer.pad_token_id if in_config else None
    return tl.Explainer(model, tokenizer)


@pytest.mark.parametrize("in_config", [False, True])
@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("gpt2", "text-generation"),
        ("llama", "text-generation"),
        ("llama", "text-classification"),
        ("bert", "fill-mask"),
        ("bert", "text-classification"),
        ("bert", "question-answering"),
    ],
)
def test_padding_without_an_embedding_changes_nothing(family, task, in_config):
    explainer, plain = padded_beyond(family, task, in_config), explainer_for(family, task)
    texts: list[Any] = {"fill-mask": ["the [MASK] is here", f"{TEXTS[1]} [MASK]"]}.get(task, TEXTS)
    texts = [("who is it ?", text) for text in texts] if task == "question-answering" else texts
    together = explainer.explain(texts, "gradient_x_input")
    for e, text in zip(together, texts, strict=True):
        assert_near(e.scores, plain.explain(text, "gradient_x_input").scores)
    if task == "text-generation":
        answers = explainer.explain_answer(TEXTS, [" is", " are not bad at all"], "gradient_x_input")
        alone = plain.explain_answer(TEXTS[0], " is", "gradient_x_input")
        assert_near(answers[0].matrix, alone.matrix)
        explainer.explain(TEXTS, "contextcite", ablations=8, units="words")
        assert explainer.generate(TEXTS[0], max_new_tokens=2).ids == plain.generate(TEXTS[0], max_new_tokens=2).ids
    values = [value for one in tl.evaluate(explainer, together, ["aopc"]) for value in one.values()]
    alone = [plain.explain(text, "gradient_x_input").evaluate(["aopc"])["aopc"] for text in texts]
    assert values == pytest.approx(alone, abs=tolerance(torch.float32, 1.0))


def test_padding_without_an_embedding_is_no_replacement():
    explainer = padded_beyond("gpt2", "text-generation")
    message = "the pad token has the id .*, for which the model has no embedding: .*resize_token_embeddings"
    refused: list[tuple[str, dict[str, Any]]] = [
        ("erasure", {"removal": "pad"}),
        ("integrated_gradients", {"baseline": "pad", "steps": 2}),
        ("shapley_sampling", {"removal": "pad", "permutations": 1}),
        ("attn_lrp", {"contexts": 2, "removal": "pad"}),
    ]
    for method, options in refused:
        with pytest.raises(ValueError, match=message):
            explainer.explain(TEXTS, method, **options)
    with pytest.raises(ValueError, match=message):
        Perturbation(removal="pad").fit(explainer.inner, explainer.tokenizer)
    with pytest.raises(ValueError, match="has embeddings for the token ids 0 to"):
        Perturbation(removal=10_000).fit(explainer.inner, explainer.tokenizer)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        explainer.explain(TEXTS[0], "integrated_gradients", baseline=10_000, steps=2)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_text_with_a_token_that_has_no_embedding_is_refused(family):
    tokenizer = copy.deepcopy(tokenizer_for(family))
    tokenizer.add_tokens(["extraordinary"])
    explainer = tl.Explainer(model_for(family), tokenizer)
    with pytest.raises(
        ValueError, match=r"the token 'extraordinary' with the id \d+, but the model has embeddings for"
    ):
        explainer.explain(["a good movie", "an extraordinary movie"])


# --- tl.attribute ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_ids_of_any_integer_type(dtype):
    model, ids = models.model("bert"), models.ids()
    types = (torch.arange(9) > 4).long().expand(3, 9)
    for method in ("gradient_x_input", "erasure"):
        expected = tl.attribute(model, ids, None, types, method=method, target=1)
        found = tl.attribute(model, ids.to(dtype), None, types.to(dtype), method=method, target=1)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.complex64])
def test_ids_that_are_no_integers_are_refused(dtype):
    model, ids = models.model("bert"), models.ids()
    with pytest.raises(ValueError, match="input_ids holds whole numbers"):
        tl.attribute(model, ids.to(dtype), method="attn_lrp")
    with pytest.raises(ValueError, match="token_type_ids holds whole numbers"):
        tl.attribute(model, ids, None, torch.zeros_like(ids).to(dtype), method="attn_lrp")


@pytest.mark.parametrize(("family", "types"), [("bert", 2), ("roberta", 2), ("gpt2", models.VOCABULARY)])
def test_types_that_the_model_does_not_have_are_refused(family, types):
    ids = models.ids()
    for wrong in (types, -1):
        given = torch.zeros_like(ids)
        given[1, 3] = wrong
        with pytest.raises(ValueError, match=f"token_type_ids goes from .*; expected numbers from 0 to {types - 1}"):
            tl.attribute(models.model(family), ids, None, given, method="gradient_x_input")
    with pytest.raises(ValueError, match=r"token_type_ids must be a tensor \[batch, token\]"):
        tl.attribute(models.model(family), ids, None, torch.zeros(3, 8).long(), method="gradient_x_input")


@pytest.mark.parametrize("mask", [torch.full((3, 9), 0.5), torch.full((3, 9), -1), torch.full((3, 9), 2)])
def test_a_mask_of_other_numbers_is_refused(mask):
    with pytest.raises(ValueError, match="1 for tokens and 0 for padding"):
        tl.attribute(models.model("bert"), models.ids(), mask, method="gradient_x_input")


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "opt"])
def test_more_tokens_than_positions_are_refused(family):
    with pytest.raises(ValueError, match=r"rows of 60 tokens, and \w+ has positions for \d+: shorten the rows"):
        tl.attribute(models.model(family), models.ids(1, 60), method="gradient_x_input", target=1)


def test_positions_without_a_table_have_no_end():
    tl.attribute(models.model("llama", "text-generation"), models.ids(1, 60), method="gradient_x_input", target=1)
