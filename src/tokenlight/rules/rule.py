"""What a rule keeps for the backward pass, declared beside the rule, to estimate memory."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

AnyRule = TypeVar("AnyRule", bound=Callable[..., Any])


@dataclass(frozen=True)
class Keeps:
    """In tensors of the operation that the rule stands for."""

    own: float = 0  # share of what the operation's own gradient keeps
    inputs: float = 0  # further tensors as large as what goes in
    results: float = 0  # ... and as large as what comes out
    single: bool = False  # inputs and results in single precision at least, beside a copy of the weights in it
    passes: bool = True  # relevance passes: what comes out is a signal


PLAIN = Keeps(own=1)  # a function without a rule


def keeps(**facts: Any) -> Callable[[AnyRule], AnyRule]:
    """A decorator that notes what a rule keeps: `@keeps(results=1)`. functools.wraps hands the note on."""

    def note(rule: AnyRule) -> AnyRule:
        rule.keeps = Keeps(**facts)  # type: ignore[attr-defined]
        return rule

    return note


def kept_by(rule: Callable[..., Any]) -> Keeps | None:
    """What a rule says that it keeps; None where it does not say."""
    while isinstance(rule, partial):
        rule = rule.func
    return getattr(rule, "keeps", None)
