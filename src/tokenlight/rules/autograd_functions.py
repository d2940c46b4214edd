"""Autograd functions with the ordinary forward value and a modified backward.

Each adds the relevance that it absorbs to the ledger, so that sums can be checked.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn import functional as F

from tokenlight._compat.torch_internals import softmax_gradient
from tokenlight.rules.ledger import (
    LEDGER,
    PENDING_SHARES,
    ConstantShare,
    Ledger,
    LedgerWriter,
    Scratch,
    constant_times,
    ledger_writer,
)


class Like(torch.autograd.Function):
    """Returns the value; the gradient goes to the surrogate, rescaled so that surrogate times gradient is conserved."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, values: list[Tensor]) -> Tensor:
        # In a list, so that torch does not treat the result as a view of it, which could not be written into.
        value = values[0]
        ratio, lost = value / surrogate, None
        if not ratio.sum().isfinite():  # the surrogate is 0 somewhere: there the value passes as a constant
            undefined = ~ratio.isfinite()  # also where the value is infinite: a mask, which has no gradient
            ratio, lost = ratio.masked_fill_(undefined, 0.0), torch.where(undefined & value.isfinite(), value, 0.0)
        ctx.save_for_backward(ratio, lost)
        ctx.ledger_writer = ledger_writer()
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ratio, lost = ctx.saved_tensors
        if ctx.ledger_writer is not None and lost is not None:
            ctx.ledger_writer.enter("bias", lost * grads[0])
        return grads[0] * ratio, None


def like(surrogate: Tensor, value: Tensor) -> Tensor:
    """`value`, with the gradient of `surrogate` rescaled to conserve relevance; a constant where surrogate is 0."""
    return Like.apply(surrogate, [value.detach()])  # type: ignore[return-value]


class ScaleGradient(torch.autograd.Function):
    """Returns its input; multiplies the gradient with a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.factor, None


def scale_gradient(result: Tensor, factor: float) -> Tensor:
    """Return the tensor; multiply the gradient that reaches its operation with a factor."""
    if result.grad_fn is not None:
        result.grad_fn.register_prehook(lambda grads: tuple(grad * factor for grad in grads))
    return result


def absorb(total: Tensor, constant: Tensor | float, account: str) -> Tensor:
    """Return the sum; enter constant times gradient, the share of its constant summand, into the ledger.

    The gradient of `total` itself still includes that share.
    """
    writer = ledger_writer()
    if writer is None or total.grad_fn is None:
        return total
    if isinstance(constant, Tensor) and (constant.requires_grad or constant.dtype != total.dtype):
        constant = constant.detach().to(total.dtype)
    share = ConstantShare(account, constant, writer)
    if (pending := PENDING_SHARES.get()) is not None:  # much cheaper than a hook in the backward pass
        pending.append((GradientEdge(total.grad_fn, total.output_nr), share))
    else:
        total.grad_fn.register_prehook(lambda grads: share.take(grads[0]))
    return total


class ShareAttention(torch.autograd.Function):
    """Returns queries, keys and values; scales the gradients of the first two with 1/4, of the last with 1/2.

    The softmax loses half of (the sum of weights times gradient, minus the sum of scores times gradient). Neither needs
    the map: the first equals the sum of values times gradient, the second the sum of queries times gradient.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(query, value)
        ctx.ledger_writer = ledger_writer()
        return query.view_as(query), key.view_as(key), value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        query, value = ctx.saved_tensors
        if ctx.ledger_writer is not None:
            ctx.ledger_writer.enter("softmax", torch.linalg.vecdot(value, grads[2]).mul_(0.5))
            ctx.ledger_writer.enter("softmax", torch.linalg.vecdot(query, grads[0]).mul_(-0.5))
        return grads[0] * 0.25, grads[1] * 0.25, grads[2] * 0.5


