"""A second way in, for families that do not call attention through transformers' interface.

They, too, take a softmax over the keys and multiply it with values. While the mode is active it sees every torch
function: what a softmax over the last axis gives is marked, the mark survives what leaves the map in shape, and where a
marked map [query, key] meets its values, attention is noted as the interface's own function would (`attention.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.model.attention import note_context, note_weights
from tokenlight.model.tape import Tape
from tokenlight.rules.in_place import IN_PLACE
from tokenlight.rules.marks import name_of
from tokenlight.rules.origins import running_module
from tokenlight.rules.points import mix_values

Functions = set[Callable[..., Any]]
SOFTMAX: Functions = {F.softmax, torch.softmax, Tensor.softmax}
MULTIPLIED: Functions = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
# What may lie between the softmax and the values: the map stays a map of the same heads, queries and keys.
LEAVES_IN_SHAPE: Functions = {
    *(F.dropout, Tensor.to, Tensor.float, Tensor.type, Tensor.type_as, Tensor.contiguous, Tensor.clone),
    *(Tensor.view, Tensor.reshape, torch.reshape, Tensor.mul, torch.mul, Tensor.masked_fill, Tensor.half),
}


class Watch(TorchFunctionMode):
    """Notes attention on a tape. Entered after a rule mode it sees calls first, and hands on to the rules."""

    tape: Tape

    def __init__(self, tape: Tape):
        super().__init__()
        self.tape = tape

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in IN_PLACE and isinstance(args[0], nn.Parameter):
            refuse_written_weights(func)
        if func in MULTIPLIED or func is torch.einsum:
            mixing = self._mixing(func, args)
            if mixing is not None:
                return self._mix(mixing)
        result = func(*args, **kwargs)
        if func in SOFTMAX:
            axis = args[1] if len(args) > 1 else kwargs.get("dim")
            if result.ndim > 2 and axis in (-1, result.ndim - 1):
                result.tokenlight_map = True
        elif func in LEAVES_IN_SHAPE and is_map(args[0]) and result.shape[-2:] == args[0].shape[-2:]:
            result.tokenlight_map = True
        return result

    def _mix(self, mixing: "Mixing") -> Tensor:
        values = self.tape.add("values", mixing.values)
        weights = note_weights(self.tape, mixing.weights)
        return mixing.back(note_context(self.tape, mix_values(weights, values)))

    def _mixing(self, func: Callable[..., Any], args: Sequence[Any]) -> "Mixing | None":
        equation, weights, values = args if func is torch.einsum and len(args) == 3 else ("", *args[:2])
        batch, tokens = self.tape.shape
        if not is_map(weights) or weights.shape[-2:] != (tokens, tokens) or not isinstance(values, Tensor):
            return None
        if equation:
            return by_equation(equation, weights, values)
        if weights.ndim == 4 and values.ndim == 4:
            return Mixing(weights, values.expand(*weights.shape[:2], *values.shape[2:]), lambda context: context)
        if weights.ndim == 3 and values.ndim == 3:  # batch and head in one axis
            heads = weights.view(batch, -1, *weights.shape[1:]), values.view(batch, -1, *values.shape[1:])
            return Mixing(*heads, lambda context: context.flatten(0, 1))
        return None


@dataclass(frozen=True)
class Mixing:
    """The product of weights and values as they are noted, and how the caller wants what comes out."""

    weights: Tensor  # [batch, head, query, key]
    values: Tensor  # [batch, head, key, dim]
    back: Callable[[Tensor], Tensor]


def by_equation(equation: str, weights: Tensor, values: Tensor) -> Mixing | None:
    """As in "bnij,jbnd->ibnd"."""
    sides, _, result = equation.replace(" ", "").partition("->")
    first, _, second = sides.partition(",")
    width = set(second) - set(first)
    if len(first) != 4 or len(width) != 1 or not {first[0], first[1], first[3]} < set(second) or len(second) != 4:
        return None
    context = (first[0], first[1], first[2], *width)
    if sorted(result) != sorted(context):
        return None
    ordered = values.permute([second.index(letter) for letter in (first[0], first[1], first[3], *width)])
    return Mixing(weights, ordered, lambda x: x.permute([context.index(letter) for letter in result]))


def refuse_written_weights(func: Callable[..., Any]) -> None:
    """They are the user's."""
    raise UnsupportedModelError(
        f"{running_module()} writes into its weights while it runs ({name_of(func)}). They are yours, and stay as they "
        "are. If it does so in its first run alone, as RWKV does, run it once before: model.eval()(input_ids)"
    )


def is_map(tensor: Any) -> bool:
    return getattr(tensor, "tokenlight_map", False)
