"""Activations are recognized by what they compute, also if they consist of several operations."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2CLS, ACT2FN, GELUActivation, NewGELUActivation

import tokenlight as tl
from tests import models
from tests.together import together
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.custom_ops import activation
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import ATTN_LRP, LRP, STREAM, TABLES, ZPLUS

METHODS = ["lrp", "attn_lrp", "zplus_lrp", "alpha_beta_lrp", "calibrated_lrp", "mask_lrp", "logit"]


def new_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class QuickGelu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:  # of x alone, the module would be known as a whole
        return x * torch.sigmoid(1.702 * x)


class WrittenOutGelu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return new_gelu(x)


class OneOperation(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return activation(x, new_gelu)


class Cubed(nn.Module):
    """As some write it: no function for the power."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return 0.5 * x * (1.0 + F.tanh(0.79788 * (x + 0.044715 * x * x * x)))


class Reshaped(nn.Module):
    """The gate takes another way through views, casts and a cut."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        gate = x.reshape(-1, x.shape[-1]).contiguous().view(*x.shape).to(x.dtype).clone()
        return x[..., :].mul(F.hardsigmoid(gate.transpose(0, 1)).transpose(0, 1))


class ErfGelu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class QuotientSilu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return x / (1.0 + torch.exp(-x))


class TwoTermGelu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return x / 2 + x / 2 * torch.erf(x / math.sqrt(2.0))


class ChosenElu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return torch.where(x > 0, x, torch.exp(x) - 1.0)


class BoundedRelu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return torch.maximum(torch.zeros_like(x), x)


class MaskedRelu(nn.Module):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return x * (x > 0)


def gpt2_with(make: Callable[[], nn.Module], task: str = "text-classification") -> Any:
    model: Any = copy.deepcopy(models.model("gpt2", task, torch.float64))
    for block in model.transformer.h:
        block.mlp.act = make()
    return model


def explained(model: Any, name: str) -> Tensor:
    return tl.attribute(model, models.ids(), method=name, target=1, **models.quick_options(name))


def compare(one: Callable[[], nn.Module], other: Callable[[], nn.Module], names: Sequence[str], **allowed: Any) -> None:
    """All these methods give both activations the same scores."""
    found, expected = (together(gpt2_with(make), names, models.ids(), target=1) for make in (one, other))
    for name in names:
        torch.testing.assert_close(found[name].scores, expected[name].scores, **allowed, msg=name)


EXACTLY = {"rtol": 0, "atol": 0}


def as_one(kind: type[nn.Module]) -> Callable[[], nn.Module]:
    """The same formula, as one operation."""

    class AsOne(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return activation(x, kind().forward)

    return AsOne


OTHERS = [QuotientSilu, TwoTermGelu, ChosenElu, BoundedRelu, MaskedRelu]


@pytest.mark.parametrize("kind", [QuickGelu, WrittenOutGelu, ErfGelu, Reshaped, *OTHERS[1:]])
def test_an_activation_that_is_written_out_is_one_operation(kind):
    compare(kind, as_one(kind), METHODS, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_signal_that_multiplies_itself_is_refused(name, low_memory):
    with pytest.raises(UnsupportedModelError, match=r"Cubed multiplies a signal with a gate .* same signal"):
        tl.attribute(
            gpt2_with(Cubed),
            models.ids(),
            method=name,
            target=1,
            low_memory=low_memory,
            **models.quick_options(name),
        )


def test_methods_without_rules_accept_a_signal_times_itself():
    names = ("gradient_x_input", "generic_attention", "rollout")
    compare(WrittenOutGelu, NewGELUActivation, names, rtol=1e-9, atol=1e-11)


def test_torchs_class_gives_what_transformers_class_does():
    compare(nn.GELU, GELUActivation, METHODS, **EXACTLY)


def test_a_formula_as_one_operation_gives_what_transformers_class_does():
    compare(OneOperation, NewGELUActivation, METHODS, **EXACTLY)


def test_a_class_of_the_users_that_extends_transformers_is_known():
    class Mine(NewGELUActivation):
        pass

    assert torch.equal(explained(gpt2_with(Mine), "attn_lrp"), explained(gpt2_with(NewGELUActivation), "attn_lrp"))


@pytest.mark.parametrize("key", [key for key in ACT2CLS if key != "xielu"])  # which has to be built in half precision
def test_every_activation_of_transformers_is_one_operation(key):
    """The same value as one operation of ours gives the same scores."""

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.formula = [ACT2FN[key].double()]  # in a list: no part of the model, so nobody recognizes it

        def forward(self, x: Tensor) -> Tensor:
            return activation(x, self.formula[0])

    compare(lambda: ACT2FN[key].double(), Wrapped, ("lrp", "attn_lrp", "zplus_lrp"), **EXACTLY)


TORCH = [nn.ELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardtanh, nn.Hardswish, nn.LeakyReLU, nn.LogSigmoid, nn.PReLU]
TORCH += [nn.ReLU, nn.ReLU6, nn.RReLU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Softshrink]
TORCH += [nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Sigmoid, lambda: nn.Threshold(0.1, 0.0)]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", TORCH)
def test_every_activation_of_torch_passes_relevance_unchanged(kind, table):
    torch.manual_seed(0)
    module, leaf = kind().double().eval().requires_grad_(False), torch.randn(2, 3, 8, dtype=torch.float64)
    leaf.requires_grad_()
    with RuleMode(table, Ledger(2)):  # outside of a block, where STREAM passes relevance, too
        result = module(leaf)
    arriving = torch.randn_like(result)
    (gradient,) = torch.autograd.grad(result, leaf, arriving)
    torch.testing.assert_close(gradient * leaf, arriving * result)


@pytest.mark.parametrize("kind", OTHERS)
def test_an_activation_that_is_written_out_is_a_gate(kind):
    """In a product with a signal of another layer, the signal takes all under LRP."""
    gate, signal = (torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    with RuleMode(LRP, Ledger(2)):
        product = kind()(gate * 1) * (signal * 1)
    grads = torch.autograd.grad(product.sum(), [gate, signal], materialize_grads=True)
    assert not grads[0].any()
    torch.testing.assert_close(grads[1], kind()(gate).detach())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("table", [LRP, ATTN_LRP, STREAM, ZPLUS])
def test_gated_layers_are_no_activation(table, fused):
    """Gate and signal of layers of their own, or of one layer whose result is cut in two."""
    x, weight = torch.randn(2, 3, 8, requires_grad=True), torch.randn(12, 8)
    with RuleMode(table, Ledger(2)):
        if fused:
            gate, up = F.linear(x, weight).chunk(2, dim=-1)
        else:
            gate, up = F.linear(x, weight[:6]), F.linear(x, weight[6:])
        assert (F.silu(gate) * up).requires_grad


def test_masks_and_scales_of_the_same_shape_are_no_gate():
    x = torch.randn(2, 3, 8, requires_grad=True)
    with RuleMode(ATTN_LRP, Ledger(2)):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        assert (x * scale * torch.ones_like(x) * torch.ones(8).type_as(x)).requires_grad
