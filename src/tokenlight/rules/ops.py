"""Torch functions by kind: spellings of one operation, and decompositions into simpler ones.

Each is written with `call`, which calls a function under the rules.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules.custom_ops import activation, copied, replaced

Functions = tuple[Callable[..., Any], ...]


def getter(name: str) -> Callable[..., Any]:
    """What torch calls to read an attribute of a tensor."""
    return getattr(Tensor, name).__get__


# Those of transformers are one operation of ours; torch's, as modules or bare, are these functions.
ACTIVATIONS: Functions = (
    *(activation, F.gelu, F.silu, F.relu, torch.relu, Tensor.relu, torch.tanh, Tensor.tanh, torch.sigmoid),
    *(Tensor.sigmoid, F.leaky_relu, F.mish, F.elu, F.selu, F.celu, F.prelu, F.rrelu, F.relu6, F.threshold),
    *(F.hardtanh, F.hardswish, F.hardsigmoid, F.hardshrink, F.softshrink, F.tanhshrink, F.softplus, F.softsign),
    *(F.logsigmoid, torch.special.expit, torch.erf, Tensor.erf, torch.special.erf, torch.exp, Tensor.exp),
    *(torch.expm1, Tensor.expm1, torch.log, Tensor.log, torch.log1p, Tensor.log1p),
)
# Those that rectify nothing: they level off on both sides, or are parts of formulas.
SATURATING: Functions = (
    *(torch.tanh, Tensor.tanh, torch.sigmoid, Tensor.sigmoid, torch.special.expit, F.hardsigmoid, F.softsign),
    *(torch.erf, Tensor.erf, torch.special.erf, torch.exp, Tensor.exp, torch.expm1, Tensor.expm1),
    *(torch.log, Tensor.log, torch.log1p, Tensor.log1p),
)
EXPONENTIALS: Functions = (torch.exp, Tensor.exp)
LOGSUMEXPS: Functions = (torch.logsumexp, Tensor.logsumexp)
LINEAR_LAYERS: Functions = (F.linear, torch.addmm)
SUMS: Functions = (Tensor.add, torch.add)
PRODUCTS: Functions = (Tensor.mul, torch.mul, torch.multiply, Tensor.multiply)  # element by element
QUOTIENTS: Functions = (Tensor.div, torch.div, torch.true_divide, Tensor.true_divide, torch.divide, Tensor.divide)
MATRIX_PRODUCTS: Functions = (
    *(torch.matmul, Tensor.matmul, Tensor.__rmatmul__, torch.bmm, Tensor.bmm, torch.mm, Tensor.mm, torch.einsum),
)
SOFTMAXES: Functions = (F.softmax, torch.softmax, Tensor.softmax)
NORMS: Functions = (F.layer_norm, F.rms_norm, F.group_norm, F.normalize)
SCALES: Functions = (  # how norms write what they divide by
    *(Tensor.pow, torch.pow, Tensor.__pow__, Tensor.square, torch.square, torch.rsqrt, Tensor.rsqrt, torch.sqrt),
    *(Tensor.sqrt, Tensor.var, torch.var, Tensor.std, torch.std, Tensor.norm, torch.norm, torch.linalg.norm),
    torch.linalg.vector_norm,
)
# Elements are taken, moved or copied, and nothing else.
MOVES: Functions = (
    *(Tensor.__getitem__, Tensor.contiguous, Tensor.expand, Tensor.flatten, Tensor.permute, Tensor.repeat),
    *(Tensor.repeat_interleave, Tensor.reshape, Tensor.squeeze, Tensor.transpose, Tensor.unsqueeze, Tensor.view),
    *(Tensor.clone, Tensor.unflatten, Tensor.view_as, Tensor.reshape_as, Tensor.expand_as, Tensor.broadcast_to),
    *(Tensor.swapaxes, Tensor.movedim, Tensor.narrow, Tensor.select, Tensor.unfold, Tensor.roll, Tensor.flip),
    *(getter("T"), getter("mT"), Tensor.t, Tensor.tile, Tensor.index_select, Tensor.gather),
    *(Tensor.take_along_dim, Tensor.split, Tensor.chunk, Tensor.unbind, Tensor.diagonal, Tensor.as_strided),
    *(Tensor.topk, Tensor.sort, torch.topk, torch.sort, torch.diagonal, torch.as_strided, torch.unflatten),
    *(torch.split, torch.chunk, torch.unbind, torch.clone, torch.flatten, torch.permute, torch.repeat_interleave),
    *(torch.transpose, torch.reshape, torch.unsqueeze, torch.squeeze, torch.broadcast_to, torch.swapaxes),
    *(torch.movedim, torch.narrow, torch.select, torch.roll, torch.flip, torch.tile, torch.index_select),
    *(torch.gather, torch.take_along_dim, F.unfold),
    *(Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16, Tensor.to, Tensor.type, Tensor.type_as),
    *(Tensor.cpu, Tensor.cuda, F.dropout),  # of a model that does not train
)
# Of each place the largest or smallest: a choice among elements, so linear in those that were chosen.
EXTREMES: Functions = (Tensor.amax, torch.amax, Tensor.amin, torch.amin, Tensor.max, torch.max, Tensor.min, torch.min)
CLIPPING: Functions = (
    *(Tensor.clamp, torch.clamp, Tensor.clamp_min, torch.clamp_min, Tensor.clamp_max, torch.clamp_max, Tensor.clip),
    *(torch.clip, torch.maximum, torch.minimum, Tensor.maximum, Tensor.minimum),
)
# Elements of several tensors, or of a tensor and numbers, side by side.
JOINING: Functions = (
    *(torch.cat, torch.concat, torch.concatenate, torch.stack, torch.hstack, torch.vstack, torch.where, Tensor.where),
    *(Tensor.masked_fill, torch.masked_fill, F.pad, Tensor.scatter, torch.scatter, Tensor.index_copy),
    *(torch.index_copy, Tensor.index_put, torch.index_put, Tensor.masked_scatter, torch.masked_scatter),
    *(Tensor.index_add, torch.index_add, Tensor.scatter_add, torch.scatter_add, copied, replaced),
)
CONVOLUTIONS: Functions = (F.conv1d, F.conv2d)
TRANSFORMS: Functions = (  # sums with constant factors
    *(torch.fft.fft, torch.fft.ifft, torch.fft.fftn, torch.fft.ifftn, torch.fft.fft2, torch.fft.ifft2, torch.fft.rfft),
    *(torch.fft.irfft, torch.view_as_complex, torch.view_as_real, getter("real"), getter("imag")),
    *(torch.real, torch.imag, Tensor.cumsum, torch.cumsum, Tensor.tril, torch.tril, Tensor.triu, torch.triu),
    *(Tensor.mean, torch.mean, Tensor.sum, torch.sum, Tensor.neg, torch.neg, F.avg_pool1d, F.avg_pool2d),
)


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
