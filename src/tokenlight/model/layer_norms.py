"""Layer norms that a family writes out in several operations (DeBERTa, Cohere, xLSTM), as one operation for rules.

Rule tables know `F.layer_norm`. z+ passes relevance through it unchanged, which operations followed one by one do not.
An RMSNorm needs nothing: its scale is a constant, however it is written.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokenlight._compat.accelerate_internals import name_of_forward
from tokenlight._compat.torch_internals import without_torch_functions
from tokenlight.rules.ledger import LEDGER

USUAL_EPS = (1e-5, 1e-6, 1e-8, 1e-12)  # where a module does not keep it as an attribute


@dataclass(frozen=True)
class NormParameters:
    """The names of a layer norm's parameters, what is added to them, and whether the norm joins heads."""

    weight: str | None
    offset: int  # some families store the weight minus 1
    bias: str | None
    eps: float
    joins_heads: bool = False  # [..., head, feature] -> [..., head * feature], before weight and bias

    def layer_norm(self, module: nn.Module, x: Tensor) -> Tensor:
        """The norm of `module` by torch's function, over the last axis of `x`.

        Weight and bias are applied afterwards if they have several axes or the norm joins heads.
        """
        weight = None if self.weight is None else getattr(module, self.weight) + self.offset
        bias = None if self.bias is None else getattr(module, self.bias)
        parameter = bias if weight is None else weight
        if not self.joins_heads and (parameter is None or parameter.ndim == 1):
            return F.layer_norm(x, x.shape[-1:], weight, bias, self.eps)
        result = F.layer_norm(x, x.shape[-1:], None, None, self.eps)
        result = result.flatten(-2) if self.joins_heads else result
        result = result if weight is None else result * weight
        return result if bias is None else result + bias


def call_layer_norm_under_rules(module: nn.Module) -> None:
    """Let a module of an instrumented model that computes a layer norm call `F.layer_norm` in passes with rules."""
    if may_be_layer_norm(module):
        name = name_of_forward(module)
        setattr(module, name, WrittenOutNorm(module, getattr(module, name)))


class WrittenOutNorm:
    """The forward of a module that may be a layer norm; the first pass with rules tests whether it is."""

    def __init__(self, module: nn.Module, formula: Callable[..., Any]):
        self._module, self._formula = module, formula
        self._parameters: NormParameters | None = None
        self._tested = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if LEDGER.get() is None:  # no rules
            return self._formula(*args, **kwargs)
        (x,) = (*args, *kwargs.values())
        if not self._tested:
            with without_torch_functions(), torch.no_grad():
                self._parameters = find_parameters(self._module, self._formula, x)
            self._tested = True
        return self._formula(x) if self._parameters is None else self._parameters.layer_norm(self._module, x)


def may_be_layer_norm(module: nn.Module) -> bool:
    """Whether a module is a family's own, without submodules, and reads one tensor and at most a weight and a bias."""
    if type(module).__module__.startswith("torch.") or any(True for _ in module.children()):
        return False
    shapes = [parameter.shape for parameter in module.parameters()]
    if len(shapes) > 2 or len(set(shapes)) > 1:
        return False
    kinds = [parameter.kind for parameter in inspect.signature(type(module).forward).parameters.values()]
    return len(kinds) == 2 and all(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)


def find_parameters(module: nn.Module, formula: Callable[[Tensor], Any], x: Any) -> NormParameters | None:
    """The parameters with which the formula is a layer norm over the last axis of `x`; None where it is none."""
    if not isinstance(x, Tensor) or not x.ndim or x.shape[-1] < 2:
        return None
    weights = dict(module.named_parameters(recurse=False))
    like = next(iter(weights.values()), x)
    shape = like.shape if weights else x.shape[-1:]
    of_joined_heads = shape == (x.shape[-2:].numel(),)
    if not (of_joined_heads or x.shape[-len(shape) :] == shape) or not like.is_floating_point():
        return None
    # A module may check the number of axes, and that of heads: four axes are [batch, token, head, feature].
    kept_axes = max(2, len(shape)) if of_joined_heads or x.ndim > 3 else len(shape)
    noise = make_noise((*(1,) * (x.ndim - kept_axes - 1), 2, *x.shape[-kept_axes:]), like.device)
    joins_heads = False
    with suppress(Exception):  # what a module of unknown kind may raise
        result = formula(noise.to(like))
        if not close(formula((noise + 1).to(like)), result):  # most others depend on the mean
            return None
        joins_heads = result.shape == noise.flatten(-2).shape
    for parameters in candidates(module, list(weights), joins_heads):
        with suppress(Exception):
            # Where the variance is about eps, another eps would be noticed.
            if all(agree(module, formula, parameters, (noise * size).to(like)) for size in (1, parameters.eps**0.5)):
                return parameters
    return None


def make_noise(shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.linspace(-1, 40, math.prod(shape), device=device, dtype=torch.float32).sin().view(shape) + 0.5


def candidates(module: nn.Module, names: list[str], joins_heads: bool) -> Iterator[NormParameters]:
    kept = [value for value in vars(module).values() if isinstance(value, float) and 0 < value < 0.1]
    for weight, bias in permutations((*names, *(None,) * (2 - len(names))), 2):
        for eps, offset in product(dict.fromkeys((*kept, *USUAL_EPS)), (0, 1) if weight else (0,)):
            yield NormParameters(weight, offset, bias, eps, joins_heads)


def agree(module: nn.Module, formula: Callable[[Tensor], Any], parameters: NormParameters, x: Tensor) -> bool:
    return close(formula(x), parameters.layer_norm(module, x))


def close(result: Any, expected: Any) -> bool:
    """Whether two results are tensors of the same kind that differ by rounding alone."""
    tensors = isinstance(result, Tensor) and isinstance(expected, Tensor)
    if not tensors or result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    # A few roundings of the result; within, many compute in float32, whatever the dtype of their weights.
    near = max(4 * torch.finfo(result.dtype).eps, 100 * torch.finfo(torch.float32).eps)
    return bool(((result - expected).abs() <= near * (expected.abs().max() + 1)).all())
