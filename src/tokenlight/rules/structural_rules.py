"""Rules for joining, clipping and selecting elements, for recurrences, and for fused attention.

MambaLRP (Jafari et al. 2024) takes what says how the state decays, how it is written and how it is read (the step size
and the matrices A, B, C that depend on it or on the input) for constants. What is left is linear in the values that go
into the state, so relevance is conserved. The gate behind it is a product like that of any gated MLP: `lrp` takes it
for a constant, `attn_lrp` shares evenly, as MambaLRP does.

Where these are others, as in a table of one's own that changes one of them, attention is written out.
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
from tokenlight.rules.lrp_rules import constant, identity, plain
from tokenlight.rules.mode import Function, Rule, RuleTable, is_signal
from tokenlight.rules.ops import op_spec
from tokenlight.rules.rule import keeps
from tokenlight.rules.tags import is_gate, name_of, tensors


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


@keeps(own=1)
def adding_at(function: Function, *args: Any, **kwargs: Any) -> Any:
    """A sum into some places of a tensor as `joining`; it must not add a state to what was computed from it."""
    signals = [x for x in tensors((*args, *kwargs.values())) if is_signal(x)]
    if len(signals) > 1 and rules.joins_branches(signals):
        rules.refuse_joining(function)
    return joining(function, *args, **kwargs)


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
        raise RefusedValue(f"{name_of(function)} divides a constant by a signal, for which there is no rule")
    return function(a, b.detach() if is_signal(b) else b, *args, **kwargs)


@keeps(passes=False)
def scale(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """What norms divide by is a constant; the power of an activation's output is a part of the activation."""
    return (identity if is_gate(x) and op_spec(function).power else constant)(function, x, *args, **kwargs)


@keeps(own=1)
def through_state(function: Function, values: Tensor, others: dict[str, Any], formula: Any) -> Any:
    """The values that go into the state take all."""
    constants = {name: part.detach() if isinstance(part, Tensor) else part for name, part in others.items()}
    return function(values, constants, formula)


@keeps(own=1)
def through_gated_state(function: Function, values: Tensor, others: dict[str, Any], formula: Any) -> Any:
    """The same, where gates and the discretization are computed from the values: these are constants, too."""

    def gated(values: Tensor, others: dict[str, Any]) -> Any:
        with ConstantGates():
            return formula(values, others)

    return through_state(function, values, others, gated)


class ConstantGates(TorchFunctionMode):
    """While this is active, no gradient passes an activation."""

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if op_spec(func).kind != "activation":
            return func(*args, **(kwargs or {}))
        with torch.no_grad():
            return func(*args, **(kwargs or {}))


STANDS_FOR: dict[Rule, RuleTable] = {}


def stands_for(weights: Rule, softmax: Rule, mixing: Rule) -> Callable[[Rule], Rule]:
    """A decorator that says which rules a rule replaces at once: of query_key, of the softmax and of mix_values."""

    def note(rule: Rule) -> Rule:
        STANDS_FOR[rule] = {query_key: weights, F.softmax: softmax, mix_values: mixing, mask_scores: rules.plain}
        return rule

    return note


def can_fuse(table: RuleTable | None) -> bool:
    """Whether attention may be one operation under this table; None is the plain gradient."""
    if table is None:
        return True
    rule = table.get(attend)
    return rule is not None and all(table.get(part) is own for part, own in STANDS_FOR.get(rule, {}).items())


@stands_for(rules.constant, rules.constant, rules.plain)
@keeps(own=1)
def through_values(function: Function, query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> Any:
    """The weights are constants: values take everything."""
    return function(query.detach(), key.detach(), value, *settings)


@stands_for(rules.constant, rules.constant_gate, rules.constant)
@keeps(passes=False)
def nothing_passes(function: Function, *args: Any) -> Any:
    """All of attention is a constant."""
    return rules.constant(function, *args)


@stands_for(rules.halved, rules.gradient_softmax, rules.halved)
@keeps(own=1)
def by_gradient(function: Function, query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> Any:
    """Values take half, queries and keys share the rest, as far as the softmax's gradient lets it through."""
    signals = [is_signal(part) for part in (query, key, value)]
    if not any(signals[:2]):  # the weights are constants
        return function(query, key, value, *settings)
    if not all(signals):
        raise RefusedValue("queries, keys and values do not all depend on the input: no rule says who takes what")
    return function(*ShareAttention.apply(query, key, value), *settings)


@stands_for(rules.plain, rules.plain, rules.plain)
@keeps(own=1)
def plain_attention(function: Function, *args: Any) -> Any:
    """The gradient as it is."""
    return function(*args)
