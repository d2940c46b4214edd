"""Rules for operations that put elements side by side, bound them, choose among them or scale them."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tokenlight.rules.facts import keeps
from tokenlight.rules.marks import is_gate, name_of
from tokenlight.rules.mode import Function, is_signal
from tokenlight.rules.primitives import absorb, like
from tokenlight.rules.replacements import constant, identity, plain

POWERS: set[Function] = {Tensor.pow, torch.pow, Tensor.__pow__, Tensor.square, torch.square}


@keeps(own=1)
def absorbing_sinks(function: Function, scores: Tensor, sinks: Tensor) -> Any:
    """Scores keep what is theirs; what the sinks take is noted."""
    result = function(scores, sinks)
    taken = function(torch.zeros_like(scores), sinks.detach())
    return absorb(result, taken, "sink") if is_signal(result) else result


@keeps(own=1)
def joining(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Signals and constants side by side: signals keep what is theirs, constants take their share, which is noted."""
    result = function(*args, **kwargs)
    if not is_signal(result) or (isinstance(args[0], (tuple, list)) and all(is_signal(x) for x in args[0])):
        return result
    with torch.no_grad():  # what comes out where all signals are 0
        constant = function(*without_signals(args), **dict(zip(kwargs, without_signals(kwargs.values()), strict=True)))
    constant = constant.nan_to_num(0.0, 0.0, 0.0)  # infinite: a mask, which has no gradient
    return absorb(result, constant, "bias") if constant.any() else result


def without_signals(parts: Iterable[Any]) -> list[Any]:
    """0 in place of signals."""
    return [
        type(part)(without_signals(part))
        if isinstance(part, (tuple, list))
        else torch.zeros_like(part)
        if is_signal(part)
        else part
        for part in parts
    ]


@keeps(results=1)
def clipped(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Relevance passes unchanged, as through an activation; of two signals, the one that was chosen takes all."""
    if not is_signal(x) or any(is_signal(arg) for arg in (*args, *kwargs.values())):
        return function(x, *args, **kwargs)
    return like(x, constant(function, x, *args, **kwargs))


@keeps(own=1)
def extreme(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The largest or smallest of several elements takes all; beside a constant, as clipped."""
    between_two = any(isinstance(arg, Tensor) for arg in (*args, *kwargs.values()))
    return (clipped if between_two else plain)(function, x, *args, **kwargs)


@keeps(own=1)
def divided(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """What a signal is divided by is a scale, and scales are constants."""
    if is_signal(b) and not is_signal(a):
        raise ValueError(f"{name_of(function)} divides a constant by a signal, for which there is no rule")
    return function(a, b.detach() if is_signal(b) else b, *args, **kwargs)


@keeps(passes=False)
def scale(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """What norms divide by is a constant; the power of an activation's output is a part of the activation."""
    return (identity if is_gate(x) and function in POWERS else constant)(function, x, *args, **kwargs)
