"""Recognizes ReLUs, and activations that are written out as a choice by sign."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tokenlight.rules.ops import OpSpec, op_spec
from tokenlight.rules.tags import origins, tensors

Function = Callable[..., Any]
Formula = Callable[[Tensor], Tensor]  # of single numbers


def note_comparison(spec: OpSpec, involved: Sequence[Tensor], result: Any) -> None:
    """Write on what comes out of a comparison which signal was compared; the caller asks about no other functions."""
    if not isinstance(result, Tensor) or not involved or result.shape != involved[0].shape:
        return
    compared = involved[0] if spec.compares else getattr(involved[0], "tokenlight_compared", None)
    if compared is not None and compared.requires_grad:
        result.tokenlight_compared = compared  # type: ignore[attr-defined]


def chosen_signal(involved: Sequence[Tensor], signals: Sequence[Tensor]) -> Tensor | None:
    """The signal by whose own values its elements are chosen, as in where(x > 0, x, 0) and x * (x > 0); or None."""
    attached = (getattr(x, "tokenlight_compared", None) for x in involved)
    compared: Tensor | None = next((signal for signal in attached if signal is not None), None)
    if compared is None or any(origins(x) != origins(compared) for x in signals):
        return None
    if torch.broadcast_shapes(*(x.shape for x in involved)) != compared.shape:
        return None
    same = (x for x in signals if x is compared or (x.shape == compared.shape and torch.equal(x, compared)))
    return next(same, None)


def with_signal(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], signal: Tensor) -> Formula:
    """The same call as a function of one of its arguments alone."""

    def call(x: Any) -> Any:
        def put(part: Any) -> Any:
            return x if part is signal else part

        return function(*map(put, args), **{name: put(part) for name, part in kwargs.items()})

    return call


def is_lower_bound(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], signal: Tensor) -> bool:
    """Whether a bound on one signal makes it a ReLU, whichever of the arguments the signal is."""
    others = [part for part in tensors((*args, *kwargs.values())) if part is not signal]
    if op_spec(function).kind == "extreme" and not others:
        return False
    if not all(map(is_one_number, others)) or torch.broadcast_shapes(signal.shape, *(x.shape for x in others)) != (
        signal.shape
    ):
        return False
    bounds = [part if part is signal else single(part) for part in args]
    named = {name: part if part is signal else single(part) for name, part in kwargs.items()}
    return is_rectifier(with_signal(function, bounds, named, signal), signal)


def is_rectifier(formula: Formula, like: Tensor) -> bool:
    """Whether a function of single numbers is 0 where its input is not positive, and positive where it is."""
    numbers = steps_like(like)
    with torch.no_grad():
        values = formula(numbers)
    return bool(torch.equal(values > 0, numbers > 0) and (values >= 0).all())


def rectified(x: Tensor, value: Any) -> bool:
    """The same by what became of a tensor in which some numbers are negative."""
    if not isinstance(value, Tensor) or value.shape != x.shape:
        return False
    return bool(torch.equal(value > 0, x > 0) and (value >= 0).all() and (x < 0).any())


def is_identity(formula: Formula, like: Tensor) -> bool:
    numbers = steps_like(like)
    with torch.no_grad():
        return torch.equal(formula(numbers), numbers)


def steps_like(like: Tensor) -> Tensor:
    """Numbers from -8 to 8, with 0 among them."""
    return torch.arange(-32, 33, device=like.device).to(like.dtype) / 4


def is_one_number(part: Tensor) -> bool:
    """Whether all elements are the same number, and a constant."""
    return not part.requires_grad and part.numel() > 0 and bool((part == part.flatten()[0]).all())


def single(part: Any) -> Any:
    return part.flatten()[0] if isinstance(part, Tensor) else part
