"""Recognition of ReLUs, including those written as a comparison and a selection."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tokenlight.rules.ops import OpSpec, op_spec
from tokenlight.rules.tags import origins, tensors

Function = Callable[..., Any]
Formula = Callable[[Tensor], Tensor]  # of first_element numbers


def tag_comparison(spec: OpSpec, involved: Sequence[Tensor], result: Any) -> None:
    """Tag the result of a comparison with the compared signal."""
    if not isinstance(result, Tensor) or not involved or result.shape != involved[0].shape:
        return
    compared = involved[0] if spec.compares else getattr(involved[0], "tokenlight_compared", None)
    if compared is not None and compared.requires_grad:
        result.tokenlight_compared = compared  # type: ignore[attr-defined]


def chosen_signal(involved: Sequence[Tensor], signals: Sequence[Tensor]) -> Tensor | None:
    """The signal whose elements are selected by its own values, as in where(x > 0, x, 0) and x * (x > 0); or None."""
    attached = (getattr(x, "tokenlight_compared", None) for x in involved)
    compared: Tensor | None = next((signal for signal in attached if signal is not None), None)
    if compared is None or any(origins(x) != origins(compared) for x in signals):
        return None
    if torch.broadcast_shapes(*(x.shape for x in involved)) != compared.shape:
        return None
    same = (x for x in signals if x is compared or (x.shape == compared.shape and torch.equal(x, compared)))
    return next(same, None)


def as_function_of(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], signal: Tensor) -> Formula:
    """A call as a function of one of its arguments, with all others fixed."""

    def call(x: Any) -> Any:
        def substitute(argument: Any) -> Any:
            return x if argument is signal else argument

        return function(*map(substitute, args), **{name: substitute(argument) for name, argument in kwargs.items()})

    return call


def is_lower_bound(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], signal: Tensor) -> bool:
    """Whether a bound is a ReLU of the signal, which may be any of the arguments."""
    others = [argument for argument in tensors((*args, *kwargs.values())) if argument is not signal]
    if op_spec(function).kind == "extreme" and not others:
        return False
    if not all(map(is_constant_number, others)) or torch.broadcast_shapes(signal.shape, *(x.shape for x in others)) != (
        signal.shape
    ):
        return False
    bounds = [argument if argument is signal else first_element(argument) for argument in args]
    named = {name: argument if argument is signal else first_element(argument) for name, argument in kwargs.items()}
    return is_rectifier(as_function_of(function, bounds, named, signal), signal)


def is_rectifier(formula: Formula, like: Tensor) -> bool:
    """Whether a function is 0 for inputs that are not positive, and positive for those that are."""
    numbers = test_numbers(like)
    with torch.no_grad():
        values = formula(numbers)
    return bool(torch.equal(values > 0, numbers > 0) and (values >= 0).all())


def acts_as_rectifier(x: Tensor, value: Any) -> bool:
    """Whether a result looks like that of a ReLU; x must have negative elements."""
    if not isinstance(value, Tensor) or value.shape != x.shape:
        return False
    return bool(torch.equal(value > 0, x > 0) and (value >= 0).all() and (x < 0).any())


def is_identity(formula: Formula, like: Tensor) -> bool:
    numbers = test_numbers(like)
    with torch.no_grad():
        return torch.equal(formula(numbers), numbers)


def test_numbers(like: Tensor) -> Tensor:
    """Numbers from -8 to 8, including 0."""
    return torch.arange(-32, 33, device=like.device).to(like.dtype) / 4


def is_constant_number(x: Tensor) -> bool:
    """Whether a tensor is a constant with equal elements."""
    return not x.requires_grad and x.numel() > 0 and bool((x == x.flatten()[0]).all())


def first_element(value: Any) -> Any:
    return value.flatten()[0] if isinstance(value, Tensor) else value
