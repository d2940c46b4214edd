"""Where tensors come from, element by element: to notice an activation that is written out in several operations.

Its last operation multiplies a signal with a gate that was computed from the same signal, as in x * sigmoid(x). Rules
that see one operation at a time would take that for a gated MLP, whose two factors come from layers of their own.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.rules.points import attend, mix_values, query_key, recurrence, scan, weigh
from tokenlight.rules.spellings import LINEAR_LAYERS, MATRIX_PRODUCTS, PRODUCTS, SOFTMAXES

Functions = set[Callable[..., Any]]
Origins = frozenset[Any]  # numbers of tensors that mixing layers made, or places within them
NUMBERS = count()
MULTIPLIED: Functions = set(PRODUCTS)
# Elements of different places meet in what comes out: it begins anew.
MIXING: Functions = {
    *(
        *LINEAR_LAYERS,
        *MATRIX_PRODUCTS,
        *SOFTMAXES,
        torch.baddbmm,
        query_key,
        mix_values,
        attend,
        scan,
        recurrence,
        weigh,
    ),
    *(Tensor.mean, torch.mean, Tensor.sum, torch.sum, F.log_softmax, Tensor.cumsum, torch.cumsum),
    *(Tensor.norm, torch.norm, torch.linalg.norm, torch.linalg.vector_norm, Tensor.var, torch.var, Tensor.std),
    *(
        torch.std,
        Tensor.logsumexp,
        torch.logsumexp,
        F.layer_norm,
        F.rms_norm,
        F.group_norm,
        F.conv1d,
        F.embedding,
        torch.cat,
        torch.stack,
    ),
}
# Of these arguments only the shape, the kind or the place counts.
EMPTY: Functions = {
    torch.zeros_like,
    torch.ones_like,
    torch.full_like,
    torch.empty_like,
    torch.rand_like,
    torch.randn_like,
}
SHAPES: Functions = {getattr(Tensor, name).__get__ for name in ("shape", "device", "dtype", "ndim")}
NEW_ORIGIN = MIXING | EMPTY | SHAPES
FIRST_ONLY: Functions = {Tensor.to, Tensor.type_as, Tensor.view_as, Tensor.expand_as, Tensor.reshape_as}
# A part of a tensor is its own origin: fused layers compute a gate and its signal at once and cut the result in two.
CUTTING: Functions = {
    *(Tensor.__getitem__, Tensor.split, Tensor.chunk, Tensor.unbind, Tensor.narrow, Tensor.select),
    *(torch.split, torch.chunk, torch.unbind, torch.narrow, torch.select),
}


def have_one_source(factors: Sequence[Tensor]) -> bool:
    """Whether the factors of a product, one of MULTIPLIED, were computed from the same elements."""
    return len(factors) == 2 and not origins(factors[0]).isdisjoint(origins(factors[1]))


def refuse_own_source() -> None:
    raise UnsupportedModelError(
        f"{running_module()} multiplies a signal with a gate that it computes from the same signal: an activation "
        "written out in several operations, which relevance rules cannot follow one by one. Put an activation of "
        "torch.nn or transformers.activations in its place, or make it one operation with "
        "tokenlight.rules.points.activation(x, formula)"
    )


def note_origins(function: Callable[..., Any], sources: Sequence[Tensor], results: Iterable[Any]) -> None:
    """Write on what comes out of a function where it comes from; not for those in NEW_ORIGIN."""
    if function in FIRST_ONLY or len(sources) == 1:
        found = origins(sources[0])
    else:
        found = frozenset().union(*map(origins, sources))
    if not found:
        return
    for result in results:
        if isinstance(result, Tensor) and result.is_floating_point():
            place = origins_of_part(result, sources[0], found) if function in CUTTING else found
            result.tokenlight_origins = place  # type: ignore[attr-defined]


def origins(tensor: Tensor) -> Origins:
    """A signal that nobody has written on yet is its own origin; constants that no signal went into have none."""
    known: Origins | None = getattr(tensor, "tokenlight_origins", None)
    if known is None and tensor.requires_grad:
        known = tensor.tokenlight_origins = frozenset({next(NUMBERS)})  # type: ignore[attr-defined]
    return known or frozenset()


def origins_of_part(part: Tensor, whole: Tensor, found: Origins) -> Origins:
    """The same part cut out twice has the same origins."""
    if part.shape == whole.shape:
        return found
    if part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
        return frozenset({next(NUMBERS)})  # picked by an index: copied in another order
    offset = part.storage_offset() - whole.storage_offset()
    return frozenset((origin, offset, tuple(part.shape), part.stride()) for origin in found)


def running_module() -> str:
    """The module whose code is running, for messages."""
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
        frame = frame.f_back
    return "the model"
