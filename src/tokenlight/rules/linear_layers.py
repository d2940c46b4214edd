"""Rules with parameters for linear layers: LRP-ε, LRP-γ and LRP-αβ. Combine with a table: `LRP | epsilon_rules(0.1)`.

Input i contributes c_ij = x_i w_ij to the output z_j = Σ_i c_ij + b_j of a linear layer. A rule defines which share of
the output's relevance the input receives. c⁺ and c⁻ are the positive and the negative part of c.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight._compat.torch_internals import without_torch_functions
from tokenlight.common.errors import RefusedValue
from tokenlight.rules.autograd_functions import KNOWN_AUTOGRAD_FUNCTIONS
from tokenlight.rules.custom_ops import weight_product
from tokenlight.rules.keeps import keeps
from tokenlight.rules.ledger import ledger_writer
from tokenlight.rules.mode import Function, RuleTable, is_signal


class Factors(NamedTuple):
    """Input i receives the relevance Σ_j g_j (plain_j c_ij + positive_j c⁺_ij + negative_j c⁻_ij), g the gradient at z.

    Each is [..., out], or None for 0.
    """

    plain: Tensor | None = None
    positive: Tensor | None = None
    negative: Tensor | None = None


# A function of z, Σ_i c⁺_ij + b_j⁺ and Σ_i c⁻_ij + b_j⁻, each [..., out].
FactorsOf = Callable[[Tensor, Tensor, Tensor], Factors]


def epsilon_rules(epsilon: float) -> RuleTable:
    """LRP-ε (Bach et al. 2015; Arras et al. 2025, appendix D, eq. 1): R_i = Σ_j c_ij / (z_j + ε sign z_j) R_j."""
    check_parameter("epsilon", epsilon)
    return linear_rules(lambda z, positive, negative: Factors(plain=z.abs() / (z.abs() + epsilon)), results=2)


def gamma_rules(gamma: float) -> RuleTable:
    """LRP-γ (Montavon et al. 2019): R_i = Σ_j (c_ij + γ c⁺_ij) / (z_j + γ (Σ_k c⁺_kj + b_j⁺)) R_j where z_j > 0.

    This is the published rule where inputs and outputs are positive. Where z_j < 0, negative parts replace positive
    ones, so that contributions with the sign of the output are favored.
    """
    check_parameter("gamma", gamma)

    def factors(z: Tensor, positive: Tensor, negative: Tensor) -> Factors:
        above = z > 0
        plain = divide(z, z + gamma * torch.where(above, positive, negative))
        return Factors(plain, torch.where(above, gamma * plain, 0.0), torch.where(above, 0.0, gamma * plain))

    return linear_rules(factors, inputs=1, results=4)


def alpha_beta_rules(alpha: float, beta: float) -> RuleTable:
    """LRP-αβ (Bach et al. 2015), α - β = 1: R_i = Σ_j (α c⁺_ij / z⁺_j - β c⁻_ij / z⁻_j) R_j.

    z⁺_j = Σ_k c⁺_kj + b_j⁺ and z⁻_j = Σ_k c⁻_kj + b_j⁻; if either is 0, so is its term.
    """
    check_parameter("alpha", alpha)
    check_parameter("beta", beta)
    if abs(alpha - beta - 1) > 1e-9:
        raise RefusedValue(f"alpha - beta must be 1, or relevance is not conserved; found {alpha!r} and {beta!r}")

    def factors(z: Tensor, positive: Tensor, negative: Tensor) -> Factors:
        return Factors(positive=alpha * divide(z, positive), negative=-beta * divide(z, negative))

    return linear_rules(factors, inputs=1, results=3)


def check_parameter(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise RefusedValue(f"{name} must be a finite number of at least 0, found {value!r}")
    return value


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient; 0 where the denominator is 0."""
    is_zero = denominator == 0
    return torch.where(is_zero, 0.0, numerator / torch.where(is_zero, 1.0, denominator))


def linear_rules(factors: FactorsOf, **facts: Any) -> RuleTable:
    """The rule for all functions that compute a linear layer; `facts` are the fields of `Keeps`."""

    @keeps(**facts, single=True)
    def linear(function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        return by_contributions(function(input, weight, bias), input, weight.T, bias, factors)

    @keeps(**facts, single=True)
    def addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
        return by_contributions(function(bias, x, weight), x, weight, bias, factors)

    return {F.linear: linear, weight_product: linear, torch.addmm: addmm}


def by_contributions(value: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, factors: FactorsOf) -> Tensor:
    if not is_signal(x):
        return value
    with without_torch_functions():  # no rules for casts between the precisions of values and weights
        return ContributionLinear.apply(x, weight, bias, [value.detach()], factors)  # type: ignore[return-value]


class ContributionLinear(torch.autograd.Function):
    """xW + b; the backward pass distributes relevance by the `Factors` of a rule.

    Σ_i c⁺_ij = (xW + |x||W|) / 2 and Σ_i c⁻_ij = (xW - |x||W|) / 2, so no tensor [..., in, out] is needed.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, values: list[Tensor], factors: FactorsOf
    ) -> Tensor:
        # weight [in, out]; the value is in a list, so that torch does not treat the result as a view of it
        value = values[0]
        work = torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)
        inputs, weight, z = x.to(work), weight.to(work), value.to(work)
        product, size = inputs @ weight, inputs.abs() @ weight.abs()
        positive, negative = (product + size) / 2, (product - size) / 2
        noise = 32 * torch.finfo(work).eps * size  # rounding error where there is no contribution
        above, below = torch.where(positive > noise, positive, 0.0), torch.where(-negative > noise, negative, 0.0)
        if bias is not None:
            above, below = above + bias.to(work).clamp_min(0), below + bias.to(work).clamp_max(0)
        plain, of_positive, of_negative = factors(z, above, below)
        passed = torch.zeros_like(z)
        for factor, total in ((plain, product), (of_positive, positive), (of_negative, negative)):
            passed = passed if factor is None else passed + factor * total
        sign = None if of_positive is None and of_negative is None else inputs.sign()
        ctx.save_for_backward(weight, sign, plain, of_positive, of_negative, z - passed)
        ctx.ledger_writer, ctx.dtype = ledger_writer(), x.dtype
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        weight, sign, plain, positive, negative, kept = ctx.saved_tensors
        grad = grads[0].to(weight.dtype)
        if ctx.ledger_writer is not None:  # biases, the stabilizer, and outputs to which nothing contributes
            ctx.ledger_writer.enter("bias", grad * kept)
        zero = torch.zeros_like(grad)
        plain, positive, negative = (
            zero if factor is None else grad * factor for factor in (plain, positive, negative)
        )
        # The derivative of c⁺ is (w + sign(x) |w|) / 2, that of c⁻ is (w - sign(x) |w|) / 2.
        input_grad = (plain + (positive + negative) / 2) @ weight.T
        if sign is not None:
            input_grad = input_grad + sign * (((positive - negative) / 2) @ weight.abs().T)
        return input_grad.to(ctx.dtype), None, None, None, None


KNOWN_AUTOGRAD_FUNCTIONS.add(ContributionLinear)
