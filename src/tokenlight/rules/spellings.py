"""The ways in which torch lets people write the same operation, so that tables and checks name each of them once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules.points import activation, copied, replaced

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
