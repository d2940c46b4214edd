"""LRP-ε, LRP-γ and LRP-αβ at linear layers against their formulas, one input and one output at a time."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.rules.test_lrp_rules import BATCH, constant, relevance, signal
from tests.tokenizers_ import explainer_for
from tokenlight import rules
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.diagnostics.tiny_models import tiny_model
from tokenlight.rules.keeps import Keeps, kept_by
from tokenlight.rules.tables import ALPHA_BETA, ATTN_LRP, LRP, ZPLUS


def by_hand(rule: str, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, *numbers: float) -> Tensor:
    """Relevance of the inputs x [text, token, in] for weight [out, in] and relevance `out` [text, token, out]."""
    found = torch.zeros_like(x)
    for place in [(text, token) for text in range(x.shape[0]) for token in range(x.shape[1])]:
        for j in range(len(weight)):
            c = [float(x[place][i] * weight[j, i]) for i in range(weight.shape[1])]
            b, R_j = float(bias[j]), float(out[place][j])
            z_j = sum(c) + b
            pos, neg = [max(one, 0.0) for one in c], [min(one, 0.0) for one in c]
            for i in range(len(c)):
                if rule == "epsilon":  # Arras et al. 2025, eq. 1
                    (epsilon,) = numbers
                    R_i = c[i] / (z_j + epsilon * (1 if z_j > 0 else -1)) * R_j
                elif rule == "gamma":
                    (gamma,) = numbers
                    same, b_same = (pos, max(b, 0.0)) if z_j > 0 else (neg, min(b, 0.0))
                    R_i = (c[i] + gamma * same[i]) / (z_j + gamma * (sum(same) + b_same)) * R_j
                else:  # D.2 has the numerator 0 where the denominator is 0
                    alpha, beta = numbers
                    z_pos, z_neg = sum(pos) + max(b, 0.0), sum(neg) + min(b, 0.0)
                    R_i = (alpha * pos[i] / z_pos if z_pos else 0.0) * R_j
                    R_i -= (beta * neg[i] / z_neg if z_neg else 0.0) * R_j
                found[place][i] += R_i
    return found


RULES = [
    ("epsilon", rules.epsilon_rules, (0.25,)),
    ("epsilon", rules.epsilon_rules, (3.0,)),
    ("gamma", rules.gamma_rules, (0.25,)),
    ("gamma", rules.gamma_rules, (10.0,)),
    ("alpha_beta", rules.alpha_beta_rules, (2.0, 1.0)),
    ("alpha_beta", rules.alpha_beta_rules, (1.5, 0.5)),
    ("alpha_beta", rules.alpha_beta_rules, (1.0, 0.0)),
]


@pytest.mark.parametrize(("name", "make", "numbers"), RULES)
def test_a_rule_is_its_formula(name, make, numbers):
    x, weight, bias = signal(BATCH, 2, 5), constant(6, 5), constant(6, seed=3)
    weight[0], bias[0] = weight[0].abs() * x.detach()[0, 0].sign(), 1.0  # no negative contribution at one place
    value, out, (back,), ledger = relevance(LRP | make(*numbers), F.linear, x, weight, bias)
    assert torch.equal(value, F.linear(x.detach(), weight, bias))
    expected = by_hand(name, x.detach(), weight, bias, out, *numbers)
    assert_near(back, expected, growth=SHARES)
    assert_near(back.sum((1, 2)) + ledger.total("bias"), out.sum((1, 2)), size=back, growth=SHARES)


@pytest.mark.parametrize(("name", "make", "numbers"), RULES)
def test_conv1d_is_treated_as_linear(name, make, numbers):
    x, weight, bias = signal(BATCH * 4, 5), constant(6, 5), constant(6, seed=3)
    table = LRP | make(*numbers)
    _, _, (one,), _ = relevance(table, F.linear, x, weight, bias)
    _, _, (other,), _ = relevance(table, torch.addmm, bias, x, weight.T.contiguous())
    assert_near(other, one, growth=SHARES)


def test_rules_with_parameters_equal_the_plain_rules_in_the_limit():
    x, weight, bias = signal(BATCH, 2, 5), constant(6, 5), constant(6, seed=3)

    def back(table):
        return relevance(table, F.linear, x, weight, bias)[2][0]

    for same in (rules.epsilon_rules(0), rules.gamma_rules(0)):
        assert_near(back(LRP | same), back(LRP), growth=SHARES)
    assert_near(back(LRP | rules.alpha_beta_rules(1, 0)), back(ALPHA_BETA), growth=SHARES)
    # A large γ leaves the contributions with the sign of the output, in proportion: α1β0 where that sign is positive.
    value = F.linear(x.detach(), weight, bias)
    only_positive = torch.where(value > 0, 1.0, 0.0)

    def of_positive_outputs(table):
        return relevance(table, lambda x: F.linear(x, weight, bias) * only_positive, x)[2][0]

    torch.testing.assert_close(
        of_positive_outputs(LRP | rules.gamma_rules(1e9)), of_positive_outputs(ALPHA_BETA), rtol=0, atol=1e-7
    )


def test_an_output_without_contributions_passes_as_a_constant():
    x = torch.full((BATCH, 1, 5), -1.0, dtype=torch.float64, requires_grad=True)
    weight = torch.ones(2, 5, dtype=torch.float64)
    _, out, (back,), ledger = relevance(LRP | rules.alpha_beta_rules(1, 0), F.linear, x, weight)
    assert (back == 0).all()
    assert_near(ledger.total("bias"), out.sum((1, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rules.epsilon_rules(-1), "epsilon must be a finite number of at least 0, found -1"),
        (lambda: rules.gamma_rules(float("nan")), "gamma must be a finite number of at least 0, found nan"),
        (lambda: rules.alpha_beta_rules(2, 0), "alpha - beta must be 1.*found 2 and 0"),
        (lambda: rules.alpha_beta_rules(True, 0), "alpha must be a finite number of at least 0, found True"),
    ],
)
def test_invalid_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_rules_declare_what_they_keep():
    for table, facts in (
        (rules.epsilon_rules(1), Keeps(results=2, single=True)),
        (rules.gamma_rules(1), Keeps(inputs=1, results=4, single=True)),
        (rules.alpha_beta_rules(2, 1), Keeps(inputs=1, results=3, single=True)),
    ):
        assert {kept_by(rule) for rule in table.values()} == {facts}


# --- As options of methods ----------------------------------------------------------------------------------------

OPTIONS = [
    ("lrp", {"epsilon": 0.1}, lambda: rules.LRP | rules.epsilon_rules(0.1)),
    ("lrp", {"gamma": 0.5, "gate": "uniform"}, lambda: rules.LRP_UNIFORM | rules.gamma_rules(0.5)),
    ("attn_lrp", {"epsilon": 0.1}, lambda: rules.ATTN_LRP | rules.epsilon_rules(0.1)),
    ("attn_lrp", {"gamma": 0.5}, lambda: rules.ATTN_LRP | rules.gamma_rules(0.5)),
    ("alpha_beta_lrp", {"alpha": 2, "beta": 1}, lambda: rules.LRP | rules.alpha_beta_rules(2, 1)),
]
TEXT = "it is a good movie"


@pytest.mark.parametrize(("method", "options", "table"), OPTIONS)
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_options_choose_the_table_and_relevance_is_accounted_for(family, method, options, table):
    explainer = explainer_for(family)
    e = explainer.explain(TEXT, method, **options)
    by_table = explainer.explain(TEXT, method, rules=table())
    assert_near(e.scores, by_table.scores)
    assert not torch.allclose(e.scores, explainer.explain(TEXT, method).scores)
    assert_near(e.extras["residual"], 0, size=torch.cat([e.scores, torch.tensor([e.score])]), growth=SHARES)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("lrp", {"epsilon": 0.1, "gamma": 0.1}, "epsilon and gamma are rules for the same layers"),
        ("attn_lrp", {"epsilon": -1}, "epsilon must be a finite number of at least 0"),
        ("attn_lrp", {"gamma": [1]}, r"gamma must be a finite number of at least 0, found \[1\]"),
        ("alpha_beta_lrp", {"alpha": 2}, "alpha - beta must be 1"),
        ("lrp", {"epsilon": 0.1, "rules": rules.LRP}, "rules= replaces the rule table that epsilon=0.1 chose"),
        ("alpha_beta_lrp", {"alpha": 2, "beta": 1, "rules": rules.LRP}, "alpha=2, beta=1 chose"),
    ],
)
def test_options_that_contradict_each_other_are_refused(method, options, message):
    with pytest.raises(ValueError, match=message):
        explainer_for("bert").explain(TEXT, method, **options)


def test_methods_with_the_same_rule_share_a_pass():
    from tokenlight.methods import METHODS
    from tokenlight.methods.config import MethodConfig

    one, two = (
        MethodConfig(METHODS["lrp"], {"epsilon": 0.1, **more}).passes(False)[0] for more in ({}, {"read": "embeddings"})
    )
    assert one.key == two.key
    assert one.key != MethodConfig(METHODS["lrp"], {"epsilon": 0.2}).passes(False)[0].key
    assert MethodConfig(METHODS["lrp"], {"epsilon": 0}).passes(False)[0].rules is rules.LRP


SPELLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # of x [text, token, in] and weight [out, in]
    "@": lambda x, w: x @ w.T,
    "from the left": lambda x, w: (w @ x.transpose(1, 2)).transpose(1, 2),
    "reflected": lambda x, w: Tensor.__rmatmul__(w.T, x),
    "by name": lambda x, w: torch.matmul(input=x, other=w.T),
    "keywords of a layer": lambda x, w: F.linear(input=x, weight=w, bias=None),
    "two axes": lambda x, w: torch.mm(x.flatten(0, 1), w.T).unflatten(0, x.shape[:2]),
    "bmm": lambda x, w: torch.bmm(x, w.T.expand(len(x), -1, -1)),
    "baddbmm": lambda x, w: torch.baddbmm(torch.zeros(1).to(x), x, w.T.expand(len(x), -1, -1), beta=0),
    "cast": lambda x, w: x @ w.float().T.to(x),
    "einsum": lambda x, w: torch.einsum("bti,oi->bto", x, w),
    "einsum, weight first": lambda x, w: torch.einsum("oi, bti -> tbo", w, x).transpose(0, 1),
    "einsum of heads": lambda x, w: torch.einsum("bti,ndi->btnd", x, w.unflatten(0, (2, 3))).flatten(2),
    "vectors": lambda x, w: torch.stack([x @ one for one in w], -1),
    "scaled": lambda x, w: x @ ((w * 2.0) * 0.5).T,
    "adapted": lambda x, w: x @ ((w - ADAPTER) + ADAPTER).T,
    "masked": lambda x, w: x @ torch.where(torch.ones(6, 5) > 0, w, 0.0).T,
    "put together": lambda x, w: x @ torch.cat([w[:2], w[2:]]).T,
    "addmm": lambda x, w: torch.addmm(NOTHING, x.flatten(0, 1), w.T, beta=1, alpha=1).unflatten(0, x.shape[:2]),
    "addmm by name": lambda x, w: torch.addmm(input=NOTHING, mat1=x.flatten(0, 1), mat2=w.T).unflatten(0, x.shape[:2]),
    "Tensor.addmm": lambda x, w: NOTHING.addmm(x.flatten(0, 1), w.T).unflatten(0, x.shape[:2]),
}
NOTHING, ADAPTER = torch.zeros(6, dtype=torch.float64), torch.full((6, 5), 0.25, dtype=torch.float64)


@pytest.mark.parametrize(
    "table", [ZPLUS, ALPHA_BETA, LRP | rules.gamma_rules(0.3), ATTN_LRP | rules.epsilon_rules(0.2)]
)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_matrix_product_with_a_weight_is_a_linear_layer(spelling, table):
    x, weight = signal(BATCH, 4, 5), nn.Parameter(constant(6, 5).float().double(), requires_grad=False)
    value, _, (back,), ledger = relevance(table, F.linear, x, weight)
    found, _, (other,), entries = relevance(table, SPELLINGS[spelling], x, weight)
    assert_near(found, value)
    assert_near(other, back, growth=SHARES)
    kept, expected = (torch.as_tensor(one.total("bias")) for one in (entries, ledger))
    assert_near(kept, expected, size=float(back.abs().sum()), growth=SHARES)


@pytest.mark.parametrize("table", [LRP, ZPLUS, ALPHA_BETA, ATTN_LRP | rules.epsilon_rules(0.2)])
def test_a_residual_stream_that_addmm_adds_keeps_its_relevance(table):
    x, stream = signal(12, 5), signal(12, 6, seed=1)
    weight = nn.Parameter(constant(6, 5), requires_grad=False)
    _, _, expected, _ = relevance(table, lambda x, stream: F.linear(x, weight) + stream, x, stream)
    _, _, found, _ = relevance(table, lambda x, stream: torch.addmm(stream, x, weight.T), x, stream)
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, growth=SHARES)


def test_a_layer_whose_weight_is_a_signal_is_a_product_of_two_signals():
    x, weight = signal(BATCH, 4, 5), signal(6, 5, seed=1)
    _, _, expected, _ = relevance(ATTN_LRP, lambda x, w: torch.matmul(x, w.T), x, weight)
    _, out, found, _ = relevance(ATTN_LRP, F.linear, x, weight)
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other)
    assert_near(sum(float(one.sum()) for one in found), float(out.sum()), size=float(out.abs().sum()))


class PackedLinear(nn.Module):
    """Eight bits and a scale, as people write it."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.codes: Tensor
        self.scale: Tensor
        largest = layer.weight.detach().abs().amax(1, keepdim=True)
        self.register_buffer("codes", (layer.weight.detach() / largest * 127).round().to(torch.int8))
        self.register_buffer("scale", largest / 127)

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.codes.to(x.dtype) * self.scale).T


