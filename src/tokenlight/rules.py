"""Relevance rules: a table {torch function: replacement}, applied by one strict mode while the forward pass runs.

Every replacement leaves the value as it is and bends the gradient, so that value times gradient is the relevance.
A tensor that depends on the input (it requires grad) is called a signal here; weights and masks are constants.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function, resolve_name

Function = Callable[..., Any]
Rule = Callable[..., Any]  # called as rule(function, *args, **kwargs)
RuleTable = Mapping[Function, Rule]
P = ParamSpec("P")


def rule_point(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Make a function of our own something that a table can replace, like any torch function."""

    @wraps(function)
    def point(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        tensors = tuple(arg for arg in args if isinstance(arg, Tensor))
        if has_torch_function(tensors):
            return handle_torch_function(point, tensors, *args, **kwargs)
        return function(*args, **kwargs)

    return point


@rule_point
def activation(x: Tensor, formula: Callable[[Tensor], Tensor]) -> Tensor:
    """An activation module as one operation: some write their formula out in several, which no rule could follow."""
    return formula(x)


@dataclass
class Ledger:
    """Relevance that does not reach the input, per example: in biases, and in the softmax under its gradient."""

    batch: int
    bias: list[Tensor] = field(default_factory=list)
    softmax: list[Tensor] = field(default_factory=list)

    def enter(self, account: str, amounts: Tensor) -> None:
        """Amounts are summed per example; the first axis is the batch, or batch and tokens in one."""
        getattr(self, account).append(amounts.detach().reshape(self.batch, -1).sum(1))

    def total(self, account: str) -> Tensor | float:
        entries = getattr(self, account)
        return torch.stack(entries).sum(0) if entries else 0.0

    def clear(self) -> None:
        """Before another backward pass."""
        self.bias.clear()
        self.softmax.clear()


LEDGER: ContextVar[Ledger | None] = ContextVar("tokenlight_ledger", default=None)


class RuleMode(TorchFunctionMode):
    """While active, functions in the table are replaced; a non-linear function of a signal without a rule raises."""

    def __init__(self, table: RuleTable, ledger: Ledger):
        super().__init__()
        self.table, self.ledger = table, ledger

    def __enter__(self) -> "RuleMode":
        self._token = LEDGER.set(self.ledger)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        LEDGER.reset(self._token)
        super().__exit__(*error)

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        rule = self.table.get(func)
        if rule is not None:
            return rule(func, *args, **kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.requires_grad and func not in LINEAR:
            refuse_nonlinear(func, args)
        return result


# Linear in their one signal: the plain gradient is the rule.
LINEAR = {
    *(Tensor.__getitem__, Tensor.contiguous, Tensor.expand, Tensor.flatten, Tensor.mean, Tensor.neg, Tensor.permute),
    *(Tensor.repeat_interleave, Tensor.reshape, Tensor.squeeze, Tensor.sum, Tensor.transpose, Tensor.unsqueeze),
    *(Tensor.view, Tensor.masked_fill, Tensor.clone, Tensor.unflatten, Tensor.repeat),
    *(Tensor.float, Tensor.to, Tensor.type, Tensor.type_as, Tensor.requires_grad_, Tensor.detach),
    *(Tensor.add, Tensor.sub, torch.add, torch.sub, torch.cat, torch.stack, torch.addmm),
    *(torch.repeat_interleave, torch.transpose, torch.reshape, torch.unsqueeze, torch.squeeze, torch.mean),
    *(F.dropout, F.linear),
}
# Linear in either operand, so at most one may be a signal.
PRODUCTS = {Tensor.mul, torch.mul, torch.matmul, Tensor.matmul, torch.bmm, torch.einsum, Tensor.div, torch.div}


def refuse_nonlinear(function: Function, args: Sequence[Any]) -> None:
    factors = [is_signal(arg) for arg in args[:2]]
    divides = function in (Tensor.div, torch.div)
    if function in PRODUCTS and not all(factors) and not (divides and factors[1]):
        return
    name = resolve_name(function) or getattr(function, "__name__", repr(function))
    raise ValueError(
        f"the rule table has no rule for {name}, which the model applies to its input; "
        "add one: table | {function: rule}, for example tokenlight.rules.identity"
    )


def is_signal(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.requires_grad


# --- The primitives ---------------------------------------------------------------------------------------------


class Like(torch.autograd.Function):
    """The value goes forward; backward goes to the surrogate, so that surrogate times gradient keeps the relevance."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, value: Tensor) -> Tensor:
        ratio, nothing = value / surrogate, surrogate == 0
        lost = None
        if nothing.any():  # there the value passes as a constant
            ratio, lost = ratio.masked_fill_(nothing, 0.0), torch.where(nothing, value, 0.0)
        ctx.save_for_backward(ratio, lost)
        ctx.ledger = LEDGER.get()
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ratio, lost = ctx.saved_tensors
        if ctx.ledger is not None and lost is not None:
            ctx.ledger.enter("bias", lost * grads[0])
        return grads[0] * ratio, None


def like(surrogate: Tensor, value: Tensor) -> Tensor:
    """`value`, with the gradient of `surrogate` rescaled to conserve relevance; a constant where surrogate is 0."""
    return Like.apply(surrogate, value.detach())  # type: ignore[return-value]


class ScaleGradient(torch.autograd.Function):
    """The value as it is, the gradient times a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.factor, None


class Absorb(torch.autograd.Function):
    """Note the relevance that the constant part of a sum takes: constant times gradient."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, constant: Tensor) -> Tensor:
        ctx.save_for_backward(constant)
        ctx.ledger = LEDGER.get()
        return total.view_as(total)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (constant,) = ctx.saved_tensors
        if ctx.ledger is not None:
            if constant.ndim == 1:  # a bias: sum over tokens first, which is cheaper
                per_example = grads[0].reshape(ctx.ledger.batch, -1, len(constant)).sum(1)
                ctx.ledger.enter("bias", per_example * constant)
            else:
                ctx.ledger.enter("bias", grads[0] * constant)
        return grads[0], None


class ConservingSum(torch.autograd.Function):
    """a + b, each example's relevance shared by the absolute sums of the two sides (Chefer et al. 2021b, eq. 13)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        total = a + b
        ctx.save_for_backward(a, b, total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad = grads[0]
        # The sum of the relevance is taken from the output: the shares of a and b may nearly cancel.
        share_a, share_b, total = (torch.linalg.vecdot(x.flatten(1), grad.flatten(1)) for x in ctx.saved_tensors)
        size = share_a.abs() + share_b.abs()
        scale = torch.where(size > 0, total / torch.where(size > 0, size, 1.0), 0.0)  # [batch]
        factors = (scale * share.sign() for share in (share_a, share_b))
        return tuple(grad * factor.view(-1, *[1] * (grad.ndim - 1)) for factor in factors)


class PositiveLinear(torch.autograd.Function):
    """xW + b, where relevance goes only along positive contributions: x⁺W⁺ + x⁻W⁻ = (xW + |x||W|) / 2.

    That identity needs one product beside xW instead of two. The positive part is well conditioned, so |x||W| and
    the backward products are done in the weights' precision even where the values are in double.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, with_bias: bool
    ) -> Tensor:  # weight [in, out]
        work = torch.promote_types(weight.dtype, torch.float32)
        value = product = x @ weight.to(x.dtype)
        if bias is not None:
            value = product + bias
        rough, weight = x.to(work), weight.to(work)
        size, product = rough.abs() @ weight.abs(), product.to(work)
        nothing = (
            product <= (64 * torch.finfo(work).eps - 1) * size
        )  # no positive contribution but what rounding leaves
        positive = size.add_(product).div_(2)
        taken = bias.clamp_min(0).to(work) if with_bias and bias is not None else None
        if taken is not None:
            positive += taken
            nothing &= taken == 0
        ratio, lost = value.to(work) / positive, None
        if nothing.any():  # there the value passes as a constant
            ratio, lost = ratio.masked_fill_(nothing, 0.0), torch.where(nothing, value, 0.0)
        ctx.save_for_backward(rough.sign_() if rough is not x else x.sign(), weight, ratio, taken, lost)
        ctx.ledger, ctx.dtype = LEDGER.get(), x.dtype
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        sign, weight, ratio, taken, lost = ctx.saved_tensors
        share = grads[0].to(ratio.dtype) * ratio
        if ctx.ledger is not None and taken is not None:
            ctx.ledger.enter("bias", share * taken)
        if ctx.ledger is not None and lost is not None:
            ctx.ledger.enter("bias", grads[0] * lost)
        grad = (share @ weight.abs().T).mul_(sign).add_(share @ weight.T).div_(2)
        return grad.to(ctx.dtype), None, None, None


class LinearNorm(torch.autograd.Function):
    """LayerNorm whose standard deviation is a constant; the mean stays a function of the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        value, _, scale = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(scale, weight)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scale, weight = ctx.saved_tensors
        grad = grads[0] * scale if weight is None else grads[0] * weight * scale
        return grad - grad.mean(-1, keepdim=True), None, None, None, None


class GradientSoftmax(torch.autograd.Function):
    """Softmax with its own gradient, which does not conserve relevance: what is missing goes into the ledger."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
        weights = F.softmax(scores, dim=dim, dtype=dtype)
        ctx.save_for_backward(scores, weights)
        ctx.dim, ctx.ledger = dim, LEDGER.get()
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scores, weights = ctx.saved_tensors
        relevance = weights * grads[0]
        total = relevance.sum(ctx.dim, keepdim=True)
        grad = (relevance - weights * total).to(scores.dtype)
        if ctx.ledger is not None:
            kept = torch.where(weights > 0, scores * grad, 0.0).sum(ctx.dim)  # a masked score holds nothing
            ctx.ledger.enter("softmax", total.squeeze(ctx.dim) - kept)
        return grad, None, None


# --- The rules --------------------------------------------------------------------------------------------------


def plain(function: Function, *args: Any, **kwargs: Any) -> Any:
    """The gradient as it is."""
    return function(*args, **kwargs)


def constant(function: Function, *args: Any, **kwargs: Any) -> Any:
    """No relevance passes."""
    with torch.no_grad():
        return function(*args, **kwargs)


def identity(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Relevance passes unchanged, element by element. What comes out is marked: it may be a gate."""
    with torch.no_grad():
        value = function(x, *args, **kwargs)
    if not is_signal(x):
        return value
    result = like(x, value)
    result.tokenlight_gate = True  # type: ignore[attr-defined]
    return result


def halved(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """A product of two signals: each takes half (the uniform rule)."""
    result = function(a, b, *args, **kwargs)
    return ScaleGradient.apply(result, 0.5) if is_signal(a) and is_signal(b) else result


def through_signal(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """A product of a gate (an activation's output) and a signal: the signal takes all."""
    if is_signal(a) and is_signal(b):
        gates = [getattr(x, "tokenlight_gate", False) for x in (a, b)]
        if sum(gates) != 1:
            raise ValueError(
                "a product of two signals, of which not exactly one is a gate: no rule says who takes what"
            )
        a, b = (x.detach() if gate else x for x, gate in zip((a, b), gates, strict=True))
    return function(a, b, *args, **kwargs)


def absorbing_sum(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """A sum shares by its gradient; what a constant summand takes is noted."""
    result = function(a, b, *args, **kwargs)
    other = b if is_signal(a) else a
    if not is_signal(result) or is_signal(other) or not isinstance(other, Tensor):
        return result
    return Absorb.apply(result, other.expand_as(result) if other.ndim > 1 else other)


def absorbing_linear(function: Function, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """LRP-0 at a linear layer: the plain gradient; the bias takes its share."""
    result = function(x, weight, bias)
    return result if bias is None or not is_signal(result) else Absorb.apply(result, bias)


def absorbing_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """The same for GPT-2's Conv1D."""
    result = function(bias, x, weight)
    return Absorb.apply(result, bias) if is_signal(result) else result


def linear_norm(
    function: Function,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """LayerNorm with a constant scale; its bias takes its share."""
    if not is_signal(x):
        return function(x, shape, weight, bias, eps)
    result: Any = LinearNorm.apply(x, shape, weight, bias, eps)
    return result if bias is None else Absorb.apply(result, bias)


def gradient_softmax(function: Function, x: Tensor, dim: int = -1, _level: int = 3, dtype: Any = None, **_: Any) -> Any:
    """Softmax by its gradient (Achtibat et al. 2024, eq. 13)."""
    return GradientSoftmax.apply(x, dim, dtype) if is_signal(x) else function(x, dim=dim, dtype=dtype)


def conserving_sum(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """Chefer's residual rule where both sides are signals."""
    if is_signal(a) and is_signal(b):
        return ConservingSum.apply(a, b)
    return absorbing_sum(function, a, b, *args, **kwargs)


def positive_linear(x: Tensor, weight: Tensor, bias: Tensor | None, with_bias: bool) -> Any:
    with torch._C.DisableTorchFunction():  # its casts to the weights' precision are meant
        return PositiveLinear.apply(x, weight, bias, with_bias)


def zplus_linear(function: Function, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """z+ rule without bias: only positive contributions count (Chefer et al. 2021b)."""
    return positive_linear(x, weight.T, bias, False)


def zplus_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """The same for GPT-2's Conv1D."""
    return positive_linear(x, weight, bias, False)


def alpha_beta_linear(function: Function, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """LRP-α1β0: as z+, with the bias' positive part in the denominator (Arras et al. 2025, appendix D.2)."""
    return positive_linear(x, weight.T, bias, True)


def alpha_beta_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """The same for GPT-2's Conv1D."""
    return positive_linear(x, weight, bias, True)


def identity_norm(
    function: Function,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Relevance passes LayerNorm unchanged; the weights may be in a lower precision than the values."""
    scale, shift = (None if part is None else part.to(x.dtype) for part in (weight, bias))
    return identity(function, x, shape, scale, shift, eps)
