"""Every operation that rules know: the value is torch's own, and the relevance that goes in comes out or is noted."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tokenlight as tl
from tests import models
from tests.rules.test_lrp_rules import BATCH, constant, signal
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.ledger import Ledger
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


LINEAR_ATTENTION = {
    "(QK)V": lambda q, k, v: (q @ k.transpose(1, 2)) @ v,
    "Q(KV)": lambda q, k, v: q @ (k.transpose(1, 2) @ v),
    "einsum": lambda q, k, v: torch.einsum("bqd,bde->bqe", q, torch.einsum("bkd,bke->bde", k, v)),
    "a list": lambda q, k, v: torch.einsum("bqd,bkd,bke->bqe", [q, k, v]),
    "a gate on the right": lambda q, k, v: (v.transpose(1, 2) @ torch.sigmoid(q @ k.transpose(1, 2))).transpose(1, 2),
}


@pytest.mark.parametrize("way", LINEAR_ATTENTION)
@pytest.mark.parametrize("table", [LRP, ATTN_LRP, ZPLUS], ids=lambda table: NAMES[id(table)])
def test_linear_attention_conserves(table, way):
    check(table, LINEAR_ATTENTION[way], *(signal(BATCH, 4, 5, seed=seed) for seed in range(3)))


@pytest.mark.parametrize("way", LINEAR_ATTENTION)
@pytest.mark.parametrize("table", [LRP, LRP_UNIFORM, ALPHA_BETA], ids=lambda table: NAMES[id(table)])
def test_in_linear_attention_the_values_take_all_where_attention_is_a_constant(table, way):
    parts = [signal(BATCH, 4, 5, seed=seed) for seed in range(3)]
    with RuleMode(table, Ledger(BATCH)):
        context = LINEAR_ATTENTION[way](*parts)
    taken = torch.autograd.grad(context.sum(), parts, allow_unused=True)
    assert [part is None for part in taken] == [True, True, False]


def test_linear_attention_is_cut_off_with_all_that_a_block_adds():
    parts = [signal(BATCH, 4, 5, seed=seed) for seed in range(3)]
    with RuleMode(STREAM, Ledger(BATCH, inside_block=True)):
        assert not any(way(*parts).requires_grad for way in LINEAR_ATTENTION.values())


def test_a_product_of_a_signal_with_itself_conserves():
    check(LRP, lambda x: x @ x, signal(BATCH, 4, 4))


WRITTEN_OUT_SOFTMAX = {
    "exp and logsumexp": lambda x: torch.exp(x - torch.logsumexp(x, -1, keepdim=True)),
    "of tensors": lambda x: (x - x.logsumexp(-1)[..., None]).exp(),
    "log": lambda x: torch.log(x.exp() + 1.0) + torch.log1p(x.exp()),
}


@pytest.mark.parametrize("way", WRITTEN_OUT_SOFTMAX)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: NAMES[id(table)])
def test_parts_of_a_softmax_conserve(table, way):
    found, expected, _ = balance(table, WRITTEN_OUT_SOFTMAX[way], signal(BATCH, 4, 5))
    torch.testing.assert_close(found, expected)


def test_a_softmax_that_is_written_out_is_one():
    x = signal(BATCH, 4, 5)
    ways = (lambda x: torch.softmax(x, -1), WRITTEN_OUT_SOFTMAX["exp and logsumexp"])
    arrived = []
    for way in ways:
        with RuleMode(ATTN_LRP, Ledger(BATCH)):
            arrived.append(torch.autograd.grad(way(x), x, constant(BATCH, 4, 5, seed=1))[0])
    torch.testing.assert_close(*arrived)


INDEX = torch.tensor([[2, 0, 1, 3], [1, 1, 0, 2], [3, 2, 1, 0]])
MASK = torch.tensor([[True, False, True, False, True]])
OPERATIONS = {
    # constants that are added
    "x + 1.0": lambda x: x + 1.0,
    "1.0 + x": lambda x: 1.0 + x,
    "x - constant": lambda x: x - constant(5),
    "x - number": lambda x: x - 2,
    "1.0 - x": lambda x: 1.0 - x,
    "torch.sub": lambda x: torch.sub(constant(BATCH, 4, 5), x, alpha=2),
    "a constant of another shape": lambda x: x + constant(4, 1),
    # in place
    "+=": lambda x: (y := x * 2).__iadd__(constant(5)) + y,
    "x += 1.0": lambda x: x.add_(1.0),
    "out.add_(y) of a constant": lambda x: (out := constant(BATCH, 4, 5)).add_(x) * 1 + out,
    "-=": lambda x: x.sub_(constant(5)),
    "*=": lambda x: x.mul_(constant(5)),
    "/=": lambda x: x.div_(3.0),
    "relu_": lambda x: F.relu(x, inplace=True) + x,
    "masked_fill_": lambda x: x.masked_fill_(MASK, 7.0),
    "clamp_": lambda x: x.clamp_(-0.5, 0.5),
    "index_add_": lambda x: constant(BATCH, 4, 5).index_add_(1, torch.tensor([1, 1, 0, 3]), x),
    "index_copy_": lambda x: constant(BATCH, 4, 5).index_copy_(1, torch.tensor([1, 2]), x[:, :2]),
    "scatter_": lambda x: constant(BATCH, 4, 5).scatter_(1, INDEX.argsort(1)[..., None].expand(-1, -1, 5), x),
    "copy_ into a part": lambda x: written(torch.zeros(BATCH, 4, 7), slice(0, 5), x),
    "copy_ of a constant into a part": lambda x: written(x * 1, slice(0, 3), constant(BATCH, 4, 3)),
    "x[...] = signal": lambda x: assigned(torch.ones(BATCH, 4, 5), (slice(None), slice(0, 2)), x[:, 2:]),
    "x[...] = constant": lambda x: assigned(x * 1, (slice(None), 0), constant(BATCH, 5)),
    "what a rule returned": lambda x: F.gelu(x).add_(1.0).mul_(2.0) + (x * constant(5)).add_(x),
    "a sum that is written into": lambda x: (x + x * constant(5)).mul_(2.0),
    # bounds, choices, scales
    "clamp": lambda x: x.clamp(max=0.7),
    "torch.max with a constant": lambda x: torch.max(x, torch.tensor(-1e30)),
    "amax": lambda x: x - x.amax(-1, keepdim=True),
    "max pooling": lambda x: x.max(1).values,
    "/ norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "/ sum": lambda x: x / (x.sum(-1, keepdim=True) + 1e-9),
    "F.normalize": lambda x: F.normalize(x, dim=-1),
    "F.rms_norm": lambda x: F.rms_norm(x, (5,), constant(5), 1e-6),
    "a norm written out": lambda x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-6),
    "relu squared": lambda x: F.relu(x).square(),
    "softplus": F.softplus,
    "sigmoid": lambda x: x.sigmoid(),
    "erf": torch.erf,
    # side by side
    "cat": lambda x: torch.cat([x, constant(BATCH, 1, 5)], 1),
    "stack": lambda x: torch.stack([x, constant(BATCH, 4, 5)], -1),
    "where": lambda x: torch.where(MASK, x, 3.0),
    "masked_fill": lambda x: x.masked_fill(MASK, 7.0),
    "F.pad": lambda x: F.pad(x, (1, 0, 0, 2), value=0.5),
    # moves and sums
    "torch.clone": torch.clone,
    "gather": lambda x: x.gather(1, INDEX[..., None].expand(-1, -1, 5)),
    "index_select": lambda x: x.index_select(-1, torch.tensor([0, 3])),
    "take_along_dim": lambda x: torch.take_along_dim(x, INDEX[..., None], 1),
    "topk": lambda x: torch.topk(x, 2, dim=-1).values,
    "roll": lambda x: x.roll(1, 1),
    "narrow": lambda x: x.narrow(-1, 1, 3),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "view_as": lambda x: x.view_as(constant(BATCH, 4, 5)).expand_as(constant(BATCH, 4, 5)),
    "cumsum": lambda x: x.cumsum(1),
    "fft": lambda x: torch.fft.fftn(x, dim=(1, 2)).real,
    "conv1d": lambda x: F.conv1d(x, constant(6, 4, 3), constant(6), padding=1),
    "complex": lambda x: turned(x[..., :4].contiguous().unflatten(-1, (2, 2))),
}
CIRCLE = torch.polar(torch.ones(4, 2, dtype=torch.float64), constant(4, 2))


def turned(x):
    return torch.view_as_real(torch.view_as_complex(x) * CIRCLE)


def written(base, part, source):
    base = base.to(source)
    base[..., part].copy_(source)
    return base


def assigned(base, index, value):
    base = base.to(value)
    base[index] = value
    return base


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: NAMES[id(table)])
def test_relevance_reaches_the_input_or_the_ledger(table, operation):
    if table is ZPLUS and operation == "a norm written out":
        pytest.skip("refused: tests/rules/test_joined_branches.py")
    check(table, OPERATIONS[operation], signal(BATCH, 4, 5))


def test_the_gate_tag_is_kept_up_to_the_product():
    """Of a router: chosen, divided by their sum, scaled; then the signal takes all."""

    def routed(logits, states):
        weights = logits.sigmoid().topk(2, dim=-1).values
        weights = weights / weights.sum(-1, keepdim=True) * 2.5
        return (states[..., None] * weights.unsqueeze(-2)).sum(-1)

    parts = [signal(BATCH, 4, 5), signal(BATCH, 4, 6, seed=1)]
    check(LRP, routed, *parts)
    with RuleMode(LRP, Ledger(BATCH)):
        output = routed(*parts)
    router, states = torch.autograd.grad(output.sum(), parts, materialize_grads=True)
    assert (router == 0).all()
    assert (states != 0).any()


class OwnFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.exp(x)

    @staticmethod
    def backward(ctx, *grads):
        return grads[0]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: NAMES[id(table)])
def test_an_autograd_function_of_the_models_own_is_refused(table):
    with pytest.raises(UnsupportedModelError, match="OwnFunction"), RuleMode(table, Ledger(BATCH)):
        OwnFunction.apply(signal(BATCH, 4)).view(-1)  # type: ignore[union-attr]


def test_a_rule_may_use_an_autograd_function_of_its_own():
    with RuleMode(LRP | {torch.exp: lambda function, x: OwnFunction.apply(x)}, Ledger(BATCH)):
        assert torch.exp(signal(BATCH, 4)).view(-1).requires_grad


# Rows in another order: what an operation keeps belongs to the text that the row is of.
ORDERS = {
    "picked and put back": lambda x: torch.zeros(BATCH, 5, dtype=x.dtype).index_add_(
        0, torch.tensor([2, 0]), F.linear(x[[2, 0]], EYE, BIAS)
    ),
    "picked twice": lambda x: torch.zeros(BATCH, 5, dtype=x.dtype).index_add_(
        0, torch.tensor([2, 0, 2]), (x[torch.tensor([2, 0, 2])] @ EYE + BIAS) * 2
    ),
    "transposed": lambda x: (x.t() + 2.0).t(),
    "every expert sees all": lambda x: (torch.bmm(x.repeat(2, 1).view(2, -1, 5), EYES) + BIAS).sum(0),
    "stacked": lambda x: F.linear(torch.stack([x, 2 * x]), EYE, BIAS).transpose(0, 1),
    "einsum, all sizes equal": lambda x: (torch.einsum("bt,nd->tbnd", x[:, :BATCH], CUBE) + CUBE).transpose(0, 1),
    "back by einsum": lambda x: torch.einsum("tbn,nd->btd", x[:, :BATCH].t()[..., None] + CUBE, CUBE),
    "sums of signals": lambda x: torch.zeros(BATCH, 5, dtype=x.dtype).index_add_(
        0, torch.tensor([1, 0]), x[[1, 0]] + (2 * x)[[1, 0]]
    ),
}
EYE, BIAS = constant(5, 5, seed=4), constant(5, seed=3)
CUBE = constant(BATCH, BATCH, seed=2)
EYES = torch.stack([EYE, EYE])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: NAMES[id(table)])
def test_absorbed_relevance_is_entered_for_the_right_text(table, order):
    found, expected, _ = balance(table, ORDERS[order], signal(BATCH, 5))
    torch.testing.assert_close(found, expected)


def test_a_vector_expanded_to_all_tokens_is_a_bias_not_a_branch():
    x, bias = signal(BATCH, 4, 5), constant(5)
    for summand, account in ((bias.expand_as(x), "bias"), (constant(BATCH, 4, 5), "branch")):
        ledger = Ledger(BATCH)
        ledger.inside_block = True
        with RuleMode(STREAM, ledger):
            output = x + summand
        torch.autograd.grad(output.sum(), x)
        torch.testing.assert_close(ledger.total(account), summand.reshape(BATCH, -1).sum(1))


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x


class Scripted(nn.Module):
    """Code that no mode sees: its sine has no rule, and its product would be taken for a plain gradient."""

    def __init__(self, dense: nn.Module):
        super().__init__()
        self.dense = dense

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scripted(self.dense(x))


def test_a_scripted_function_is_refused_by_relevance_methods_alone():
    model: Any = copy.deepcopy(models.model("bert"))
    for layer in model.bert.encoder.layer:
        layer.intermediate.dense = Scripted(layer.intermediate.dense)
    for _ in range(3):  # TorchScript runs other code from the second and third call on
        with pytest.raises(tl.UnsupportedModelError, match=r"torch\.jit\.script"):
            tl.attribute(model, models.ids(), method="lrp", target=1)
    assert torch.isfinite(tl.attribute(model, models.ids(), method="gradient_x_input", target=1)).all()


def test_a_tensor_may_be_unpacked():
    x = torch.randn(2, 3, requires_grad=True)
    with RuleMode(LRP, Ledger(2)):
        first, second = x * 2
        total = first + second
    (grad,) = torch.autograd.grad(total.sum(), x)
    assert torch.equal(grad, torch.full_like(x, 2))


@torch.jit.script
def capped(x: torch.Tensor) -> torch.Tensor:
    return 2 * torch.tanh(x / 2)


class CappedLinear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return capped(super().forward(input))


@pytest.mark.parametrize("low_memory", [False, True])
def test_scripted_code_is_seen_as_the_last_operation(low_memory):
    model: Any = copy.deepcopy(models.model("bert"))
    model.classifier.__class__ = CappedLinear
    with pytest.raises(UnsupportedModelError, match=r"torch\.jit\.script"):
        tl.attribute(model, models.ids(), method="lrp", target=1, low_memory=low_memory)


def test_a_scripted_function_may_be_an_attribute():
    model: Any = copy.deepcopy(models.model("bert"))
    model.bert.pooler.formula = capped
    assert torch.isfinite(tl.attribute(model, models.ids(), method="attn_lrp", target=1)).all()


def test_sums_of_the_same_signal_are_followed_once_each():
    """The walk takes as many steps as the graph has operations, not as many as it has paths."""
    x = torch.randn(1, 2, 4, requires_grad=True)
    with RuleMode(ZPLUS, Ledger(1)):
        y = x * 1
        for _ in range(200):
            y = y + 0.1 * y.roll(1, -1)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.isfinite(grad).all()
