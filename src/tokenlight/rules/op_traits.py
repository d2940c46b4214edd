"""What is known of a torch function for the strict mode, looked up once for each function."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules import ops
from tokenlight.rules.custom_ops import weigh
from tokenlight.rules.in_place import IN_PLACE
from tokenlight.rules.ops import STEPS
from tokenlight.rules.rectifiers import COMPARISONS, KEEPS_COMPARISON
from tokenlight.rules.tags import MAY_MOVE, MULTIPLIED, NEW_ORIGIN

Function = Callable[..., Any]
# Linear in their one signal: the plain gradient is the rule.
LINEAR: set[Function] = {
    *(*ops.MOVES, *ops.TRANSFORMS, *ops.EXTREMES, *ops.JOINING, *ops.SUMS),
    *(Tensor.sub, torch.sub, torch.addmm, F.linear, weigh, Tensor.requires_grad_, Tensor.detach),
}
# A gate is still a gate when it was moved, scaled by a constant, or had one added.
KEEPS_GATES: set[Function] = {
    *(*ops.MOVES, *ops.CLIPPING, *ops.SUMS, *ops.PRODUCTS, *ops.QUOTIENTS),
}
MOVES: set[Function] = set(ops.MOVES)
# Of weights, these make weights: a weight that is scaled, added to, masked or put together is one.
ARRANGES: set[Function] = {
    *(*ops.SUMS, *ops.PRODUCTS, *ops.QUOTIENTS, *ops.JOINING, *ops.CLIPPING),
    *(Tensor.sub, torch.sub, torch.subtract, Tensor.subtract, Tensor.neg, torch.neg),
}
FIRST_COUNTS: set[Function] = {*ops.MOVES, *ops.QUOTIENTS}


JOINS_GATE: set[Function] = {*ops.SUMS, *ops.QUOTIENTS}
COMPARES: set[Function] = {*COMPARISONS, *KEEPS_COMPARISON}


class Traits(NamedTuple):
    """Of one function."""

    plain_form: Function | None  # of one that writes into its first argument
    step: Function | None  # which takes it step by step
    layer: bool  # a linear layer
    linear: bool
    multiplied: bool  # element by element
    of_matrices: bool  # a product, in which the other side may be a weight
    moving: bool  # may put texts in another order
    moves: bool  # takes elements, and does nothing else
    arranges: bool  # scales, adds or joins elements
    joins_gate: bool  # may be the end of an activation that is written out, beside products
    compares: bool  # elements with numbers, or hands on what a comparison said
    keeps_gates: bool
    first_counts: bool  # its first argument alone decides whether the result is a gate
    new_origin: bool  # what comes out begins anew


@lru_cache(maxsize=4096)  # more than torch has; rules may be called with functions made on the way
def traits_of(function: Function) -> Traits:
    return Traits(
        plain_form=IN_PLACE.get(function),
        step=STEPS.get(function),
        layer=function in ops.LINEAR_LAYERS,
        linear=function in LINEAR,
        multiplied=function in MULTIPLIED,
        of_matrices=function in ops.MATRIX_PRODUCTS,
        moving=function in MAY_MOVE,
        moves=function in MOVES,
        arranges=function in ARRANGES,
        joins_gate=function in JOINS_GATE,
        compares=function in COMPARES,
        keeps_gates=function in KEEPS_GATES,
        first_counts=function in FIRST_COUNTS,
        new_origin=function in NEW_ORIGIN,
    )
