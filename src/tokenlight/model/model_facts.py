"""Facts about models that are computed once: about users' models, shared by threads, and about instrumented models."""

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from transformers import PreTrainedModel

Fact = TypeVar("Fact")


class FactsByModel(Generic[Fact]):
    """One fact about each of users' models, for as long as the model exists. All threads share it, behind a lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._facts: WeakKeyDictionary[PreTrainedModel, Fact] = WeakKeyDictionary()

    def get(self, model: PreTrainedModel) -> Fact | None:
        with self._lock:
            return self._facts.get(model)

    def set(self, model: PreTrainedModel, fact: Fact) -> Fact:
        with self._lock:
            self._facts[model] = fact
        return fact

    def drop(self, model: PreTrainedModel) -> None:
        with self._lock:
            self._facts.pop(model, None)


class HasFacts(Protocol):
    facts: dict[str, Any]  # by the names of the functions that computed them


Instrumented = TypeVar("Instrumented", bound=HasFacts)


def once_per_model(function: Callable[[Instrumented], Fact]) -> Callable[[Instrumented], Fact]:
    """A function that runs once per instrumented model, which keeps the result and is used by one thread at a time."""
    name = f"{function.__module__}.{function.__name__}"

    @wraps(function)
    def compute_once(instrumented: Instrumented) -> Fact:
        if name not in instrumented.facts:
            instrumented.facts[name] = function(instrumented)
        return instrumented.facts[name]

    return compute_once
