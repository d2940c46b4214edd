"""Declarations of what a rule keeps in memory for the backward pass, from which memory is estimated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

AnyRule = TypeVar("AnyRule", bound=Callable[..., Any])


@dataclass(frozen=True)
class Keeps:
    """What a rule keeps, in multiples of its operation's tensors."""

    own: float = 0  # fraction of what the operation's ordinary gradient keeps
    inputs: float = 0  # further tensors of the size of the input
    results: float = 0  # ... and of the size of the result
    single: bool = False  # inputs and results have at least single precision, and the weights are copied in it
    passes: bool = True  # relevance passes: the result is a signal


PLAIN = Keeps(own=1)  # a function without a rule


def keeps(**facts: Any) -> Callable[[AnyRule], AnyRule]:
    """A decorator that declares what a rule keeps: `@keeps(results=1)`. functools.wraps copies the declaration."""

    def declare(rule: AnyRule) -> AnyRule:
        rule.keeps = Keeps(**facts)  # type: ignore[attr-defined]
        return rule

    return declare


def kept_by(rule: Callable[..., Any]) -> Keeps | None:
    """What a rule declares that it keeps; None if it declares nothing."""
    while isinstance(rule, partial):
        rule = rule.func
    return getattr(rule, "keeps", None)
