"""Rules of guided backpropagation: negative gradients stop at ReLUs (Springenberg et al. 2015)."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.custom_ops import activation
from tokenlight.rules.keeps import keeps
from tokenlight.rules.lrp_rules import plain
from tokenlight.rules.mode import Function, is_signal
from tokenlight.rules.ops import op_spec
from tokenlight.rules.rectifiers import (
    Formula,
    acts_as_rectifier,
    first_element,
    is_constant_number,
    is_identity,
    is_rectifier,
)
from tokenlight.rules.tags import name_of, tag_gate

KNOWN = ("activation", "clip", "extreme")  # kinds


@keeps(own=1)
def positive_gradient(function: Function, *args: Any, **kwargs: Any) -> Any:
    """A ReLU: gradients pass where both they and the input are positive."""
    result = function(*args, **kwargs)
    if isinstance(result, Tensor) and result.grad_fn is not None:
        result.grad_fn.register_prehook(lambda grads: tuple(grad.clamp_min(0) for grad in grads))
    return result


@keeps(own=1)
def guided_activation(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Guide a ReLU, also a squared or bounded one; refuse any other activation."""
    if not is_signal(x):
        return function(x, *args, **kwargs)
    formula = formula_of(function, args, kwargs)
    if formula is not None and is_rectifier(formula, x):
        return positive_gradient(function, x, *args, **kwargs)
    if (
        formula is None
        and not is_known(function)
        and acts_as_rectifier(x, (result := function(x, *args, **kwargs)).detach())
    ):
        return positive_gradient(lambda: result)
    if formula is not None and is_identity(formula, x):
        return function(x, *args, **kwargs)
    refuse_activation(name_of_activation(function, formula))


@keeps(own=1)
def guided_clipping(function: Function, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Guide a lower bound of 0, which is a ReLU; other bounds have their plain gradient."""
    formula = formula_of(function, args, kwargs)
    guided = is_signal(x) and formula is not None and is_rectifier(formula, x)
    return (positive_gradient if guided else plain)(function, x, *args, **kwargs)


@keeps(own=1)
def guided_extreme(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The largest of several elements has the plain gradient; for an element and a bound, see `guided_clipping`."""
    between_two = any(isinstance(argument, Tensor) for argument in (*args, *kwargs.values()))
    return (guided_clipping if between_two else plain)(function, x, *args, **kwargs)


@keeps(own=1)
def plain_gate(function: Function, *args: Any, **kwargs: Any) -> Any:
    """The plain gradient. The result is tagged as a gate, so that x * sigmoid(x) is recognized as an activation."""
    result = function(*args, **kwargs)
    return tag_gate(result) if is_signal(result) else result


def refuse_recurrence(function: Function, values: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Refuse a recurrence: it is one operation, so ReLUs inside are not seen."""
    if not is_signal(values):
        return function(values, *args, **kwargs)
    raise UnsupportedModelError(
        "the model has a recurrence over its tokens, in which no ReLU could be seen. Guided backpropagation is defined "
        f"for networks whose activations are ReLUs; {INSTEAD}"
    )


INSTEAD = (
    "use the plain gradient (gradient_l2, gradient_x_input), integrated_gradients or attn_lrp instead, which are "
    "defined for every activation"
)


def refuse_activation(name: str) -> None:
    raise UnsupportedModelError(
        f"the model applies {name}, which is not a ReLU. Guided backpropagation is defined by what it does at ReLUs, "
        "where negative gradients stop. We know of no published rule for other activations; without one, the result "
        f"would be the plain gradient: {INSTEAD}"
    )


def is_known(function: Function) -> bool:
    """Whether a function works on each number, or chooses among numbers, so that it can be tested on numbers."""
    return op_spec(function).kind in KNOWN


def name_of_activation(function: Function, formula: Formula | None) -> str:
    owner = getattr(formula, "__self__", None)
    if owner is not None:
        return type(owner).__name__
    return name_of(function) if is_known(function) else "an activation that it writes out in several operations"


def formula_of(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Formula | None:
    """The function of single numbers that is applied to every element; None if it differs or is unknown."""
    if function is activation:
        return args[0] if args else kwargs["formula"]
    others = [*args, *kwargs.values()]
    if not is_known(function) or any(
        isinstance(argument, Tensor) and not is_constant_number(argument) for argument in others
    ):
        return None
    positional = [first_element(argument) for argument in args]
    keywords = {name: first_element(argument) for name, argument in kwargs.items()}
    return lambda numbers: function(numbers, *positional, **keywords)
