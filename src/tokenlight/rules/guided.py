"""Rules of guided backpropagation: negative gradients stop at ReLUs (Springenberg et al. 2015)."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.custom_ops import activation
from tokenlight.rules.lrp_rules import plain
from tokenlight.rules.mode import Function, is_signal
from tokenlight.rules.ops import op_spec
from tokenlight.rules.rectifiers import Formula, is_identity, is_one_number, is_rectifier, rectified, single
from tokenlight.rules.rule import keeps
from tokenlight.rules.tags import mark_gate, name_of

KNOWN = ("activation", "clip", "extreme")  # kinds


@keeps(own=1)
def positive_gradient(function: Function, *args: Any, **kwargs: Any) -> Any:
    """A ReLU: gradients that arrive are passed on where they are positive, and the input was."""
    result = function(*args, **kwargs)
    if isinstance(result, Tensor) and result.grad_fn is not None:
        result.grad_fn.register_prehook(lambda grads: tuple(grad.clamp_min(0) for grad in grads))
    return result


@keeps(own=1)
def guided_activation(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A ReLU, also one that is squared or bounded above, is guided; any other activation is refused."""
    if not is_signal(x):
        return function(x, *args, **kwargs)
    formula = formula_of(function, args, kwargs)
    if formula is not None and is_rectifier(formula, x):
        return positive_gradient(function, x, *args, **kwargs)
    if formula is None and not is_known(function) and rectified(x, (result := function(x, *args, **kwargs)).detach()):
        return positive_gradient(lambda: result)
    if formula is not None and is_identity(formula, x):
        return function(x, *args, **kwargs)
    refuse_activation(name_of_activation(function, formula))


@keeps(own=1)
def guided_clipping(function: Function, x: Any, *args: Any, **kwargs: Any) -> Any:
    """A lower bound of 0 makes a ReLU; any other bound only stops the gradient of what lies beyond it."""
    formula = formula_of(function, args, kwargs)
    guided = is_signal(x) and formula is not None and is_rectifier(formula, x)
    return (positive_gradient if guided else plain)(function, x, *args, **kwargs)


@keeps(own=1)
def guided_extreme(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The largest of several elements, or of each element and a bound."""
    between_two = any(isinstance(part, Tensor) for part in (*args, *kwargs.values()))
    return (guided_clipping if between_two else plain)(function, x, *args, **kwargs)


@keeps(own=1)
def plain_gate(function: Function, *args: Any, **kwargs: Any) -> Any:
    """The gradient as it is. What comes out is marked, so that x * sigmoid(x) is noticed to be an activation."""
    result = function(*args, **kwargs)
    return mark_gate(result) if is_signal(result) else result


def refused_recurrence(function: Function, values: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A recurrence is one operation: what it does with its input inside is not seen."""
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
        "where negative gradients stop. We know of no published rule for other activations, and to leave them as they "
        f"are would give the plain gradient under another name: {INSTEAD}"
    )


def is_known(function: Function) -> bool:
    """Whether a function is applied to each number, or chooses among numbers, by a formula that can be tried out."""
    return op_spec(function).kind in KNOWN


def name_of_activation(function: Function, formula: Formula | None) -> str:
    owner = getattr(formula, "__self__", None)
    if owner is not None:
        return type(owner).__name__
    return name_of(function) if is_known(function) else "an activation that it writes out in several operations"


def formula_of(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Formula | None:
    """What is done to each number; None where that differs from number to number, or is not known."""
    if function is activation:
        return args[0] if args else kwargs["formula"]
    others = [*args, *kwargs.values()]
    if not is_known(function) or any(isinstance(part, Tensor) and not is_one_number(part) for part in others):
        return None
    bounds = [single(part) for part in args]
    named = {name: single(part) for name, part in kwargs.items()}
    return lambda numbers: function(numbers, *bounds, **named)
