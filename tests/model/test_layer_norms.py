"""Layer norms that families write out: the same scores as with torch's."""

import copy
import math
from typing import Any

import accelerate
import pytest
import torch
import transformers as hf
from torch import nn
from torch.nn import functional as F

import tokenlight as tl
from tests import models
from tests.model.test_module_ops import model as recurrent_model
from tests.rounding import assert_near
from tokenlight.diagnostics.tiny_models import randomize_weights, tiny_model
from tokenlight.model.layer_norms import find_parameters, may_be_layer_norm
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import TABLES

WRITTEN_OUT = {
    "deberta": "text-classification",
    "cohere": "text-generation",
    "cohere2": "text-generation",
}
METHODS = ("zplus_lrp", "partial_lrp", "transformer_attribution", "alpha_beta_lrp", "lrp", "attn_lrp", "alti_logit")


class TorchNorm(nn.Module):
    """One weight for all heads, or one for each."""

    def __init__(self, module: Any):
        super().__init__()
        self.weight, self.bias, self.eps = module.weight, getattr(module, "bias", None), module.variance_epsilon

    def forward(self, hidden_states):
        if self.weight.ndim == 1:
            return F.layer_norm(hidden_states, self.weight.shape, self.weight, self.bias, self.eps)
        return F.layer_norm(hidden_states, self.weight.shape[-1:], eps=self.eps) * self.weight


def with_torch_norms(model: Any) -> Any:
    model = copy.deepcopy(model)
    replaced = 0
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__.endswith("LayerNorm") and not isinstance(child, nn.LayerNorm):
                setattr(module, name, TorchNorm(child))
                replaced += 1
    assert replaced
    return model


def written_out_model(family: str) -> Any:
    if family != "cohere[qk norm]":
        return tiny_model(family, WRITTEN_OUT[family]).double()
    config = copy.deepcopy(tiny_model("cohere", "text-generation").config)
    config.use_qk_norm = True
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    randomize_weights(model, 1.6)
    return model.double()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", [*WRITTEN_OUT, "cohere[qk norm]"])
def test_scores_equal_those_with_torchs_layer_norm(family, method):
    model, ids = written_out_model(family), models.ids(2)
    found, expected = (tl.attribute(one, ids, method=method, target=1) for one in (model, with_torch_norms(model)))
    assert_near(found, expected, growth=100)


class JoinedTorchNorm(nn.Module):
    def __init__(self, module: Any):
        super().__init__()
        self.weight, self.eps = module.weight, module.eps

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], eps=self.eps).flatten(-2) * self.weight


@pytest.mark.parametrize("method", ["zplus_lrp", "alpha_beta_lrp", "lrp", "attn_lrp"])
def test_a_norm_that_joins_heads_scores_as_torchs(method):
    model = recurrent_model("xlstm")
    other: Any = copy.deepcopy(model)
    for block in other.backbone.blocks:
        block.mlstm_layer.multihead_norm = JoinedTorchNorm(block.mlstm_layer.multihead_norm)
    found, expected = (tl.attribute(one, models.ids(2), method=method, target=1) for one in (model, other))
    assert_near(found, expected, growth=100)


def test_offloaded_weights_are_read_where_they_are_loaded():
    model: Any = tiny_model("deberta", "text-classification")
    offloaded: Any = accelerate.cpu_offload(copy.deepcopy(model), execution_device=torch.device("cpu"))
    found, expected = (tl.attribute(one, models.ids(2), method="zplus_lrp", target=1) for one in (offloaded, model))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("method", ["gradient_x_input", "alti"])
def test_methods_without_rules_run_the_models_own_formula(method, monkeypatch):
    model = tiny_model("deberta", "text-classification")
    found = tl.attribute(model, models.ids(2), method=method, target=1)
    monkeypatch.setattr("tokenlight.model.layer_norms.may_be_layer_norm", lambda module: False)
    other = tl.attribute(copy.deepcopy(model), models.ids(2), method=method, target=1)
    assert torch.equal(found, other)


class Written(nn.Module):
    """A norm with this formula of the states, the weight, the bias and eps."""

    def __init__(self, formula: Any, shape: tuple[int, ...] = (8,), *, weight: bool = True, bias: bool = True):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        if bias:  # before the weight: the order says nothing
            self.beta = nn.Parameter(torch.randn(shape, generator=generator))
        if weight:
            self.gamma = nn.Parameter(torch.randn(shape, generator=generator))
        self.formula = formula

    def forward(self, states):
        return self.formula(states, getattr(self, "gamma", 1.0), getattr(self, "beta", 0.0))


def centered(x):
    return x - x.mean(-1, keepdim=True)


def by_variance(x, weight, bias, eps=1e-6):
    return centered(x) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + eps) * weight + bias


def joined_heads(x, weight, bias):
    """As xLSTM does it: each head has a mean and a variance of its own."""
    batch, tokens, _, _ = x.shape
    return by_variance(x, 1.0, 0.0).reshape(batch, tokens, -1) * weight + bias


