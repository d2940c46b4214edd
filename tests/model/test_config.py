"""A forward of somebody's own gets every input that it hands on, whether it names it or not."""

from typing import Any

import pytest
import torch
import transformers as hf

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tokenlight.common.errors import UnsupportedModelError


class KeywordsForSequenceClassification(hf.BertForSequenceClassification):
    def forward(self, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(**kwargs)


class IdsAndKeywordsForSequenceClassification(hf.BertForSequenceClassification):
    def forward(self, input_ids: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(input_ids, **kwargs)


class AroundForSequenceClassification(hf.BertPreTrainedModel):
    def __init__(self, config: Any):
        super().__init__(config)
        self.inner = hf.BertForSequenceClassification(config)
        self.post_init()

    def get_input_embeddings(self) -> Any:
        return self.inner.get_input_embeddings()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


class NoTypesForSequenceClassification(hf.DistilBertPreTrainedModel):
    """What it wraps knows no token types."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.inner = hf.DistilBertForSequenceClassification(config)
        self.post_init()

    def get_input_embeddings(self) -> Any:
        return self.inner.get_input_embeddings()

    def forward(self, **kwargs: Any) -> Any:
        return self.inner(**kwargs)


class PositionalForSequenceClassification(hf.BertForSequenceClassification):
    def forward(self, input_ids: Any, attention_mask: Any, *args: Any, return_dict: bool = True) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(input_ids, attention_mask, *args)


def with_weights_of(plain: Any, kind: Any) -> Any:
    model = kind(plain.config).eval()
    getattr(model, "inner", model).load_state_dict(plain.state_dict())
    return model


def padded_pairs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mask = (torch.arange(9) < torch.tensor([9, 4, 6])[:, None]).long()
    return models.ids(3, 9) * mask + (1 - mask), mask, (torch.arange(9) > 2).long() * mask


@pytest.mark.parametrize("method", ["gradient_x_input", "erasure", "attn_lrp"])
@pytest.mark.parametrize(
    "kind",
    [KeywordsForSequenceClassification, IdsAndKeywordsForSequenceClassification, AroundForSequenceClassification],
)
def test_inputs_passed_on_by_keyword_reach_the_model(kind, method):
    plain, inputs = models.model("bert"), padded_pairs()
    expected = tl.attribute(plain, *inputs, method=method, target=1)
    assert_near(tl.attribute(with_weights_of(plain, kind), *inputs, method=method, target=1), expected)


def test_position_ids_are_passed_for_left_padding():
    plain, ids = models.model("bert", "fill-mask"), models.ids(1, 4)

    class KeywordsForMaskedLM(hf.BertForMaskedLM):
        def forward(self, input_ids: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().forward(input_ids, **kwargs)

    model = with_weights_of(plain, KeywordsForMaskedLM)
    alone = tl.attribute(plain, ids, method="gradient_x_input", target=(2, 7))
    ids, mask = torch.nn.functional.pad(ids, (3, 0), value=1), torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    assert_near(tl.attribute(model, ids, mask, method="gradient_x_input", target=(5, 7))[:, 3:], alone)


def test_inputs_that_no_module_names_are_left_out():
    plain, inputs = models.model("distilbert"), padded_pairs()
    expected = tl.attribute(plain, *inputs, method="gradient_x_input", target=1)
    model = with_weights_of(plain, NoTypesForSequenceClassification)
    assert_near(tl.attribute(model, *inputs, method="gradient_x_input", target=1), expected)


def test_positional_inputs_are_refused():
    model = with_weights_of(models.model("bert"), PositionalForSequenceClassification)
    with pytest.raises(UnsupportedModelError, match=r"by position \(\*args\).*token_type_ids would be left out"):
        tl.attribute(model, *padded_pairs(), method="gradient_x_input", target=1)
