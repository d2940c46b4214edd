"""Each rule alone against its explicit formula: relevance in = what the paper says of relevance out."""

import pytest
import torch
from torch.nn import functional as F

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules import lrp_rules as rules
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import ALPHA_BETA, ATTN_LRP, LRP, ZPLUS

BATCH = 3


def signal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def constant(*shape, seed=9):
    return signal(*shape, seed=seed).detach()


def contributions(x, weight):
    """[batch, token, out, in], each output with at least one positive one."""
    parts = (x.detach()[..., None, :] * weight).clamp_min(0)
    assert (parts.sum(-1) > 0).all()
    return parts


def relevance(table, function, *inputs):
    """Run function(*inputs) under the table; relevance of the output (random) and of every signal among the inputs."""
    ledger = Ledger(BATCH)
    with RuleMode(table, ledger):
        output = function(*inputs)
    start = torch.randn(output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(5))
    signals = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    grads = torch.autograd.grad(output, signals, start, materialize_grads=True)
    return (
        output.detach(),
        output.detach() * start,
        [x.detach() * g for x, g in zip(signals, grads, strict=True)],
        ledger,
    )


@pytest.mark.parametrize("table", [LRP, ATTN_LRP, ALPHA_BETA, ZPLUS])
@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.tanh, F.relu])
def test_activations_pass_relevance_unchanged(table, function):
    x = signal(BATCH, 4, 5)
    value, out, (back,), _ = relevance(table, function, x)
    assert torch.equal(value, function(x.detach()))
    active = value != 0
    torch.testing.assert_close(back[active], out[active])
    assert (back[~active] == 0).all()


@pytest.mark.parametrize("with_bias", [False, True])
def test_zplus_linear_is_the_papers_formula(with_bias):
    x, weight, bias = signal(BATCH, 4, 12), constant(6, 12), constant(6, seed=3) if with_bias else None
    value, out, (back,), _ = relevance(ZPLUS, F.linear, x, weight, bias)
    torch.testing.assert_close(value, F.linear(x.detach(), weight, bias), rtol=1e-12, atol=1e-12)
    parts = contributions(x, weight)
    torch.testing.assert_close(back, (parts / parts.sum(-1, keepdim=True) * out[..., None]).sum(-2))
    torch.testing.assert_close(back.sum(-1), out.sum(-1))


def test_alpha_beta_has_the_positive_bias_in_the_denominator():
    x, weight, bias = signal(BATCH, 4, 12), constant(6, 12), constant(6, seed=3)
    _, out, (back,), ledger = relevance(ALPHA_BETA, F.linear, x, weight, bias)
    parts = contributions(x, weight)
    denominator = parts.sum(-1) + bias.clamp_min(0)
    torch.testing.assert_close(back, (parts * (out / denominator)[..., None]).sum(-2))
    share = (bias.clamp_min(0) * out / denominator).sum((1, 2))
    torch.testing.assert_close(ledger.total("bias"), share)


@pytest.mark.parametrize("table", [LRP, ALPHA_BETA, ZPLUS])
def test_conv1d_is_treated_as_linear(table):
    x, weight, bias = signal(BATCH * 4, 5), constant(6, 5), constant(6, seed=3)
    _, _, (one,), _ = relevance(table, F.linear, x, weight, bias)
    _, _, (other,), _ = relevance(table, torch.addmm, bias, x, weight.T.contiguous())
    torch.testing.assert_close(one, other)


def test_linear_gives_the_bias_its_share():
    x, weight, bias = signal(BATCH, 4, 5), constant(6, 5), constant(6, seed=3)
    value, out, (back,), ledger = relevance(LRP, F.linear, x, weight, bias)
    torch.testing.assert_close(back.sum((1, 2)) + ledger.total("bias"), out.sum((1, 2)))
    torch.testing.assert_close(ledger.total("bias"), (bias * out / value).sum((1, 2)))


