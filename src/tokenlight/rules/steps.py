"""Functions that are several operations at once, taken step by step, so that each step meets its own rule.

Each is written with `call`, which calls a function under the rules.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Call = Callable[..., Any]  # call(function, *args, **kwargs)


def difference(call: Call, a: Any, b: Any, *, alpha: float = 1) -> Any:
    taken = (
        -alpha * b if not isinstance(b, Tensor) else call(torch.neg, b) if alpha == 1 else call(torch.mul, b, -alpha)
    )
    return call(torch.add, a, taken) if isinstance(a, Tensor) else call(torch.add, taken, a)


def difference_from(call: Call, b: Any, a: Any) -> Any:
    """As `1 - x` calls it."""
    return difference(call, a, b)


def baddbmm(call: Call, input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    product = call(torch.bmm, batch1, batch2)
    product = product if alpha == 1 else call(torch.mul, product, alpha)
    if beta == 0:  # what is added may then be anything, even not a number
        return product
    return call(torch.add, product, input if beta == 1 else call(torch.mul, input, beta))


def addmm(call: Call, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Where it is no linear layer of one signal: `input` may be the residual stream."""
    if beta == 1 and alpha == 1 and not input.requires_grad and not mat2.requires_grad:
        return call(torch.addmm, input, mat1, mat2)
    product = call(torch.mm, mat1, mat2)
    product = product if alpha == 1 else call(torch.mul, product, alpha)
    if beta == 0:
        return product
    return call(torch.add, product, input if beta == 1 else call(torch.mul, input, beta))


def linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """Where the weight or the bias is a signal, too."""
    product = call(torch.matmul, input, call(torch.transpose, weight, -1, -2))
    return product if bias is None else call(torch.add, product, bias)


def rms_norm(call: Call, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
    """The scale is a constant, as where it is written out."""
    axes = tuple(range(-len(shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    result = call(torch.mul, x, torch.rsqrt(x.detach().square().mean(axes, keepdim=True) + eps))
    return result if weight is None else call(torch.mul, result, weight)


def normalize(call: Call, x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Any:
    """The norm is a constant."""
    return call(torch.div, x, x.detach().norm(p, dim, keepdim=True).clamp_min(eps))


def dropout(call: Call, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Of a model that does not train: nothing happens."""
    return call(torch.dropout, x, p, training) if training else x


def glu(call: Call, x: Tensor, dim: int = -1) -> Any:
    signal, gate = call(torch.chunk, x, 2, dim)
    return call(torch.mul, signal, call(torch.sigmoid, gate))


def iterate(call: Call, x: Tensor) -> Any:
    """As in `a, b = x`."""
    return iter(call(torch.unbind, x, 0))


STEPS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((Tensor.sub, torch.sub, torch.subtract, Tensor.subtract), difference),
    **dict.fromkeys((Tensor.__rsub__, torch.rsub), difference_from),
    **dict.fromkeys((Tensor.baddbmm, torch.baddbmm), baddbmm),
    **dict.fromkeys((Tensor.addmm, torch.addmm), addmm),
    F.linear: linear,
    Tensor.__iter__: iterate,
    F.rms_norm: rms_norm,
    F.normalize: normalize,
    F.glu: glu,
    F.dropout: dropout,
}
