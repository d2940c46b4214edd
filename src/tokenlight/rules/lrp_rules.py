"""Rules for single operations: softmax, products, norms, activations, and linear layers under z+.

With these rules, value times gradient is the relevance. A rule is called as rule(function, *args, **kwargs); `@keeps`
declares what it keeps for the backward pass.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NoReturn

import torch
from torch import Tensor

from tokenlight._compat.torch_internals import (
    is_one_computed_from_another,
    joined_axis,
    linear_sources,
    without_torch_functions,
)
from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.rules.autograd_functions import (
    ConservingSum,
    GradientSoftmax,
    LinearNorm,
    PositiveLinear,
    absorb,
    like,
    scale_gradient,
)
from tokenlight.rules.keeps import keeps
from tokenlight.rules.ledger import LEDGER, ledger_writer
from tokenlight.rules.mode import Function, is_signal
from tokenlight.rules.tags import is_gate, is_of_heads, name_of, running_module, tag_gate, tensors


@keeps(own=1)
def plain(function: Function, *args: Any, **kwargs: Any) -> Any:
    """The plain gradient."""
    return function(*args, **kwargs)


@keeps(passes=False)
def constant(function: Function, *args: Any, **kwargs: Any) -> Any:
    """No relevance passes."""
    with torch.no_grad():
        return function(*args, **kwargs)


@keeps(results=1)  # the ratio
def identity(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Relevance passes unchanged, element by element. The result is tagged as a possible gate."""
    with torch.no_grad():
        value = function(x, *args, **kwargs)
    if not is_signal(x):
        return value
    return tag_gate(like(x, value))


@keeps(own=1)
def halved(function: Function, *args: Any, **kwargs: Any) -> Any:
    """A product of two signals: each receives half of the relevance (the uniform rule); of three, a third."""
    result = function(*args, **kwargs)
    n_signals = count_signals(args, kwargs)
    return scale_gradient(result, 1 / n_signals) if n_signals > 1 else result


@keeps(own=1)
def through_values(function: Function, *args: Any, **kwargs: Any) -> Any:
    """A matrix product of two signals is weights times values; the values receive all relevance.

    The weights are the factor that is a gate, or else the left one, so that Q(KᵀV) is treated as (QKᵀ)V: queries and
    keys of linear attention are constants, as they are in attention with a softmax.
    """
    signals = [x for x in tensors((*args, *kwargs.values())) if is_signal(x)]
    if len(signals) < 2:
        return function(*args, **kwargs)
    not_gates = [position for position, x in enumerate(signals) if not is_gate(x)]
    values = not_gates[0] if len(not_gates) == 1 or function is Tensor.__rmatmul__ else len(signals) - 1
    positions = count()

    def with_values_only(argument: Any) -> Any:
        if isinstance(argument, (tuple, list)):
            return type(argument)(map(with_values_only, argument))
        return argument.detach() if is_signal(argument) and next(positions) != values else argument

    args = tuple(map(with_values_only, args))
    return function(*args, **{name: with_values_only(argument) for name, argument in kwargs.items()})


