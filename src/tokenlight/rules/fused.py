"""Rules for attention in one operation. Each stands for rules of the operations that it is made of.

Where these are others, as in a table of one's own that changes one of them, attention is written out.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules import replacements as rules
from tokenlight.rules.facts import keeps
from tokenlight.rules.mode import Function, Rule, RuleTable, is_signal
from tokenlight.rules.points import attend, mask_scores, mix_values, query_key
from tokenlight.rules.primitives import ShareAttention

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
        raise ValueError("queries, keys and values do not all depend on the input: no rule says who takes what")
    return function(*ShareAttention.apply(query, key, value), *settings)


@stands_for(rules.plain, rules.plain, rules.plain)
@keeps(own=1)
def plain_attention(function: Function, *args: Any) -> Any:
    """The gradient as it is."""
    return function(*args)
