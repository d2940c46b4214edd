"""Rules for joining, clipping and selecting elements, for recurrences, and for fused attention.

MambaLRP (Jafari et al. 2024) treats everything that defines how the state decays, is written and is read (the step size
and the matrices A, B, C that depend on it or on the input) as constants. The recurrence is then linear in the values
that go into the state, so relevance is conserved. The gate after it is a product as in any gated MLP: `lrp` treats it
as a constant, `attn_lrp` shares evenly, as MambaLRP does.

A rule for fused attention replaces rules for its steps (`stands_for`). If a table has other rules for these steps,
attention runs step by step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tokenlight.common.errors import RefusedValue
from tokenlight.rules import lrp_rules as rules
from tokenlight.rules.autograd_functions import ShareAttention, absorb, like
from tokenlight.rules.custom_ops import attend, mask_scores, mix_values, query_key
from tokenlight.rules.keeps import keeps
from tokenlight.rules.lrp_rules import constant, identity, plain
from tokenlight.rules.mode import Function, Rule, RuleTable, is_signal
from tokenlight.rules.ops import op_spec
from tokenlight.rules.tags import is_gate, name_of, tensors


@keeps(own=1)
def absorbing_sinks(function: Function, scores: Tensor, sinks: Tensor) -> Any:
    """The plain gradient; the share of the sinks goes into the ledger."""
    result = function(scores, sinks)
    constant_share = function(torch.zeros_like(scores), sinks.detach())
    return absorb(result, constant_share, "sink") if is_signal(result) else result


@keeps(own=1)
def joining(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Signals and constants side by side: the plain gradient; the share of constants goes into the ledger."""
    result = function(*args, **kwargs)
    if not is_signal(result) or (isinstance(args[0], (tuple, list)) and all(is_signal(x) for x in args[0])):
        return result
    with torch.no_grad():  # the result if all signals were 0
        constant = function(*without_signals(args), **dict(zip(kwargs, without_signals(kwargs.values()), strict=True)))
    constant = constant.nan_to_num(0.0, 0.0, 0.0)  # infinite: a mask, which has no gradient
    return absorb(result, constant, "bias") if constant.any() else result


@keeps(own=1)
def adding_at(function: Function, *args: Any, **kwargs: Any) -> Any:
    """`joining` for sums into elements of a tensor; adding a state to a tensor computed from it is refused."""
    signals = [x for x in tensors((*args, *kwargs.values())) if is_signal(x)]
    if len(signals) > 1 and rules.joins_branches(signals):
        rules.refuse_joining(function)
    return joining(function, *args, **kwargs)


def without_signals(arguments: Iterable[Any]) -> list[Any]:
    """The arguments, with signals replaced by 0."""
    return [
        type(argument)(without_signals(argument))
        if isinstance(argument, (tuple, list))
        else torch.zeros_like(argument)
        if is_signal(argument)
        else argument
        for argument in arguments
    ]


@keeps(results=1)
def clipped(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Relevance passes unchanged, as at an activation; of two signals, the selected one receives all."""
    if not is_signal(x) or any(is_signal(arg) for arg in (*args, *kwargs.values())):
        return function(x, *args, **kwargs)
    return like(x, constant(function, x, *args, **kwargs))


@keeps(own=1)
def extreme(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The largest or smallest of several elements receives all; compared with a constant, as `clipped`."""
    between_two = any(isinstance(arg, Tensor) for arg in (*args, *kwargs.values()))
    return (clipped if between_two else plain)(function, x, *args, **kwargs)


@keeps(own=1)
def divided(function: Function, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """A quotient whose denominator is a constant, as all scales are."""
    if is_signal(b) and not is_signal(a):
        raise RefusedValue(
            f"{name_of(function)} divides a constant by a signal, for which there is no rule; add one to the table"
        )
    return function(a, b.detach() if is_signal(b) else b, *args, **kwargs)


@keeps(passes=False)
def scale(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The scale of a norm is a constant; a power of an activation's output belongs to the activation."""
    return (identity if is_gate(x) and op_spec(function).power else constant)(function, x, *args, **kwargs)


@keeps(own=1)
def through_state(function: Function, values: Tensor, others: dict[str, Any], formula: Any) -> Any:
    """A recurrence whose values receive all relevance; its other arguments are constants."""
    constants = {
        name: argument.detach() if isinstance(argument, Tensor) else argument for name, argument in others.items()
    }
    return function(values, constants, formula)


@keeps(own=1)
def through_gated_state(function: Function, values: Tensor, others: dict[str, Any], formula: Any) -> Any:
    """`through_state` for recurrences that compute gates and discretization from the values; these are constants."""

    def gated(values: Tensor, others: dict[str, Any]) -> Any:
        with ConstantGates():
            return formula(values, others)

    return through_state(function, values, others, gated)


class ConstantGates(TorchFunctionMode):
    """While active, no gradient passes through activations."""

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if op_spec(func).kind != "activation":
            return func(*args, **(kwargs or {}))
        with torch.no_grad():
            return func(*args, **(kwargs or {}))


STANDS_FOR: dict[Rule, RuleTable] = {}


def stands_for(weights: Rule, softmax: Rule, mixing: Rule) -> Callable[[Rule], Rule]:
    """A decorator for a rule of `attend`: the rules of query_key, softmax and mix_values that it is equivalent to."""

    def register(rule: Rule) -> Rule:
        STANDS_FOR[rule] = {query_key: weights, F.softmax: softmax, mix_values: mixing, mask_scores: rules.plain}
        return rule

    return register


def can_fuse(table: RuleTable | None) -> bool:
    """Whether attention may run as one operation under this table; None is the plain gradient."""
    if table is None:
        return True
    rule = table.get(attend)
    return rule is not None and all(
        table.get(function) is replaced_rule for function, replaced_rule in STANDS_FOR.get(rule, {}).items()
    )


@stands_for(rules.constant, rules.constant, rules.plain)
@keeps(own=1)
def through_values(function: Function, query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> Any:
    """The weights are constants; the values receive all relevance."""
    return function(query.detach(), key.detach(), value, *settings)


@stands_for(rules.constant, rules.constant_gate, rules.constant)
@keeps(passes=False)
def constant_attention(function: Function, *args: Any) -> Any:
    """The result of attention is a constant."""
    return rules.constant(function, *args)


@stands_for(rules.halved, rules.gradient_softmax, rules.halved)
@keeps(own=1)
def by_gradient(function: Function, query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> Any:
    """Values receive half; queries and keys share what the softmax's gradient passes of the rest."""
    signals = [is_signal(x) for x in (query, key, value)]
    if not any(signals[:2]):  # the weights are constants
        return function(query, key, value, *settings)
    if not all(signals):
        raise RefusedValue(
            "queries, keys and values do not all depend on the input, for which fused attention has no rule: use "
            "fused=False"
        )
    return function(*ShareAttention.apply(query, key, value), *settings)


@stands_for(rules.plain, rules.plain, rules.plain)
@keeps(own=1)
def plain_attention(function: Function, *args: Any) -> Any:
    """The plain gradient."""
    return function(*args)