@pytest.mark.parametrize("method", ["zplus_lrp", "alpha_beta_lrp"])
def test_weights_that_a_layer_unpacks_from_its_buffers_are_weights(method):
    packed, plain = (models.make("llama", "text-generation", torch.float64) for _ in range(2))
    for name, layer in list(plain.named_modules()):
        if isinstance(layer, nn.Linear) and "layers" in name:
            packed.set_submodule(name, PackedLinear(layer))
            unpacked: Any = packed.get_submodule(name)
            with torch.no_grad():
                layer.weight.copy_(unpacked.codes * unpacked.scale)
    scores = [tl.attribute(one, models.ids(2, 6), method=method, target=7) for one in (packed, plain)]
    assert_near(*scores, growth=SHARES)


@pytest.mark.parametrize("spelling", ["bmm", "einsum", "@"])
def test_each_expert_has_its_own_weight(spelling):
    x, weight = signal(2, BATCH, 5), nn.Parameter(constant(2, 5, 6), requires_grad=False)  # [expert, text, in]
    written: Any = {"bmm": torch.bmm, "einsum": lambda x, w: torch.einsum("eti,eio->eto", x, w), "@": torch.matmul}
    _, out, (back,), _ = relevance(LRP | rules.gamma_rules(0.3), written[spelling], x, weight)
    for expert in range(2):
        parts = [one[expert][:, None] for one in (x.detach(), out)]
        expected = by_hand("gamma", parts[0], weight[expert].T, torch.zeros(6), parts[1], 0.3)
        assert_near(back[expert][:, None], expected, growth=SHARES)


