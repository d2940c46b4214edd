"""Rotary positions are linear in queries and keys: every spelling has the plain gradient, under z+ too."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.models.llama import modeling_llama

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import ZPLUS

Spelling = Callable[[Tensor, Tensor, Tensor], Tensor]  # x [..., dim], cos and sin [..., dim / 2] -> [..., dim]


def by_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As Llama writes it."""
    first, second = x.chunk(2, -1)
    return x * torch.cat([cos, cos], -1) + torch.cat([-second, first], -1) * torch.cat([sin, sin], -1)


def each_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As gpt-oss writes it."""
    first, second = torch.chunk(x, 2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def complex_numbers(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As Llama 4 writes it, for halves."""
    pairs = torch.view_as_complex(torch.stack(x.chunk(2, -1), -1).contiguous())
    return torch.cat(torch.view_as_real(pairs * torch.complex(cos, sin)).unbind(-1), -1)


SPELLINGS = [by_halves, each_half, complex_numbers]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_rotation_has_its_plain_gradient(spelling: Spelling):
    torch.manual_seed(0)
    batch = 16  # in some of them, the two sides of a sum have relevance of different signs
    states, upstream = (torch.randn(batch, 3, 8, dtype=torch.float64) for _ in range(2))
    weight, angles = torch.randn(8, 8, dtype=torch.float64), torch.rand(batch, 3, 4, dtype=torch.float64) * 6
    states.requires_grad_()
    with RuleMode(ZPLUS, Ledger(batch)):
        x = F.linear(states, weight)
        rotated = spelling(x, angles.cos(), angles.sin())
    (found,) = torch.autograd.grad(rotated, x, upstream)
    expected = each_half(upstream, angles.cos(), -angles.sin())  # the inverse rotation
    assert_near(found, expected)


def test_a_rotation_of_what_two_layers_gave_has_its_plain_gradient():
    torch.manual_seed(0)
    states, upstream = (torch.randn(16, 3, 8, dtype=torch.float64) for _ in range(2))
    weight, angles = torch.randn(8, 8, dtype=torch.float64), torch.rand(16, 3, 4, dtype=torch.float64) * 6
    states.requires_grad_()
    with RuleMode(ZPLUS, Ledger(16)):
        x = torch.cat([F.linear(states, weight[:4]), F.linear(states, weight[4:])], -1)
        rotated = by_halves(x, angles.cos(), angles.sin())
    (found,) = torch.autograd.grad(rotated, x, upstream)
    assert_near(found, each_half(upstream, angles.cos(), -angles.sin()))


def test_branches_that_join_are_still_shared_by_their_sizes():
    torch.manual_seed(0)
    stream, branch = (torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    upstream = torch.randn(2, 3, 4, dtype=torch.float64)
    with RuleMode(ZPLUS, Ledger(2)):
        total = stream * 2 + branch * 0.5
    parts = (2 * stream, 0.5 * branch)
    shares = [(part * upstream).sum((1, 2)).detach() for part in parts]
    whole = shares[0] + shares[1]
    for tensor, share in zip((stream, branch), shares, strict=True):
        (grad,) = torch.autograd.grad(total, tensor, upstream, retain_graph=True)
        expected = whole * share.abs() / (shares[0].abs() + shares[1].abs())
        assert_near((tensor * grad).sum((1, 2)).detach(), expected)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("method", ["zplus_lrp", "transformer_attribution", "attn_lrp"])
@pytest.mark.parametrize("low_memory", [False, True])
def test_scores_do_not_depend_on_how_a_model_writes_its_rotation(
    spelling: Spelling, method: str, low_memory: bool, monkeypatch: pytest.MonkeyPatch
):
    model, ids = models.model("llama", "text-generation", torch.float64), models.ids(2, 7)
    expected = tl.attribute(model, ids, method=method, target=7)

    def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        cos, sin = (part[:, None, :, : part.shape[-1] // 2].to(q.dtype) for part in (cos, sin))
        return spelling(q, cos, sin), spelling(k, cos, sin)

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", rotate)
    assert_near(tl.attribute(model, ids, method=method, target=7, low_memory=low_memory), expected)