class ConservingSum(torch.autograd.Function):
    """a + b; each example's relevance is split by the absolute sums of the two sides (Chefer et al. 2021b, eq. 13)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)  # not the sum, into which some models write
        ctx.ledger_writer = ledger_writer() or LedgerWriter(Ledger(len(a)))
        return a + b

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad, (a, b) = grads[0], ctx.saved_tensors
        # The total is computed from the output, because the shares of a and b may nearly cancel.
        share_a, share_b, total = (ctx.ledger_writer.sums(x * grad) for x in (a, b, a + b))
        size = share_a.abs() + share_b.abs()
        scale = torch.where(size > 0, total / torch.where(size > 0, size, 1.0), 0.0)  # [batch]
        return tuple(ctx.ledger_writer.scaled(grad, scale * share.sign()) for share in (share_a, share_b))


class PositiveLinear(torch.autograd.Function):
    """xW + b; relevance follows positive contributions only: x⁺W⁺ + x⁻W⁻ = (xW + |x||W|) / 2.

    This identity needs one further product instead of two. The positive part is well conditioned, so |x||W| and the
    backward products are computed in the weights' precision even if the values are in double.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, with_bias: bool) -> Tensor:
        # weight [in, out]
        ledger = LEDGER.get()
        exact = ledger is not None and ledger.exact
        work = x.dtype if exact else torch.promote_types(weight.dtype, torch.float32)
        ctx.scratch = Scratch() if ledger is None else ledger.scratch
        wide = weight if weight.dtype == x.dtype else ctx.scratch.like(weight, x.dtype).copy_(weight)
        value = x @ wide
        product = value.to(work, copy=True)
        if bias is not None:
            value += bias
        inputs, weight = x.to(work), weight.to(work)
        size = inputs.abs() @ torch.abs(weight, out=ctx.scratch.like(weight, work))
        above = torch.add(product, size, alpha=1 - 64 * torch.finfo(work).eps)  # rounding errors
        doubled = size.add_(product)  # twice the positive part; so is the gradient, and the twos cancel
        positive_bias = bias.clamp_min(0).to(work).mul_(2) if with_bias and bias is not None else None
        if positive_bias is not None:
            doubled += positive_bias
            above += positive_bias
        ratio, lost = torch.div(value.to(work), doubled, out=product), None
        if above.numel() and above.min() <= 0:  # outputs without a positive contribution count as constants
            none_positive = above <= 0
            ratio, lost = ratio.masked_fill_(none_positive, 0.0), torch.where(none_positive, value, 0.0)
        ctx.save_for_backward(inputs.sign_() if inputs is not x else x.sign(), weight, ratio, positive_bias, lost)
        ctx.ledger_writer, ctx.dtype = ledger_writer(), x.dtype
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        sign, weight, ratio, positive_bias, lost = ctx.saved_tensors
        share = grads[0].to(ratio.dtype) * ratio
        if ctx.ledger_writer is not None and positive_bias is not None:
            ctx.ledger_writer.enter("bias", share * positive_bias)
        if ctx.ledger_writer is not None and lost is not None:
            ctx.ledger_writer.enter("bias", grads[0] * lost)
        # After the last attention layer, only the token that is read has relevance: no products for the others.
        reached = share.any(-1)  # [..., token]
        # If gradients are differentiated again, their graph keeps |W|, which then must not be scratch memory.
        out = None if torch.is_grad_enabled() else ctx.scratch.like(weight, weight.dtype)
        size = torch.abs(weight, out=out)
        if reached.all():
            return along_positive(share, sign, weight, size).to(ctx.dtype), None, None, None
        grad = torch.zeros(sign.shape, dtype=ctx.dtype, device=sign.device)
        grad[reached] = along_positive(share[reached], sign[reached], weight, size).to(ctx.dtype)
        return grad, None, None, None


def along_positive(share: Tensor, sign: Tensor, weight: Tensor, size: Tensor) -> Tensor:
    """Twice the gradient [..., in] of x⁺W⁺ + x⁻W⁻ from the gradient `share` [..., out]; `size` is |W|."""
    return (share @ size.T).mul_(sign).add_(share @ weight.T)


class LinearNorm(torch.autograd.Function):
    """LayerNorm with its standard deviation as a constant; the mean remains a function of the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        value, _, scale = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(scale, weight, bias)
        ctx.ledger_writer, ctx.axes = ledger_writer(), tuple(range(-len(shape), 0))
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scale, weight, bias = ctx.saved_tensors
        if ctx.ledger_writer is not None and bias is not None:
            ctx.ledger_writer.enter("bias", constant_times(bias.to(grads[0].dtype), grads[0], ctx.ledger_writer))
        grad = grads[0] * scale if weight is None else grads[0] * weight * scale
        return grad - grad.mean(ctx.axes, keepdim=True), None, None, None, None


class GradientSoftmax(torch.autograd.Function):
    """Softmax with its ordinary gradient, which does not conserve relevance; the deficit is entered into the ledger."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
        weights = F.softmax(scores, dim=dim, dtype=dtype)
        ctx.save_for_backward(scores, weights)
        ctx.dim, ctx.ledger_writer = dim, ledger_writer()
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scores, weights = ctx.saved_tensors
        grad = softmax_gradient(grads[0], weights, ctx.dim).to(scores.dtype)
        if ctx.ledger_writer is not None:  # a masked score, even -inf, has no relevance: its gradient is exactly 0
            total, kept = (torch.linalg.vecdot(x, g, dim=ctx.dim) for x, g in ((weights, grads[0]), (scores, grad)))
            lost = total - kept
            if ctx.ledger_writer.example_ids is not None or lost.isnan().any():
                lost = weights * grads[0] - scores.masked_fill(weights == 0, 0.0) * grad
            ctx.ledger_writer.enter("softmax", lost)
        return grad, None, None


# Autograd functions of this package. The strict mode refuses the outputs of all others.
KNOWN_AUTOGRAD_FUNCTIONS: set[type] = {
    Like,
    ScaleGradient,
    ShareAttention,
    ConservingSum,
    PositiveLinear,
    LinearNorm,
    GradientSoftmax,
}
