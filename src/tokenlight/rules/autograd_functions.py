"""Autograd functions with the ordinary forward value and a modified backward.

Each notes in the ledger what it keeps from the input, so that the sums can be checked.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn import functional as F

from tokenlight._compat.torch_internals import softmax_gradient
from tokenlight.rules.ledger import LEDGER, WAITING, Ledger, LedgerWriter, Scratch, Share, constant_times, ledger_writer


class Like(torch.autograd.Function):
    """The value goes forward; backward goes to the surrogate, so that surrogate times gradient keeps the relevance."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, values: list[Tensor]) -> Tensor:
        # In a list, so that torch does not take what comes out for a view of it, which nobody could write into.
        value = values[0]
        ratio, lost = value / surrogate, None
        if not ratio.sum().isfinite():  # the surrogate is 0 somewhere: there the value passes as a constant
            nothing = ~ratio.isfinite()  # also where the value is infinite: a mask, which has no gradient
            ratio, lost = ratio.masked_fill_(nothing, 0.0), torch.where(nothing & value.isfinite(), value, 0.0)
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
    """The value as it is, the gradient times a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.factor, None


def scale_gradient(result: Tensor, factor: float) -> Tensor:
    """The same; the gradient that goes on from here is multiplied with a factor."""
    if result.grad_fn is not None:
        result.grad_fn.register_prehook(lambda grads: tuple(grad * factor for grad in grads))
    return result


def absorb(total: Tensor, constant: Tensor | float, account: str) -> Tensor:
    """The same; constant times gradient, which a constant part of a sum takes, goes into the ledger.

    Whoever asks for the gradient of `total` itself gets it before the constant has taken its share.
    """
    books = ledger_writer()
    if books is None or total.grad_fn is None:
        return total
    if isinstance(constant, Tensor) and (constant.requires_grad or constant.dtype != total.dtype):
        constant = constant.detach().to(total.dtype)
    share = Share(account, constant, books)
    if (waiting := WAITING.get()) is not None:  # cheaper by far than a call from the backward pass
        waiting.append((GradientEdge(total.grad_fn, total.output_nr), share))
    else:
        total.grad_fn.register_prehook(lambda grads: share.take(grads[0]))
    return total


class ShareAttention(torch.autograd.Function):
    """Queries, keys and values as they are; the first two take a quarter of their gradients, the last a half.

    What the softmax loses is half of the sum of weights times gradient minus the sum of scores times gradient. Neither
    is written out: the first is the sum of values times gradient, the second the sum of queries times gradient.
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
    """a + b, each example's relevance shared by the absolute sums of the two sides (Chefer et al. 2021b, eq. 13)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)  # not the sum, into which some models write
        ctx.ledger_writer = ledger_writer() or LedgerWriter(Ledger(len(a)))
        return a + b

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad, (a, b) = grads[0], ctx.saved_tensors
        # The sum of the relevance is taken from the output: the shares of a and b may nearly cancel.
        share_a, share_b, total = (ctx.ledger_writer.sums(x * grad) for x in (a, b, a + b))
        size = share_a.abs() + share_b.abs()
        scale = torch.where(size > 0, total / torch.where(size > 0, size, 1.0), 0.0)  # [batch]
        return tuple(ctx.ledger_writer.scaled(grad, scale * share.sign()) for share in (share_a, share_b))


class PositiveLinear(torch.autograd.Function):
    """xW + b, where relevance goes only along positive contributions: x⁺W⁺ + x⁻W⁻ = (xW + |x||W|) / 2.

    That identity needs one product beside xW instead of two. The positive part is well conditioned, so |x||W| and
    the backward products are done in the weights' precision even where the values are in double.
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
        rough, weight = x.to(work), weight.to(work)
        size = rough.abs() @ torch.abs(weight, out=ctx.scratch.like(weight, work))
        above = torch.add(product, size, alpha=1 - 64 * torch.finfo(work).eps)  # of what rounding alone would leave
        doubled = size.add_(product)  # twice the positive part; so is the gradient, and the twos cancel
        taken = bias.clamp_min(0).to(work).mul_(2) if with_bias and bias is not None else None
        if taken is not None:
            doubled += taken
            above += taken
        ratio, lost = torch.div(value.to(work), doubled, out=product), None
        if (
            above.numel() and above.min() <= 0
        ):  # no positive contribution somewhere: there the value passes as a constant
            nothing = above <= 0
            ratio, lost = ratio.masked_fill_(nothing, 0.0), torch.where(nothing, value, 0.0)
        ctx.save_for_backward(rough.sign_() if rough is not x else x.sign(), weight, ratio, taken, lost)
        ctx.ledger_writer, ctx.dtype = ledger_writer(), x.dtype
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        sign, weight, ratio, taken, lost = ctx.saved_tensors
        share = grads[0].to(ratio.dtype) * ratio
        if ctx.ledger_writer is not None and taken is not None:
            ctx.ledger_writer.enter("bias", share * taken)
        if ctx.ledger_writer is not None and lost is not None:
            ctx.ledger_writer.enter("bias", grads[0] * lost)
        # Behind the last mixing of tokens, relevance is at the one token that is read: no products for the others.
        reached = share.any(-1)  # [..., token]
        # With a graph of the gradients, they keep |W|.
        room = None if torch.is_grad_enabled() else ctx.scratch.like(weight, weight.dtype)
        size = torch.abs(weight, out=room)
        if reached.all():
            return along_positive(share, sign, weight, size).to(ctx.dtype), None, None, None
        grad = torch.zeros(sign.shape, dtype=ctx.dtype, device=sign.device)
        grad[reached] = along_positive(share[reached], sign[reached], weight, size).to(ctx.dtype)
        return grad, None, None, None


def along_positive(share: Tensor, sign: Tensor, weight: Tensor, size: Tensor) -> Tensor:
    """What arrives at the inputs [..., in] of x⁺W⁺ + x⁻W⁻ from shares [..., out], times two; `size` is |W|."""
    return (share @ size.T).mul_(sign).add_(share @ weight.T)


class LinearNorm(torch.autograd.Function):
    """LayerNorm whose standard deviation is a constant; the mean stays a function of the input."""

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
    """Softmax with its own gradient, which does not conserve relevance: what is missing goes into the ledger."""

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
        if ctx.ledger_writer is not None:  # a masked score holds nothing, even -inf: its gradient is exactly 0
            total, kept = (torch.linalg.vecdot(x, g, dim=ctx.dim) for x, g in ((weights, grads[0]), (scores, grad)))
            lost = total - kept
            if ctx.ledger_writer.owners is not None or lost.isnan().any():
                lost = weights * grads[0] - scores.masked_fill(weights == 0, 0.0) * grad
            ctx.ledger_writer.enter("softmax", lost)
        return grad, None, None


# Autograd functions that rules may leave in a graph.
OURS: set[type] = {Like, ScaleGradient, ShareAttention, ConservingSum, PositiveLinear, LinearNorm, GradientSoftmax}
