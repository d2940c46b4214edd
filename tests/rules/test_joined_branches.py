"""Residual branches that join by other operations than `+`, and norms that a block writes out, under z+."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import ZPLUS

Join = Callable[[Tensor, Tensor], Tensor]
METHODS = ["zplus_lrp", "transformer_attribution", "partial_lrp"]
AS_A_SUM: dict[str, Join] = {
    "stack": lambda x, y: torch.stack([x, y]).sum(0),
    "last axis": lambda x, y: torch.stack([x, y], -1).sum(-1),
    "tuple": lambda x, y: torch.sum(torch.stack((x, y)), dim=(0,)),
    "kept axis": lambda x, y: torch.stack([x, y], 1).sum(1, keepdim=True).squeeze(1),
    "cat": lambda x, y: torch.cat([x[None], y[None]]).sum(0),
    "mean": lambda x, y: torch.stack([x, y]).mean(0) * 2,
}
REFUSED: dict[str, Join] = {
    "cumsum": lambda x, y: torch.stack([x, y]).cumsum(0)[-1],
    "view": lambda x, y: torch.cat([x, y], -1).view(*x.shape[:-1], 2, x.shape[-1]).sum(-2),
    "product": lambda x, y: torch.stack([x, y], -1) @ torch.ones(2, dtype=x.dtype),
    "einsum": lambda x, y: torch.einsum("n...,n->...", torch.stack([x, y]), torch.ones(2, dtype=x.dtype)),
    "weighted": lambda x, y: (torch.stack([x, y]) * torch.ones(2, 1, 1, 1, dtype=x.dtype)).sum(0),
    "index_add": lambda x, y: x.clone().index_add_(1, torch.arange(x.shape[1]), y),
    "scatter_add": lambda x, y: x.scatter_add(1, torch.arange(x.shape[1])[None, :, None].expand_as(y), y),
}


def llama(join: Join) -> Any:
    """A model whose blocks join their branches by this function."""
    model = copy.deepcopy(models.model("llama", "text-generation", torch.float64))

    def forward(self: Any, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        hidden_states = join(hidden_states, attended)
        return join(hidden_states, self.mlp(self.post_attention_layernorm(hidden_states)))

    for block in model.model.layers:
        block.__class__ = type("Block", (type(block),), {"forward": forward})
    return model


@pytest.mark.parametrize("join", AS_A_SUM)
@pytest.mark.parametrize("method", METHODS)
def test_branches_that_are_stacked_and_added_share_as_in_a_sum(join, method):
    model, ids = models.model("llama", "text-generation", torch.float64), models.ids(3, 6)
    expected = tl.attribute(model, ids, method=method, target=7)
    assert_near(tl.attribute(llama(AS_A_SUM[join]), ids, method=method, target=7), expected, growth=SHARES)


@pytest.mark.parametrize("join", REFUSED)
@pytest.mark.parametrize("method", METHODS)
def test_other_ways_to_add_branches_are_refused(join, method):
    with pytest.raises(UnsupportedModelError, match=r"write it as a sum|cannot follow"):
        tl.attribute(llama(REFUSED[join]), models.ids(3, 6), method=method, target=7)


@pytest.mark.parametrize("join", [*AS_A_SUM.values(), *REFUSED.values()])
def test_the_plain_gradient_is_right_for_every_way_to_add_branches(join):
    model, ids = models.model("llama", "text-generation", torch.float64), models.ids(1, 6)
    expected = tl.attribute(model, ids, method="attn_lrp", target=7)
    assert_near(tl.attribute(llama(join), ids, method="attn_lrp", target=7), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_within_branches_and_of_parallel_branches_have_their_plain_gradient(axis):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True), torch.randn(2, 4, 4, dtype=torch.float64)
    with RuleMode(ZPLUS, Ledger(2)):
        first, second = (F.linear(x, one) for one in weight)
        parallel, within = torch.stack([first, second]).sum(0), torch.stack([x, first]).sum(axis + 1)
    upstream = torch.randn_like(parallel)
    for branch in (first, second):
        (grad,) = torch.autograd.grad(parallel, branch, upstream, retain_graph=True)
        assert torch.equal(grad, upstream)
    upstream = torch.randn_like(within)
    (grad,) = torch.autograd.grad(within, first, upstream)
    assert torch.equal(grad, upstream[1].unsqueeze(axis).expand_as(grad))


@pytest.mark.parametrize("low_memory", [False, True])
def test_a_layer_norm_that_a_block_writes_out_is_refused(low_memory):
    def normed(x: Tensor, y: Tensor) -> Tensor:
        x = x + y
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)

    model, ids = llama(normed), models.ids(3, 6)
    with pytest.raises(UnsupportedModelError, match=r"layer norm .* written out"):
        tl.attribute(model, ids, method="zplus_lrp", target=7, low_memory=low_memory)
    expected = tl.attribute(llama(lambda x, y: F.layer_norm(x + y, x.shape[-1:])), ids, method="lrp", target=7)
    assert_near(tl.attribute(model, ids, method="lrp", target=7, low_memory=low_memory), expected, growth=SHARES)
