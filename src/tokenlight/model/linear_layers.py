"""The matrix of a linear layer: its weights where they are all of it, or what it gives for each unit vector."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from tokenlight.foundation.torch_internals import hooks_on
from tokenlight.model.quantised import Dequantized

Affine = tuple[Tensor, Tensor | None]  # x @ weight [in, out] + bias [out]


def affine_map(module: nn.Module, width: int) -> Affine | None:
    """Of a module that reads vectors of this width; None where it is not affine.

    An adapter or a hook around a linear layer is a part of what it does, so the weights inside are not all of it.
    """
    plain = isinstance(module, nn.Linear | Conv1D | Dequantized) and not hooks_on(module)
    found = stored(module) if plain else seen(module, width)
    return found if found is not None and reproduces(module, found, width) else None


def stored(module: Any) -> Affine:
    weight = module.weight if isinstance(module, Conv1D) else module.weight.T  # GPT-2 stores [in, out]
    return weight, module.bias


def seen(module: nn.Module, width: int) -> Affine | None:
    """What the unit vectors become."""
    like = next((weight for weight in module.parameters() if weight.is_floating_point()), None)
    if like is None:
        return None
    with torch.no_grad():
        bias = answer(module, like.new_zeros(1, width))
        rows = answer(module, torch.eye(width, dtype=like.dtype, device=like.device))
    return None if bias is None or rows is None or bias.shape[1:] != rows.shape[1:] else (rows - bias, bias[0])


def reproduces(module: nn.Module, found: Affine, width: int) -> bool:
    """Whether a module computes this map: on two vectors that nobody has chosen."""
    weight, bias = found
    if weight.ndim != 2 or len(weight) != width:
        return False
    x = torch.linspace(1, 40, 2 * width, device=weight.device).sin().view(2, width).to(weight.dtype)
    with torch.no_grad():
        y, expected = answer(module, x), x @ weight + (0 if bias is None else bias)
    if y is None or y.shape != expected.shape:
        return False
    # Sums of `width` terms, in single precision at least, rounded in the end.
    rounding = 8 * torch.finfo(weight.dtype).eps + width * torch.finfo(torch.float32).eps
    return bool((y - expected).norm() <= rounding * (y.norm() + expected.norm()))


def answer(module: nn.Module, x: Tensor) -> Tensor | None:
    """To rows of numbers, where it can read them at all."""
    try:
        y = module(x)
    except Exception:  # whatever a module of unknown kind says
        return None
    return y if isinstance(y, Tensor) and y.ndim == 2 and len(y) == len(x) else None