def test_a_constant_that_is_no_weight_has_the_plain_gradient():
    """Rotations, for example."""
    x, matrix = signal(BATCH, 4, 5), constant(5, 6)
    _, _, (plain,), _ = relevance(LRP, torch.matmul, x, matrix)
    _, _, (back,), _ = relevance(ZPLUS, torch.matmul, x, matrix)
    assert torch.equal(back, plain)


def test_a_product_that_is_no_linear_layer_is_refused():
    x, weight = signal(BATCH, 4, 5), nn.Parameter(constant(5, 4), requires_grad=False)
    with pytest.raises(UnsupportedModelError, match=r"einsum 'btt,tt->b'.* cannot follow: write it with nn\.Linear"):
        relevance(ZPLUS, lambda x, w: torch.einsum("btt,tt->b", x[..., :4], w[:4]), x, weight)


@pytest.mark.parametrize(
    ("method", "options"), [("zplus_lrp", {}), ("alpha_beta_lrp", {}), ("attn_lrp", {"gamma": 0.2})]
)
def test_falcon_is_explained_as_if_its_layers_were_linear_modules(method, options):
    model = tiny_model("falcon", "text-classification")
    other = copy.deepcopy(model)
    layers: list[tuple[str, Any]] = list(other.named_modules())
    for name, layer in layers:
        if type(layer).__name__ == "FalconLinear":
            assert layer.bias is None
            plain = nn.Linear(*layer.weight.shape[::-1], bias=False)
            plain.load_state_dict(layer.state_dict())
            other.set_submodule(name, plain)
    ids = torch.arange(5, 19).view(2, 7)
    scores = [tl.attribute(one, ids, method=method, target=1, **options) for one in (model, other)]
    assert_near(*scores)
