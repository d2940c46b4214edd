"""Attention detection, by softmax and matrix product, in families that compute attention themselves.

These families, too, take a softmax over the keys and multiply it with values, or call torch's fused attention. The
mode intercepts every torch function: the result of a softmax over the last axis is tagged as an attention map, the tag
is kept by operations that keep the shape of the map, and where a tagged map [query, key] is multiplied with values,
attention is captured as by the registered attention function (`attention.py`). Fused attention is replaced by the
operations of that function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.attention import (
    attend_written_out,
    capture_head_outputs,
    capture_weights,
    causal_mask,
    fill_hidden,
    repeat_for_heads,
    suppress_keys,
)
from tokenlight.model.capture import Capture
from tokenlight.rules.custom_ops import mix_values
from tokenlight.rules.ops import op_spec
from tokenlight.rules.tags import name_of, running_module


class AttentionDetector(TorchFunctionMode):
    """Captures attention. Entered after a rule mode, it intercepts calls first, and its own calls reach the rules."""

    capture: Capture

    def __init__(self, capture: Capture):
        super().__init__()
        self.capture = capture

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        spec, kwargs = op_spec(func), kwargs or {}
        if spec.plain_form is not None and isinstance(args[0], nn.Parameter):
            refuse_written_weights(func)
        if func is F.scaled_dot_product_attention:
            fused = FusedCall(*args, **kwargs)
            if fused.is_between(self.capture.shape[1]):
                return self._attend(fused)
        if spec.kind == "matrix_product" and func is not Tensor.__rmatmul__:
            mixing = self._mixing(func, args)
            if mixing is not None:
                return self._mix(mixing)
        if spec.kind == "softmax" and self._is_over_keys(args, kwargs):
            return self._softmax(func, args, kwargs)
        result = func(*args, **kwargs)
        if spec.keeps_map and is_map(args[0]) and result.shape[-2:] == args[0].shape[-2:]:
            result.tokenlight_map = True
        return result

    def _is_over_keys(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        scores = args[0] if args else kwargs["input"]
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        return scores.ndim > 2 and axis in (-1, scores.ndim - 1)

    def _softmax(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        scores, *rest = args if args else (kwargs["input"],)
        others = {name: value for name, value in kwargs.items() if name != "input"}
        tokens = self.capture.shape[1]
        if self.capture.keys.hidden is not None and scores.shape[-2:] == (tokens, tokens):
            scores = fill_hidden(self.capture.keys.hidden, scores)
        if self.capture.keys.factors is not None and scores.shape[-2:] == (tokens, tokens):
            scores = suppress_keys(self.capture, scores)
        result = func(scores, *rest, **others)
        result.tokenlight_map = True
        return result

    def _attend(self, call: "FusedCall") -> Tensor:
        key, value = repeat_for_heads(call.query, call.key, call.value)
        value = self.capture.add("values", value)
        mask, bias = call.mask_and_bias()
        head_outputs, _ = attend_written_out(self.capture, call.query, key, value, mask, call.scale, bias=bias)
        return capture_head_outputs(self.capture, head_outputs)

    def _mix(self, mixing: "Mixing") -> Tensor:
        values = self.capture.add("values", mixing.values)
        weights = capture_weights(self.capture, mixing.weights)
        return mixing.restore(capture_head_outputs(self.capture, mix_values(weights, values)))

    def _mixing(self, func: Callable[..., Any], args: Sequence[Any]) -> "Mixing | None":
        if len(args) < 2:  # called by keywords
            return None
        equation, weights, values = args if func is torch.einsum and len(args) == 3 else ("", *args[:2])
        batch, tokens = self.capture.shape
        if not is_map(weights) or weights.shape[-2:] != (tokens, tokens) or not isinstance(values, Tensor):
            return None
        if equation:
            return mixing_by_einsum(equation, weights, values)
        if weights.ndim == 4 and values.ndim == 4:
            return Mixing(weights, values.expand(*weights.shape[:2], *values.shape[2:]), lambda outputs: outputs)
        if weights.ndim == 3 and values.ndim == 3:  # batch and head in one axis
            heads = weights.view(batch, -1, *weights.shape[1:]), values.view(batch, -1, *values.shape[1:])
            return Mixing(*heads, lambda outputs: outputs.flatten(0, 1))
        return None


@dataclass(frozen=True)
class FusedCall:
    """The arguments of torch's `scaled_dot_product_attention`. Models run in eval mode, so there is no dropout."""

    query: Tensor  # [batch, head, query, dim]
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None  # added to the scores, or bool: True where a token may attend
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def is_between(self, tokens: int) -> bool:
        """Whether queries and keys are the tokens of the text: no other attention is captured."""
        return self.query.ndim == 4 and (self.query.shape[2], self.key.shape[2]) == (tokens, tokens)

    def mask_and_bias(self) -> tuple[Tensor | None, Tensor | None]:
        """Two additive terms: a mask of zeros and least numbers, or a bias that may hold other numbers, too."""
        if self.is_causal:
            return causal_mask(self.query, self.key), None
        allowed = self.attn_mask
        if allowed is None or allowed.dtype != torch.bool:
            return None, allowed
        return self.query.new_zeros(allowed.shape).masked_fill_(~allowed, torch.finfo(self.query.dtype).min), None


@dataclass(frozen=True)
class Mixing:
    """A product of attention weights and values, and the function that restores the caller's order of axes."""

    weights: Tensor  # [batch, head, query, key]
    values: Tensor  # [batch, head, key, dim]
    restore: Callable[[Tensor], Tensor]


def mixing_by_einsum(equation: str, weights: Tensor, values: Tensor) -> Mixing | None:
    """The product of an einsum such as "bnij,jbnd->ibnd"; None where it is not weights times values."""
    sides, _, result = equation.replace(" ", "").partition("->")
    first, _, second = sides.partition(",")
    width = set(second) - set(first)
    if len(first) != 4 or len(width) != 1 or not {first[0], first[1], first[3]} < set(second) or len(second) != 4:
        return None
    outputs = (first[0], first[1], first[2], *width)
    if sorted(result) != sorted(outputs):
        return None
    ordered = values.permute([second.index(letter) for letter in (first[0], first[1], first[3], *width)])
    return Mixing(weights, ordered, lambda x: x.permute([outputs.index(letter) for letter in result]))


def refuse_written_weights(func: Callable[..., Any]) -> None:
    """Refuse a write into the weights, which are shared with the user's model."""
    raise UnsupportedModelError(
        f"{running_module()} writes into its weights while it runs ({name_of(func)}), and your model shares them. If "
        "it does so in its first run alone, as RWKV does, run it once before: model.eval()(input_ids)"
    )


def is_map(tensor: Any) -> bool:
    """Whether a tensor is tagged as an attention map."""
    return getattr(tensor, "tokenlight_map", False)
