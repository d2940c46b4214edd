"""Every operation that rules know: the value is torch's own, and the relevance that goes in comes out or is noted."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from tests.rules.test_replacements import BATCH, constant, signal
from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.marks import refuse_pending
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import ALPHA_BETA, ATTN_LRP, LRP, LRP_UNIFORM, STREAM, TABLES, ZPLUS

NAMES = {id(LRP): "LRP", id(LRP_UNIFORM): "LRP_UNIFORM", id(ATTN_LRP): "ATTN_LRP", id(STREAM): "STREAM"}
NAMES |= {id(ALPHA_BETA): "ALPHA_BETA", id(ZPLUS): "ZPLUS"}


def balance(table, function, *inputs):
    """Per example: what arrives at the signals or is noted, and what was given out. And the value."""
    ledger = Ledger(BATCH)
    leaves = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
    with RuleMode(table, ledger):
        output = function(*(leaf.clone() for leaf in leaves))  # the model writes into what it is given, not into a leaf
    output = torch.view_as_real(output) if output.is_complex() else output
    start = torch.randn(output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(5))
    signals = [leaf for leaf in leaves if leaf.requires_grad]
    grads = torch.autograd.grad(output, signals, start, materialize_grads=True)
    arrived = sum((x.detach() * g).reshape(BATCH, -1).sum(1) for x, g in zip(signals, grads, strict=True))
    noted = sum(ledger.total(account) for account in ("bias", "softmax", "branch"))
    return arrived + noted, (output.detach() * start).reshape(BATCH, -1).sum(1), output.detach()


def check(table, function, *inputs):
    found, expected, value = balance(table, function, *inputs)
    torch.testing.assert_close(found, expected)
    assert expected.abs().min() > 1e-3
    plain = function(*(x.detach().clone() for x in inputs))
    torch.testing.assert_close(value, torch.view_as_real(plain) if plain.is_complex() else plain)


MATRIX_PRODUCTS = {
    "torch.matmul": torch.matmul,
    "@": lambda a, b: a @ b,
    "torch.bmm": torch.bmm,
    "einsum": lambda a, b: torch.einsum("bij,bjk->bik", a, b),
    "einsum of a list": lambda a, b: torch.einsum("bij,bjk->bik", [a, b]),
    "baddbmm": lambda a, b: torch.baddbmm(constant(BATCH, 4, 4, seed=3), a, b, beta=0.5, alpha=0.3),
    "Tensor.baddbmm": lambda a, b: constant(BATCH, 4, 4, seed=3).baddbmm(batch1=a, batch2=b, beta=1.0, alpha=0.3),
}


@pytest.mark.parametrize("product", MATRIX_PRODUCTS)
@pytest.mark.parametrize("table", [ATTN_LRP, ZPLUS], ids=lambda table: NAMES[id(table)])
def test_products_of_two_signals_share_evenly(table, product):
    check(table, MATRIX_PRODUCTS[product], signal(BATCH, 4, 4), signal(BATCH, 4, 4, seed=1))


def test_a_product_of_three_signals_gives_each_a_third():
    parts = [signal(BATCH, 4, seed=seed) for seed in range(3)]
    check(ATTN_LRP, lambda a, b, c: torch.einsum("bi,bi,bi->b", a, b, c), *parts)


@pytest.mark.parametrize("product", MATRIX_PRODUCTS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: NAMES[id(table)])
def test_products_of_a_signal_and_a_constant_are_linear(table, product):
    check(table, MATRIX_PRODUCTS[product], signal(BATCH, 4, 4), constant(BATCH, 4, 4))
    check(table, MATRIX_PRODUCTS[product], constant(BATCH, 4, 4), signal(BATCH, 4, 4))


SOFTMAXES = {
    "F.softmax": lambda x: F.softmax(x, dim=-1),
    "torch.softmax": lambda x: torch.softmax(x, -1, torch.float64),
    "Tensor.softmax": lambda x: x.softmax(-1),
}


def attention(softmax, query, key, value):
    scores = torch.matmul(query, key.transpose(1, 2)) / 2.0
    scores += query @ constant(5, 4)  # positions
    scores = scores.masked_fill(torch.ones(4, 4).tril() == 0, -torch.inf)
    return torch.bmm(SOFTMAXES[softmax](scores), value)


@pytest.mark.parametrize("softmax", SOFTMAXES)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: NAMES[id(table)])
def test_attention_in_operations_of_torch(table, softmax):
    """Outside of the interface: scores are products of two signals, under most tables constants."""
    query, key, value = (signal(BATCH, 4, 5, seed=seed) for seed in range(3))
    function = partial(attention, softmax)
    if table is STREAM:  # all that attention adds is cut off
        with RuleMode(table, Ledger(BATCH)):
            assert not function(query, key, value).requires_grad
    else:
        check(table, function, query, key, value)


@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_all_spellings_of_the_softmax_are_one(softmax):
    parts = [signal(BATCH, 4, 5, seed=seed) for seed in range(3)]
    first, second = (balance(ATTN_LRP, partial(attention, name), *parts)[0] for name in ("F.softmax", softmax))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("table", [LRP, LRP_UNIFORM, ALPHA_BETA, STREAM], ids=lambda table: NAMES[id(table)])
def test_scores_that_meet_no_softmax_are_refused_where_attention_is_a_constant(table):
    """Linear attention: whatever follows carries the mark, so that nobody takes it for a constant."""
    query, key, value = (signal(BATCH, 4, 5, seed=seed) for seed in range(3))
    with RuleMode(table, Ledger(BATCH)):
        context = (query @ key.transpose(1, 2)) @ value
        output = F.linear(context, constant(5, 5)) + query
        written = query.clone()
        written += context
        for found in (context, output, written, torch.cat([query, context])):
            with pytest.raises(UnsupportedModelError, match=r"block: torch\.Tensor\.matmul multiplies two signals"):
                refuse_pending((found,), "block")
        with pytest.raises(UnsupportedModelError, match="part of a tensor"):
            query.clone()[:, 1:].copy_(context[:, 1:])


def test_linear_attention_shares_evenly_under_attn_lrp():
    parts = [signal(BATCH, 4, 5, seed=seed) for seed in range(3)]
    check(ATTN_LRP, lambda q, k, v: (q @ k.transpose(1, 2)) @ v, *parts)