def test_an_output_without_positive_contributions_is_a_constant():
    x, weight = torch.full((BATCH, 1, 5), -1.0, dtype=torch.float64), torch.ones(2, 5, dtype=torch.float64)
    x.requires_grad_()
    value, out, (back,), ledger = relevance(ZPLUS, F.linear, x, weight)
    assert torch.equal(value, F.linear(x.detach(), weight))
    assert (back == 0).all()
    torch.testing.assert_close(ledger.total("bias"), out.sum((1, 2)))


def test_norm_scale_is_constant_and_the_mean_is_not():
    x, weight, bias = signal(BATCH, 4, 5), constant(5), constant(5, seed=3)
    value, out, (back,), ledger = relevance(LRP, lambda x: F.layer_norm(x, (5,), weight, bias, 1e-5), x)
    y = x.detach().requires_grad_()
    scale = (y.detach().var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    explicit = (y - y.mean(-1, keepdim=True)) * scale * weight + bias
    torch.testing.assert_close(value, explicit.detach())
    (grad,) = torch.autograd.grad(explicit, y, out / value)
    torch.testing.assert_close(back, y.detach() * grad)
    torch.testing.assert_close(back.sum((1, 2)) + ledger.total("bias"), out.sum((1, 2)))


def test_a_norm_over_several_axes_takes_the_mean_over_all_of_them():
    x, weight, bias = signal(BATCH, 4, 2, 3), constant(2, 3), constant(2, 3, seed=3)
    value, out, (back,), ledger = relevance(LRP, lambda x: F.layer_norm(x, (2, 3), weight, bias, 1e-5), x)
    flat = [part.flatten(-2) for part in (x.detach(), weight, bias)]
    expected, _, (other,), entries = relevance(
        LRP, lambda x: F.layer_norm(x, (6,), flat[1], flat[2], 1e-5), flat[0].requires_grad_()
    )
    torch.testing.assert_close(value.flatten(-2), expected)
    torch.testing.assert_close(back.flatten(-2), other)
    torch.testing.assert_close(ledger.total("bias"), entries.total("bias"))
    torch.testing.assert_close(back.sum((1, 2, 3)) + ledger.total("bias"), out.sum((1, 2, 3)))


def test_norm_is_identity_under_zplus():
    weight, bias = constant(5), constant(5, seed=3)
    _, out, (back,), _ = relevance(ZPLUS, lambda x: F.layer_norm(x, (5,), weight, bias, 1e-5), signal(BATCH, 4, 5))
    torch.testing.assert_close(back, out)


def test_conserving_sum_is_chefers_formula_per_example():
    a, b = signal(BATCH, 4, 5), signal(BATCH, 4, 5, seed=1)
    value, out, (back_a, back_b), _ = relevance(ZPLUS, torch.add, a, b)
    for i in range(BATCH):
        raw = [x.detach()[i] * out[i] / value[i] for x in (a, b)]
        sums = [part.sum() for part in raw]
        for part, total, back in zip(raw, sums, (back_a, back_b), strict=True):
            share = total.abs() / (sums[0].abs() + sums[1].abs()) * out[i].sum()
            torch.testing.assert_close(back[i], part * share / total)
    torch.testing.assert_close((back_a + back_b).sum((1, 2)), out.sum((1, 2)))


def test_inside_a_block_a_constant_summand_takes_nothing_under_zplus():
    """As a linear layer's bias; a mask hides what it covers, even where it is infinite."""
    hidden = torch.tensor([0.0, 0.0, float("-inf")], dtype=torch.float64)
    distances = constant(1, 4, 3)

    def weights(scores):
        return F.softmax(scores + distances + hidden, -1)

    ledger = Ledger(BATCH, inside_block=True)
    scores = signal(BATCH, 4, 3)
    with RuleMode(ZPLUS, ledger):
        output = weights(scores)
    assert torch.equal(output, weights(scores.detach()))
    start = constant(BATCH, 4, 3)
    (grad,) = torch.autograd.grad(output, scores, start)
    torch.testing.assert_close(scores.detach() * grad, output.detach() * start)
    assert (torch.as_tensor(ledger.total("bias")) == 0).all()


def test_writing_into_a_recorded_tensor_is_refused():
    """Its gradient would be that of what it was before."""
    with RuleMode(LRP, Ledger(BATCH)), pytest.raises(UnsupportedModelError, match="writes into a recorded tensor"):
        signal(BATCH, 4, 3).add_(1.0)


def test_products_share_evenly_under_attn_lrp():
    a, b = signal(BATCH, 4, 5), signal(BATCH, 4, 5, seed=1)
    _, out, backs, _ = relevance(ATTN_LRP, torch.mul, a, b)
    for back in backs:
        torch.testing.assert_close(back, out / 2)


@pytest.mark.parametrize("gate_first", [True, False])
def test_the_signal_takes_all_of_a_gated_product_under_lrp(gate_first):
    def mlp(gate, up):
        return F.silu(gate) * up if gate_first else up * F.silu(gate)

    _, out, (gate, up), _ = relevance(LRP, mlp, signal(BATCH, 4, 5), signal(BATCH, 4, 5, seed=1))
    assert (gate == 0).all()
    torch.testing.assert_close(up, out)


def test_two_signals_of_which_none_is_a_gate_share_evenly_under_lrp():
    """As in the short convolutions of LFM2."""
    _, out, (a, b), _ = relevance(LRP, torch.mul, signal(BATCH, 4), signal(BATCH, 4, seed=1))
    torch.testing.assert_close(a, out / 2)
    torch.testing.assert_close(b, out / 2)


def test_softmax_by_its_gradient_reports_what_it_loses():
    x = signal(BATCH, 2, 4, 4)
    value, out, (back,), ledger = relevance(ATTN_LRP, lambda x: F.softmax(x, dim=-1), x)
    explicit = x.detach() * (out - value * out.sum(-1, keepdim=True))
    torch.testing.assert_close(back, explicit)
    torch.testing.assert_close(ledger.total("softmax"), (out - explicit).sum((1, 2, 3)))


@pytest.mark.parametrize("table", [LRP, ATTN_LRP, ALPHA_BETA, ZPLUS])
@pytest.mark.parametrize("function", [torch.sinh, torch.sin, torch.cumprod])
def test_an_operation_without_a_rule_raises_and_names_it(table, function):
    extra = (0,) if function is torch.cumprod else ()
    with pytest.raises(ValueError, match=function.__name__):
        relevance(table, lambda x: function(x, *extra), signal(BATCH, 4))


def test_a_quotient_of_a_constant_and_a_signal_has_no_rule():
    with pytest.raises(ValueError, match="div"):
        relevance(LRP, lambda x: 1.0 / x, signal(BATCH, 4))
    with pytest.raises(ValueError, match="div"):
        relevance(LRP, lambda x: torch.div(constant(BATCH, 4), x), signal(BATCH, 4))


def test_operations_on_constants_need_no_rule():
    with RuleMode(LRP, Ledger(BATCH)):
        assert torch.sinh(constant(2, 2)).isfinite().all()


def test_tables_combine():
    table = LRP | {torch.sinh: rules.identity}
    _, out, (back,), _ = relevance(table, torch.sinh, signal(BATCH, 4))
    torch.testing.assert_close(back, out)
    assert torch.sinh not in LRP


def test_like_keeps_the_value_bit_for_bit_also_where_the_surrogate_is_zero():
    value = torch.tensor([[1.1, 2.2, 3.3]] * BATCH)
    surrogate = torch.tensor([[0.0, 1.0, -3.0]] * BATCH, requires_grad=True)
    result = rules.like(surrogate, value)
    assert torch.equal(result, value)
    (grad,) = torch.autograd.grad(result.sum(), surrogate)
    torch.testing.assert_close(surrogate.detach() * grad, torch.tensor([[0.0, 2.2, 3.3]] * BATCH))
