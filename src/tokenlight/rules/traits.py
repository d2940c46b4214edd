"""What is known of a torch function beforehand, looked up once for each."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules import spellings
from tokenlight.rules.in_place import IN_PLACE
from tokenlight.rules.origins import MULTIPLIED, NEW_ORIGIN
from tokenlight.rules.owners import MAY_MOVE
from tokenlight.rules.points import weigh
from tokenlight.rules.steps import STEPS

Function = Callable[..., Any]
# Linear in their one signal: the plain gradient is the rule.
LINEAR: set[Function] = {
    *(*spellings.MOVES, *spellings.TRANSFORMS, *spellings.EXTREMES, *spellings.JOINING, *spellings.SUMS),
    *(Tensor.sub, torch.sub, torch.addmm, F.linear, weigh, Tensor.requires_grad_, Tensor.detach),
}
# A gate is still a gate when it was moved, scaled by a constant, or had one added.
KEEPS_GATES: set[Function] = {
    *(*spellings.MOVES, *spellings.CLIPPING, *spellings.SUMS, *spellings.PRODUCTS, *spellings.QUOTIENTS),
}
MOVES: set[Function] = set(spellings.MOVES)
FIRST_COUNTS: set[Function] = {*spellings.MOVES, *spellings.QUOTIENTS}


class Traits(NamedTuple):
    """Of one function."""

    plain_form: Function | None  # of one that writes into its first argument
    step: Function | None  # which takes it step by step
    linear: bool
    multiplied: bool  # element by element
    of_matrices: bool  # a product, in which the other side may be a weight
    moving: bool  # may put texts in another order
    moves: bool  # takes elements, and does nothing else
    keeps_gates: bool
    first_counts: bool  # its first argument alone decides whether the result is a gate
    new_origin: bool  # what comes out begins anew


@lru_cache(maxsize=4096)  # more than torch has; rules may be called with functions made on the way
def traits_of(function: Function) -> Traits:
    return Traits(
        plain_form=IN_PLACE.get(function),
        step=STEPS.get(function),
        linear=function in LINEAR,
        multiplied=function in MULTIPLIED,
        of_matrices=function in spellings.MATRIX_PRODUCTS,
        moving=function in MAY_MOVE,
        moves=function in MOVES,
        keeps_gates=function in KEEPS_GATES,
        first_counts=function in FIRST_COUNTS,
        new_origin=function in NEW_ORIGIN,
    )