NORMS = {
    "variance": Written(by_variance),
    "mean of squares": Written(
        lambda x, w, b: centered(x) * (centered(x).pow(2).mean(-1, True) + 1e-5).rsqrt() * w + b
    ),
    "square of the mean": Written(
        lambda x, w, b: w * centered(x) / (x.pow(2).mean(-1, True) - x.mean(-1, True) ** 2 + 1e-6).sqrt() + b
    ),
    "weight minus 1": Written(lambda x, w, b: by_variance(x, 1 + w, b)),
    "in float32": Written(lambda x, w, b: by_variance(x.float(), w.float(), b.float()).to(x.dtype)),
    "without a bias": Written(by_variance, bias=False),
    "without a weight": Written(by_variance, weight=False),
    "without either": Written(by_variance, weight=False, bias=False),
    "for each head": Written(by_variance, (3, 8)),
    "heads joined": Written(joined_heads, (24,)),
    "heads joined, without a bias": Written(joined_heads, (24,), bias=False),
    "heads joined, without a weight": Written(joined_heads, (24,), weight=False),
    "heads joined, without either": Written(joined_heads, (24,), weight=False, bias=False),
}
OTHERS = {
    "RMSNorm": Written(lambda x, w, b: x * (x.pow(2).mean(-1, True) + 1e-6).rsqrt() * w + b),
    "eps beside the root": Written(lambda x, w, b: centered(x) / (x.std(-1, keepdim=True) + 1e-2) * w + b),
    "another eps": Written(lambda x, w, b: by_variance(x, w, b, 1e-4)),
    "a scale beside it": Written(lambda x, w, b: 1.2 * by_variance(x, w, b)),
    "over the joined heads": Written(lambda x, w, b: by_variance(x.flatten(-2), w, b), (24,)),
    "RMSNorm, heads joined": Written(lambda x, w, b: F.rms_norm(x, (8,), None, 1e-6).flatten(-2) * w + b, (24,)),
    "over two axes": Written(lambda x, w, b: F.layer_norm(x, (3, 8), w, b, 1e-6), (3, 8)),
    "shares": Written(lambda x, w, b: x.softmax(-1) * w + b),
    "a bend": Written(lambda x, w, b: by_variance(x, w, b).tanh()),
    "no tensor": Written(lambda x, w, b: None),
    "what fails": Written(lambda x, w, b: x[100]),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_recognized(name, dtype):
    module = copy.deepcopy(NORMS[name]).to(dtype)
    x = torch.randn(2, 5, 3, 8, dtype=dtype)
    parameters = find_parameters(module, module.forward, x)
    assert may_be_layer_norm(module)
    assert parameters is not None
    with torch.no_grad():
        result, expected = parameters.layer_norm(module, x), module(x)
    assert_near(result, expected, size=float(result.abs().max()) * 4, precision=min_precision(dtype))


def min_precision(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.bfloat16 else torch.float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OTHERS)
def test_other_modules_are_no_layer_norms(name, dtype):
    module = copy.deepcopy(OTHERS[name]).to(dtype)
    assert find_parameters(module, module.forward, torch.randn(2, 5, 3, 8, dtype=dtype)) is None


@pytest.mark.parametrize("module", [nn.LayerNorm(8), nn.Sequential(nn.Identity()), nn.Linear(8, 8)])
def test_modules_of_torch_and_those_with_submodules_are_left_alone(module):
    assert not may_be_layer_norm(module)


RMS_NORMS = {
    "rsqrt": lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
    "root": lambda x, w: w * x / ((x**2).mean(-1, keepdim=True) + 1e-6).sqrt(),
    "power": lambda x, w: w * x * ((x**2).mean(-1, keepdim=True) + 1e-6) ** -0.5,
    "norm": lambda x, w: w * x * math.sqrt(8) / x.norm(2, -1, keepdim=True),
    "normalize": lambda x, w: w * F.normalize(x, dim=-1) * math.sqrt(8),
    "reciprocal": lambda x, w: w * x * (x.square().mean(-1, keepdim=True) + 1e-6).sqrt().reciprocal(),
    "einsum": lambda x, w: w * x * torch.rsqrt(torch.einsum("bti,bti->bt", x, x)[..., None] / 8 + 1e-6),
}


@pytest.mark.parametrize("spelling", RMS_NORMS)
@pytest.mark.parametrize("table", TABLES, ids=range(len(TABLES)))
def test_an_rms_norm_may_be_written_in_any_way(table, spelling):
    weight, between = (nn.Parameter(torch.randn(shape).double(), requires_grad=False) for shape in ((8,), (8, 8)))

    def relevance(norm: Any) -> torch.Tensor:
        x = torch.linspace(1, 40, 48).sin().double().view(2, 3, 8).requires_grad_()
        ledger = Ledger(2)
        ledger.inside_block = True
        with RuleMode(table, ledger):
            output = F.linear(norm(F.linear(x, between), weight), between)
        return x.detach() * torch.autograd.grad(output.sum(), x)[0]

    expected = relevance(lambda x, w: F.rms_norm(x, (8,), w, 1e-6))
    # Without eps, the scale differs by that much.
    torch.testing.assert_close(
        relevance(RMS_NORMS[spelling]), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max())
    )
