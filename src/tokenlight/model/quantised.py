"""Linear layers with packed weights (8 or 4 bits): in the instrumented model, plain ones around the weights that they
stand for."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.foundation.torch_internals import hooks_on, weights_in

WAY_OUT = "load the model in floating point, or give what model.dequantize() makes of it"


class Dequantized(nn.Module):
    """The same function as a layer whose weights are packed and whose values are not rounded.

    It reads the user's layer and changes nothing in it. Weights are unpacked whenever they are asked for, so that those
    of one layer exist at a time, except where a graph keeps them.
    """

    unpack: Callable[[], Tensor]
    computed_in: torch.dtype | None

    def __init__(self, layer: nn.Module, unpack: Callable[[], Tensor], computed_in: torch.dtype | None):
        super().__init__()
        self.__dict__["layer"] = layer  # not a module of the instrumented model
        self.unpack, self.computed_in = unpack, computed_in

    @property
    def weight(self) -> Tensor:
        """[out, in]"""
        return self.unpack().detach()

    @property
    def bias(self) -> Tensor | None:
        found = self.__dict__["layer"].bias
        return None if found is None else found.detach()

    def forward(self, x: Tensor) -> Tensor:
        inside = x if self.computed_in is None else x.to(self.computed_in)
        weight, bias = (fitting(part, inside.dtype) for part in (self.weight, self.bias))
        return F.linear(inside, weight, bias).to(x.dtype)  # type: ignore[arg-type]


def fitting(part: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """In the precision of the values, as the layer has it; beside doubles, as the rules want it: in its own."""
    return part if part is None or dtype == torch.float64 else part.to(dtype)


def is_packed(tensor: Any) -> bool:
    """A tensor of a class of its own that can be unpacked, as torchao makes them."""
    return isinstance(tensor, Tensor) and type(tensor).dequantize is not Tensor.dequantize


def unpacked(tensor: Tensor) -> Tensor:
    """The numbers that a tensor stands for."""
    return tensor.dequantize() if is_packed(tensor) else tensor


def is_quantized(module: nn.Module) -> bool:
    """Whether its own weights are packed."""
    kind = type(module).__module__
    own = weights_in(module).values()
    return kind.startswith("bitsandbytes.") or any(is_packed(w) or w.dtype in PACKED for w in own if w is not None)


PACKED = (torch.uint8, torch.int8)


def unpacked_weights(model: nn.Module) -> int:
    """How many numbers the packed weights stand for: of a model, or of its instrumented model."""
    layers: list[Any] = [m.__dict__["layer"] for m in model.modules() if isinstance(m, Dequantized)]
    layers += [module for module in model.modules() if is_quantized(module)]
    return sum(layer.in_features * layer.out_features for layer in layers)


def dequantized(module: nn.Module) -> Dequantized:
    """A plain layer for a quantized one, or the reason why there is none."""
    name = type(module).__name__
    if hooks_on(module) or "forward" in vars(module):
        raise UnsupportedModelError(f"there are hooks on {name}, which is quantized: remove them, or {WAY_OUT}")
    weight: Any = weights_in(module).get("weight")
    if type(module) is nn.Linear and is_packed(weight):
        if getattr(weight, "act_quant_kwargs", None) is not None:
            raise UnsupportedModelError(
                f"{name} is quantized and rounds its input, too, which has no gradient: {WAY_OUT}"
            )
        return Dequantized(module, weight.dequantize, None)
    if name == "Linear4bit" and getattr(weight, "quant_state", None) is not None:
        return four_bits(module, weight)
    raise UnsupportedModelError(f"{name} is quantized in a way that is more than packed weights: {WAY_OUT}")


def four_bits(module: Any, weight: Any) -> Dequantized:
    """A layer of bitsandbytes."""
    from bitsandbytes.functional import dequantize_4bit  # type: ignore[import-not-found]

    if getattr(weight.quant_state, "packing_format_for_cpu", False):
        raise UnsupportedModelError(
            "a pass of the model has packed its 4-bit weights for this processor, from where they cannot be read: load "
            "it again and explain before you run it, or give what model.dequantize() makes of it"
        )
    computed_in = module.compute_dtype if module.compute_type_is_set else None
    return Dequantized(module, lambda: dequantize_4bit(weight.data, weight.quant_state), computed_in)
