"""Where padding changes relevance, texts of unequal lengths are refused together and explained alone."""

import pytest
import torch

import tokenlight as tl
from tests import models
from tokenlight.families.tiny_models import tiny_model
from tokenlight.foundation.errors import UnsupportedModelError


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    ids, mask = models.ids(2, 9), torch.ones(2, 9, dtype=torch.long)
    ids[1, 6:], mask[1, 6:] = 0, 0
    return ids, mask


@pytest.mark.parametrize("name", ["zplus_lrp", "transformer_attribution"])
def test_positions_that_count_from_the_end_of_padding_are_noticed(name):
    model = tiny_model("mpt", "text-generation").double()  # its ALiBi does
    ids, mask = padded()
    with pytest.raises(UnsupportedModelError, match=r"other scores than alone .* batch_size=1"):
        tl.attribute(model, ids, mask, method=name, target=7)
    together = tl.attribute(model, ids[:, :6], method=name, target=7)
    alone = tl.attribute(model, ids[1:, :6], method=name, target=7)
    torch.testing.assert_close(together[1], alone[0], rtol=0, atol=1e-9 * float(alone.abs().max()))
    assert tl.attribute(model, ids, mask, method="attn_lrp", target=7).isfinite().all()


def test_where_padding_does_not_count_nothing_is_refused():
    model = tiny_model("gptj", "text-generation").double()
    assert tl.attribute(model, *padded(), method="transformer_attribution", target=7).isfinite().all()
