"""Decompositions of operations into simpler ones that have rules.

Each function takes `call`, which calls a function under the rule table, and then the arguments of the operation.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Call = Callable[..., Any]  # call(function, *args, **kwargs)


def difference(call: Call, a: Any, b: Any, *, alpha: float = 1) -> Any:
    """a - alpha * b, as a sum."""
    if not isinstance(b, Tensor):
        negative = -alpha * b
    else:
        negative = call(torch.neg, b) if alpha == 1 else call(torch.mul, b, -alpha)
    return call(torch.add, a, negative) if isinstance(a, Tensor) else call(torch.add, negative, a)


def reversed_difference(call: Call, b: Any, a: Any) -> Any:
    """a - b as a method of b: Python calls it for `1 - x`."""
    return difference(call, a, b)


def baddbmm(call: Call, input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return scaled_sum(call, input, call(torch.bmm, batch1, batch2), beta, alpha)


def addmm(call: Call, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """input + mat1 @ mat2, unless it is a linear layer of a signal; `input` may be the residual stream."""
    if beta == 1 and alpha == 1 and not input.requires_grad and not mat2.requires_grad:
        return call(torch.addmm, input, mat1, mat2)
    return scaled_sum(call, input, call(torch.mm, mat1, mat2), beta, alpha)


def scaled_sum(call: Call, summand: Tensor, product: Tensor, beta: float, alpha: float) -> Any:
    """beta * summand + alpha * product; if beta is 0, the summand is not read, since it may be NaN."""
    product = product if alpha == 1 else call(torch.mul, product, alpha)
    if beta == 0:
        return product
    return call(torch.add, product, summand if beta == 1 else call(torch.mul, summand, beta))


def linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """A linear layer whose weight or bias is also a signal."""
    product = call(torch.matmul, input, call(torch.transpose, weight, -1, -2))
    return product if bias is None else call(torch.add, product, bias)


def rms_norm(call: Call, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
    """RMSNorm as a product of the input and a constant scale."""
    axes = tuple(range(-len(shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    result = call(torch.mul, x, torch.rsqrt(x.detach().square().mean(axes, keepdim=True) + eps))
    return result if weight is None else call(torch.mul, result, weight)


def normalize(call: Call, x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Any:
    """A quotient with the norm as a constant."""
    return call(torch.div, x, x.detach().norm(p, dim, keepdim=True).clamp_min(eps))


def dropout(call: Call, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """The input, unless the model is in training mode."""
    return call(torch.dropout, x, p, training) if training else x


def glu(call: Call, x: Tensor, dim: int = -1) -> Any:
    signal, gate = call(torch.chunk, x, 2, dim)
    return call(torch.mul, signal, call(torch.sigmoid, gate))


def iterate(call: Call, x: Tensor) -> Iterator[Tensor]:
    """The iterator that unpacks a tensor, as in `a, b = x`."""
    return iter(call(torch.unbind, x, 0))