def count_signals(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    return sum(is_signal(x) for x in tensors((*args, *kwargs.values())))


@keeps(own=0.5)  # the gate alone
def through_signal(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """A product of a gate (an activation's output) and a signal, which receives all; without a gate, as `halved`."""
    if is_signal(a) and is_signal(b):
        gates = [is_gate(x) for x in (a, b)]
        if sum(gates) != 1:
            return halved(function, a, b, *args, **kwargs)
        a, b = (x.detach() if gate else x for x, gate in zip((a, b), gates, strict=True))
    return function(a, b, *args, **kwargs)


@keeps(passes=False)
def cut(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """An activation that cuts off the MLP branch: a constant inside a block, `identity` in the model's head."""
    ledger = LEDGER.get()
    if ledger is None or not ledger.inside_block:
        return identity(function, x, *args, **kwargs)
    return constant_gate(function, x, *args, **kwargs)


@keeps(passes=False)
def cut_gated(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """The product of a gated MLP is a constant, as its gate is; a gate on head outputs is a constant factor."""
    ledger = LEDGER.get()
    inside = ledger is not None and ledger.inside_block
    gated = inside and (is_gate(a) or is_gate(b)) and not (is_of_heads(a) or is_of_heads(b))
    return (constant if gated else plain)(function, a, b, *args, **kwargs)


@keeps(passes=False)
def cut_mixed(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Attention weights times values are a constant, also in linear attention.

    A gate that is a signal, such as an activation's output in the model's head, is not an attention weight.
    """
    ledger = LEDGER.get()
    inside = ledger is not None and ledger.inside_block
    if inside and count_signals(args, kwargs) > 1:
        return constant_gate(function, *args, **kwargs)
    gated = any(is_gate(x) and not is_signal(x) for x in tensors((*args, *kwargs.values())))
    return (constant if gated else through_values)(function, *args, **kwargs)


@keeps(passes=False)
def constant_gate(function: Function, *args: Any, **kwargs: Any) -> Any:
    """No relevance passes; the result is tagged as a gate."""
    return tag_gate(constant(function, *args, **kwargs))


@keeps(own=1)
def absorbing_sum(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """A sum with its plain gradient; the share of a constant summand goes into the ledger."""
    refuse_scaled_sum(args, kwargs)
    result = function(a, b, *args, **kwargs)
    other = b if is_signal(a) else a
    if not is_signal(result) or is_signal(other):
        return result
    account = "branch" if is_branch(a, b) else "bias"
    if isinstance(other, Tensor) and other.ndim > 0 and other.shape != result.shape[-1:]:
        other = other.expand_as(result)
    return absorb(result, other, account)


def is_branch(a: Any, b: Any) -> bool:
    """Whether a signal and a constant of the same shape are added inside a block: the constant is a branch cut off."""
    ledger = LEDGER.get()
    inside = ledger is not None and ledger.inside_block
    tensors = isinstance(a, Tensor) and isinstance(b, Tensor)
    # Four axes: scores [batch, head, query, key] and a mask or the bias of a distance, which is not a branch.
    if not (inside and tensors and a.shape == b.shape and a.ndim < 4 and is_signal(a) != is_signal(b)):
        return False
    constant = b if is_signal(a) else a
    return any(constant.stride()[:-1])  # one vector expanded to all tokens is a bias


def refuse_scaled_sum(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if args or kwargs:
        raise RefusedValue("found a sum with alpha=, which has no rule: multiply the summand first")


@keeps(own=1)
def absorbing_linear(function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """LRP-0 at a linear layer: the plain gradient; the bias absorbs its share. Arguments are named as in torch."""
    result = function(input, weight, bias)
    return result if bias is None or not is_signal(result) else absorb(result, bias, "bias")


@keeps(own=1)
def absorbing_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """`absorbing_linear` for GPT-2's Conv1D."""
    result = function(bias, x, weight)
    return absorb(result, bias, "bias") if is_signal(result) else result


@keeps()  # a scale for each token
def linear_norm(
    function: Function,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """LayerNorm with a constant scale; its bias absorbs its share."""
    if not is_signal(x):
        return function(x, shape, weight, bias, eps)
    return LinearNorm.apply(x, shape, weight, bias, eps)


@keeps(results=1)  # the scores; the operation that reads the weights keeps them
def gradient_softmax(function: Function, x: Tensor, dim: int = -1, *settings: Any, dtype: Any = None, **_: Any) -> Any:
    """Softmax by its gradient (Achtibat et al. 2024, eq. 13)."""
    dtype = next((s for s in settings if isinstance(s, torch.dtype)), dtype)  # F.softmax has an argument before it
    return GradientSoftmax.apply(x, dim, dtype) if is_signal(x) else function(x, dim=dim, dtype=dtype)


@keeps(own=1, inputs=1)
def by_gradient(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """An operation of a softmax that is written out: the plain gradient; its deficit goes into the ledger."""
    result = function(x, *args, **kwargs)
    writer = ledger_writer()
    if writer is None or not is_signal(x) or result.grad_fn is None:
        return result
    before, after = x.detach(), result.detach()

    def enter_deficit(input_grads: tuple[Tensor, ...], output_grads: tuple[Tensor, ...]) -> None:
        minus_kept = torch.where(input_grads[0] == 0, 0.0, -before * input_grads[0])  # a masked score is infinite
        writer.enter("softmax", after * output_grads[0])
        writer.enter("softmax", minus_kept)

    result.grad_fn.register_hook(enter_deficit)
    return result


@keeps(results=2)  # both sides
def conserving_sum(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """Chefer's residual rule for two signals; inside a block, the signal of a sum with a constant receives all.

    So biases absorb nothing, whether of a linear layer or added separately, and neither do position biases added to
    attention scores. A sum of slices of the same signal, each times a constant (rotary positions), is not a residual
    sum: it is linear in that signal and has the plain gradient.
    """
    refuse_scaled_sum(args, kwargs)
    if is_signal(a) and is_signal(b):
        if linear_sources(a) == linear_sources(b):
            return function(a, b)
        refuse_centering(a, b)
        return ConservingSum.apply(*((a, b) if a.shape == b.shape else torch.broadcast_tensors(a, b)))
    ledger = LEDGER.get()
    if ledger is None or not ledger.inside_block or not (is_signal(a) or is_signal(b)):
        return absorbing_sum(function, a, b)
    value = constant(function, a, b)
    return like((a if is_signal(a) else b).expand_as(value), value)


def refuse_centering(a: Tensor, b: Tensor) -> None:
    """Refuse x - mean(x), a layer norm that is written out: relevance would have to pass it unchanged."""
    wide, narrow = (a, b) if a.shape[-1] > b.shape[-1] else (b, a)
    if narrow.shape[-1] != 1 or wide.shape[-1] == 1:
        return
    if linear_sources(wide, averaged=True) == linear_sources(narrow, averaged=True):
        raise UnsupportedModelError(
            f"{running_module()} subtracts the mean of a state from it, as a layer norm does that is written out, "
            "which the z+ rules cannot follow: call torch.nn.functional.layer_norm, or make the norm a module"
        )


def joins_branches(signals: Iterable[Tensor]) -> bool:
    """Whether signals come from several tensors, of which one was computed from another."""
    sources = set().union(*map(linear_sources, signals))
    return len(sources) > 1 and is_one_computed_from_another(sources)


TOTALS = (Tensor.sum, torch.sum, Tensor.mean, torch.mean)


@keeps(own=1)
def conserving_total(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A sum of elements with its plain gradient; stacked branches are added by `conserving_sum`."""
    if not is_signal(x) or not joins_branches([x]):
        return function(x, *args, **kwargs)
    arguments = {**dict(zip(("dim", "keepdim"), args, strict=False)), **kwargs}
    dim, stacked = arguments.get("dim"), joined_axis(x)
    dim = dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim
    if function not in TOTALS or stacked is None or not isinstance(dim, int) or {*arguments} - {"dim", "keepdim"}:
        refuse_joining(function)
    if dim % x.ndim != stacked:
        return function(x, *args, **kwargs)
    ledger = LEDGER.get()
    if ledger is not None and ledger.example_ids is not None and ledger.example_ids.shape == x.shape:
        ledger.example_ids = ledger.example_ids.select(stacked, 0)
    total, *rest = x.unbind(stacked)
    for summand in rest:
        total = ConservingSum.apply(total, summand)
    total = total / x.shape[stacked] if function in (Tensor.mean, torch.mean) else total
    return total.unsqueeze(stacked) if arguments.get("keepdim") else total


@keeps(own=1)
def halved_product(function: Function, *args: Any, **kwargs: Any) -> Any:
    """`halved` for matrix products; a product with a constant that adds branches is refused."""
    signals = [x for x in tensors((*args, *kwargs.values())) if is_signal(x)]
    if len(signals) == 1 and joins_branches(signals):
        refuse_joining(function)
    return halved(function, *args, **kwargs)


def refuse_joining(function: Function) -> NoReturn:
    raise UnsupportedModelError(
        f"{running_module()} adds a state to what was computed from it by {name_of(function)}, where the z+ rules "
        "cannot tell the two apart: write it as a sum, x + y"
    )


@keeps(results=1)
def identity_norm(
    function: Function,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Relevance passes LayerNorm unchanged; the weights may be in a lower precision than the values."""
    scale, shift = (None if parameter is None else parameter.to(x.dtype) for parameter in (weight, bias))
    return identity(function, x, shape, scale, shift, eps)


def positive_linear(x: Tensor, weight: Tensor, bias: Tensor | None, with_bias: bool) -> Any:
    """PositiveLinear for signals, otherwise an ordinary linear layer; weight [in, out]."""
    with without_torch_functions():  # no rules for casts between the precisions of values and weights
        if is_signal(x):
            return PositiveLinear.apply(x, weight, bias, with_bias)
        product = x @ weight.to(x.dtype)
        return product if bias is None else product + bias


@keeps(inputs=1, results=1, single=True)  # signs and ratios
def zplus_linear(function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """z+ rule without bias: only positive contributions count (Chefer et al. 2021b)."""
    return positive_linear(input, weight.T, bias, False)


@keeps(inputs=1, results=1, single=True)
def zplus_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """`zplus_linear` for GPT-2's Conv1D."""
    return positive_linear(x, weight, bias, False)


@keeps(inputs=1, results=1, single=True)
def alpha_beta_linear(function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """LRP-α1β0: as z+, with the bias' positive part in the denominator (Arras et al. 2025, appendix D.2)."""
    return positive_linear(input, weight.T, bias, True)


@keeps(inputs=1, results=1, single=True)
def alpha_beta_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """`alpha_beta_linear` for GPT-2's Conv1D."""
    return positive_linear(x, weight, bias, True)
