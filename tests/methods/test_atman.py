"""AtMan: against a plain model whose attention scores are changed where they meet the softmax."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.diagnostics.tiny_models import tiny_model
from tokenlight.methods import METHODS

FACTOR = 0.9
USUAL = ["bert", "distilbert", "gpt2", "opt", "gpt_neox", "llama", "mistral", "gemma2"]
OWN_ATTENTION = ["deberta-v2", "bloom", "gptj", "mpnet", "falcon", "xlnet", "ctrl", "xlm"]  # outside of the interface
SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax)
Change = Callable[[Tensor], Tensor]  # of scores [..., query, key], -inf where a query may not look


class AtTheSoftmax(TorchFunctionMode):
    """Changes what every softmax over the keys of a plain model gets."""

    def __init__(self, change: Change, tokens: int):
        super().__init__()
        self.change, self.tokens = change, tokens

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in SOFTMAXES and args[0].shape[-2:] == (self.tokens, self.tokens):
            scores = args[0]
            visible = scores > -5000.0
            changed = self.change(scores.masked_fill(~visible, -torch.inf))
            args = (changed.masked_fill(~visible, -torch.inf), *args[1:])
        return func(*args, **(kwargs or {}))


def eager(model: PreTrainedModel) -> PreTrainedModel:
    model.set_attn_implementation("eager")
    return model


def by_hand(model: PreTrainedModel, ids: Tensor, read: Callable[[Tensor], Tensor], change: Change) -> Tensor:
    """[batch] the number, where attention is changed."""
    with torch.no_grad(), AtTheSoftmax(change, ids.shape[1]):
        return read(model(ids).logits)


def times(factors: Sequence[float] | Tensor) -> Change:
    return lambda scores: torch.where(scores.isinf(), scores, scores * torch.as_tensor(factors, dtype=scores.dtype))


def one_token(token: int, tokens: int, factor: float = FACTOR) -> Tensor:
    factors = torch.ones(tokens, dtype=torch.float64)
    factors[token] = 1 - factor
    return factors


def log_probability(task: str, index: int) -> Callable[[Tensor], Tensor]:
    if task == "text-classification":
        return lambda logits: logits.double().log_softmax(-1)[:, index]
    return lambda logits: logits.double()[:, -1].log_softmax(-1)[:, index]


def falls_by_hand(model: PreTrainedModel, ids: Tensor, task: str, index: int, factor: float = FACTOR) -> Tensor:
    """[batch, token]"""
    read, tokens = log_probability(task, index), ids.shape[1]
    whole = by_hand(model, ids, read, lambda scores: scores)
    found = [by_hand(model, ids, read, times(one_token(token, tokens, factor))) for token in range(tokens)]
    return torch.stack([whole - one for one in found], 1)


@cache
def model_of(family: str) -> tuple[PreTrainedModel, str]:
    if family in models.FAMILIES:
        task = models.default_task(family)
        return eager(models.make(family, task, torch.float64)), task
    task = "text-classification" if family in ("deberta-v2", "mpnet") else "text-generation"
    return eager(tiny_model(family, task).double()), task


def words(batch: int = 2, tokens: int = 6) -> Tensor:
    return torch.randint(6, 30, (batch, tokens), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("factor", [FACTOR, 1.0, -0.5])
@pytest.mark.parametrize("family", [*USUAL, *OWN_ATTENTION])
def test_scores_to_a_token_are_multiplied_in_every_layer_and_head(family, factor):
    model, task = model_of(family)
    ids, index = words(), 1
    expected = falls_by_hand(model, ids, task, index, factor)
    found = tl.attribute(model, ids, method="atman", target=index, factor=factor)
    exact = family in ("bert", "distilbert", "gpt2", "deberta-v2", "mpnet", "xlnet")  # no float32 inside
    assert_near(found, expected, size=1.0, precision=torch.float64 if exact else torch.float32)
    assert expected.abs().max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "gpt2", "bloom"])
def test_shifted_scores_count_from_the_least_that_a_query_sees(family):
    model, task = model_of(family)
    ids, read = words(), log_probability(task, 1)

    def shifted(token: int) -> Change:
        def change(scores: Tensor) -> Tensor:
            least = scores.masked_fill(scores.isinf(), torch.inf).amin(-1, keepdim=True)
            return times(one_token(token, ids.shape[1]))(scores - least)

        return change

    whole = by_hand(model, ids, read, lambda scores: scores)
    expected = torch.stack([whole - by_hand(model, ids, read, shifted(token)) for token in range(6)], 1)
    found = tl.attribute(model, ids, method="atman", target=1, shift=True)
    assert_near(found, expected, size=1.0, precision=torch.float32 if family == "bloom" else torch.float64)
    assert not torch.allclose(found, tl.attribute(model, ids, method="atman", target=1), atol=1e-4)


def test_similar_tokens_are_suppressed_by_their_cosine():
    model, task = model_of("bert")
    ids, read = words(), log_probability(task, 1)
    ids[:, 4] = ids[:, 1]  # the same word twice: a cosine of 1
    vectors = model.get_input_embeddings()(ids).detach()
    cosines = F.cosine_similarity(vectors[:, :, None], vectors[:, None], dim=-1)
    threshold = 0.1
    assert ((cosines > threshold) & (cosines < 0.9)).any()
    whole = by_hand(model, ids, read, lambda scores: scores)
    expected = torch.zeros(ids.shape, dtype=torch.float64)
    for text in range(len(ids)):
        for token in range(ids.shape[1]):
            near = cosines[text, token].where(cosines[text, token] >= threshold, 0.0)
            near[token] = 1.0
            changed = by_hand(model, ids[text : text + 1], read, times(1 - FACTOR * near))
            expected[text, token] = whole[text] - changed[0]
    found = tl.attribute(model, ids, method="atman", target=1, similarity=threshold)
    assert_near(found, expected, size=1.0)
    assert_near(found[:, 1], found[:, 4], size=1.0)  # each takes the other along
    alone = tl.attribute(model, ids, method="atman", target=1)
    assert not torch.allclose(found, alone, atol=1e-4)
    same_words = tl.attribute(model, ids, method="atman", target=1, similarity=1.0)
    assert_near(same_words[:, [0, 2, 3, 5]], alone[:, [0, 2, 3, 5]], size=1.0)
    assert not torch.allclose(same_words[:, 1], alone[:, 1], atol=1e-4)


def test_padding_is_similar_to_nothing():
    model, _ = model_of("bert")
    ids = words(1, 5)
    ids[0, 2] = 1  # the padding's own id, as a word
    padded = torch.cat([ids, torch.ones(1, 3, dtype=torch.long)], 1)
    mask = torch.tensor([[1] * 5 + [0] * 3])
    alone = tl.attribute(model, ids, method="atman", target=1, similarity=0.2, shift=True)
    beside = tl.attribute(model, padded, mask, method="atman", target=1, similarity=0.2, shift=True)
    assert_near(beside[:, :5], alone, size=1.0)
    assert (beside[:, 5:] == 0).all()


def test_the_explained_number_in_place_of_the_log_probability():
    model, _ = model_of("bert")
    ids = words()
    found = tl.attribute(model, ids, method="atman", target=1, output="score")
    whole = by_hand(model, ids, lambda logits: logits[:, 1], lambda scores: scores)
    falls = [whole - by_hand(model, ids, lambda logits: logits[:, 1], times(one_token(i, 6))) for i in range(6)]
    assert_near(found, torch.stack(falls, 1), size=1.0)


def test_more_changes_than_run_together_are_the_same():
    model = models.model("bert", dtype=torch.float64)
    ids = models.ids(3, 30)  # 90 changes
    together = tl.attribute(model, ids, method="atman", target=1)
    alone = torch.cat([tl.attribute(model, row[None], method="atman", target=1) for row in ids])
    assert_near(together, alone, size=1.0)


def test_attention_is_written_out():
    explainer = explainer_for("bert")
    assert explainer.explain("not bad", "atman").fused is False
    assert explainer.explain_all("not bad", ["atman", "erasure"])["erasure"].fused is True
    with pytest.raises(ValueError, match="fused=True: atman need attention weights, which fused"):
        explainer.explain("not bad", "atman", fused=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 1.5}, "factor is at most 1"),
        ({"factor": 0}, "factor is at most 1"),
        ({"factor": float("nan")}, "factor is at most 1"),
        ({"similarity": 1.5}, "similarity is a cosine from 0 to 1"),
        ({"output": "loss"}, "output is 'log_probability' or 'score', found 'loss'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tl.attribute(models.model("bert"), models.ids(), method="atman", target=1, **options)


@pytest.mark.parametrize("family", list(models.RECURRENT))
def test_models_with_other_ways_between_tokens_are_refused(family):
    model = models.model(family, "text-generation")
    assert not METHODS["atman"].fits(model)
    with pytest.raises(UnsupportedModelError, match=r"other ways than attention.*erasure"):
        tl.attribute(model, models.ids(), method="atman", target=7)


def test_scores_that_count_distances_from_the_end_of_the_batch_are_refused():
    """MPT's ALiBi: with padding or later tokens, all scores of a query are lower by a constant."""
    model, ids = tiny_model("mpt", "text-generation"), models.ids(2, 9)
    with pytest.raises(UnsupportedModelError, match=r"depends on how long the batch is.*shift=True"):
        tl.attribute(model, ids, method="atman", target=7)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    beside = tl.attribute(model, ids, mask, method="atman", target=7, shift=True)
    alone = tl.attribute(model, ids[1:, :5], method="atman", target=7, shift=True)
    assert_near(beside[1, :5], alone[0], growth=SHARES)
