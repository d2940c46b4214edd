"""Instrumented models, kept without weights for as long as the model is unchanged.

An instrumented model takes a good part of the time that a short text takes. It can be used again if a new one would
be the same: the
same modules with the same attributes and settings, the same weights in the same places. The weights themselves are
taken from the model anew each time, so that a waiting instrumented model does not keep what the model has moved or
converted. A model
with anything whose changes could not be seen, such as hooks, gets a new instrumented model each time.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import is_, methodcaller
from threading import Lock
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from tokenlight._compat.torch_internals import HOOKS, WEIGHTS, changes_of, hook_numbers, weights_in
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.private_copy import Dequantized, unwrap

Weights = dict[str, nn.Parameter | None]
VALUES = methodcaller("values")
UNCHANGING = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range, type)


class CannotCompare(Exception):
    """Something about a module could change without being seen."""


class Snapshot:
    """All that a copy of some modules repeats, to see later whether it is still the same.

    Modules and settings are compared by the identity of what they hold, which is fast; lists and the like by value. A
    short text spends a good part of its time here, so all mappings are compared at once, in loops that Python itself
    runs.
    """

    def __init__(self, model: nn.Module, without: Collection[str] = ()):
        modules = list(model.modules())
        self._kind = type(model)
        self._watched_modules = modules[1:]  # not the model, which must not be kept alive
        self._kinds = list(map(type, self._watched_modules))
        self._inside = {id(module) for module in modules}
        self._without = without
        self._groups: dict[int, Mapping[Any, Any]] = {}  # by identity
        self._empty: list[Collection[Any]] = []
        self._values: list[tuple[Any, Any]] = []  # containers, and what they hold
        for module in modules:
            self._watch(vars(module))
        groups = self._groups.values()
        self._sizes, self._names = list(map(len, groups)), list(chain.from_iterable(groups))
        self._held = list(chain.from_iterable(group.values() for group in groups))

    def is_current(self, model: nn.Module) -> bool:
        """Whether everything about the same model is still as it was."""
        groups = self._groups.values()
        return (
            type(model) is self._kind
            and list(map(type, self._watched_modules)) == self._kinds
            and not any(self._empty)
            and list(map(len, groups)) == self._sizes
            and list(chain.from_iterable(groups)) == self._names
            and all(map(is_, chain.from_iterable(map(VALUES, groups)), self._held))
            and all(describe(value) == was for value, was in self._values)
        )

    def _watch(self, group: Mapping[Any, Any]) -> None:
        """All that a mapping holds, and all below it."""
        if id(group) in self._groups:
            return
        self._groups[id(group)] = group
        for name, value in group.items():
            if name not in self._without:
                self._look_into(name, value)

    def _look_into(self, name: str, value: Any) -> None:
        if isinstance(value, (*UNCHANGING, Tensor)) or is_fixed(value):
            return  # a copy has the same, or shares it
        if isinstance(value, nn.Module):
            if id(value) not in self._inside:
                raise CannotCompare("a module that is not registered")
        elif isinstance(value, dict | list | set) and not value:
            self._empty.append(value)
        elif name in HOOKS:
            raise CannotCompare("hooks")
        elif isinstance(value, dict):
            self._watch(value)
        elif is_setting(value):
            self._watch(vars(value))
        else:
            self._values.append((value, describe(value)))


class LooseSnapshot:
    """The same for a model with something that cannot be compared: its modules, hooks and settings alone.

    Modules are referenced weakly: a hook may hold the model, which must not be kept alive.
    """

    def __init__(self, model: PreTrainedModel):
        self._watched_modules = [ref(module) for module in model.modules()]
        self._state = self._read(model)

    def is_current(self, model: PreTrainedModel) -> bool:
        modules = list(model.modules())
        return (
            len(modules) == len(self._watched_modules)
            and all(known() is module for known, module in zip(self._watched_modules, modules, strict=True))
            and self._read(model) == self._state
        )

    @staticmethod
    def _read(model: PreTrainedModel) -> Any:
        modules = list(model.modules())
        plain = [{name: x for name, x in vars(module).items() if isinstance(x, UNCHANGING)} for module in modules]
        return hook_numbers(model), list(map(type, modules)), plain, repr(model.config)


class TensorState:
    """The weights and buffers of a model, to see later whether anything has been written into them."""

    def __init__(self, model: nn.Module):
        self._tensors = [*model.parameters(), *model.buffers()]
        self._was = self._read()

    def is_current(self) -> bool:
        return self._read() == self._was

    def _read(self) -> list[tuple[int, int]]:
        return [(x.data_ptr(), 0 if x.is_inference() else changes_of(x)) for x in self._tensors]


class FactSnapshot:
    """What was found out about a model is true of it as long as this holds: the same modules, settings and numbers."""

    def __init__(self, model: PreTrainedModel):
        self._state = TensorState(model)
        try:
            self._structure: Snapshot | LooseSnapshot = Snapshot(model)
        except CannotCompare:
            self._structure = LooseSnapshot(model)

    def is_current(self, model: PreTrainedModel) -> bool:
        return self._structure.is_current(model) and self._state.is_current()


def describe(value: Any) -> Any:
    """What it holds, for comparison."""
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if isinstance(value, dict):
        return kind, [(key, describe(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return kind, [describe(one) for one in value]
    if isinstance(value, set | frozenset):
        return kind, frozenset(describe(one) for one in value)
    if isinstance(value, partial):
        return kind, describe(value.func), describe(value.args), describe(value.keywords)
    if isinstance(value, type) or is_fixed(value):
        return value
    if is_setting(value):
        return kind, describe(vars(value))
    raise CannotCompare(kind.__name__)


def is_setting(value: Any) -> bool:
    return isinstance(value, PreTrainedConfig | GenerationConfig)


def is_fixed(value: Any) -> bool:
    """A function that has nothing of its own to remember."""
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType)
    return isinstance(value, FunctionType) and value.__closure__ is None


@dataclass(frozen=True)
class Waiting:
    """An instrumented model, and how it and the model were when it was made."""

    instrumented: InstrumentedModel
    model_was: Snapshot
    instrumented_was: Snapshot

    places: list[
        tuple[Weights, Weights, Weights]
    ]  # of each module's weights in the instrumented model and the model; and of none
    weights: list[nn.Parameter]  # of the model

    @classmethod
    def made_for(cls, model: PreTrainedModel) -> "Waiting":
        instrumented = InstrumentedModel(model)
        if any(isinstance(module, Dequantized) for module in instrumented.model.modules()):
            raise CannotCompare("packed weights")
        was = Snapshot(
            model
        )  # first: it refuses models whose modules do not match those of the instrumented model, such as compiled
        own = Snapshot(instrumented.model, without=("forward", "tokenlight", WEIGHTS, *HOOKS))
        modules = zip(instrumented.model.modules(), model.modules(), strict=True)
        places = [(weights_in(a), weights_in(b)) for a, b in modules if weights_in(b)]
        nothing = [{name: weight if weight is None else NO_WEIGHT for name, weight in a.items()} for a, _ in places]
        triples = [(a, b, none) for (a, b), none in zip(places, nothing, strict=True)]
        return cls(instrumented, was, own, triples, list(model.parameters()))

    def take_weights(self) -> None:
        views: dict[int, nn.Parameter | None] = {id(None): None}  # weights that are tied stay so
        for weight in self.weights:
            views[id(weight)] = nn.Parameter(weight.detach(), requires_grad=False)
        for own, theirs, _ in self.places:
            for name, weight in theirs.items():
                own[name] = views[id(weight)]

    def drop_weights(self) -> None:
        for own, _, nothing in self.places:
            own.update(nothing)

    def fits(self, model: PreTrainedModel) -> bool:
        """Before the weights are taken."""
        if not self.model_was.is_current(model):
            return False
        return not any(map(torch.is_inference, self.weights))


NO_WEIGHT = nn.Parameter(torch.empty(0), requires_grad=False)
WAITING: WeakKeyDictionary[PreTrainedModel, Waiting] = WeakKeyDictionary()
LOCK = Lock()


@contextmanager
def borrowed_model(model: nn.Module) -> Iterator[InstrumentedModel]:
    """An instrumented model for one call; nobody else has it at the same time."""
    inner = unwrap(model)
    waiting = cached_model(inner)
    if waiting is None:
        yield InstrumentedModel(inner)
        return
    yield waiting.instrumented  # after an exception it is not used again
    waiting.instrumented.rest()
    if waiting.instrumented_was.is_current(waiting.instrumented.model):  # some modules remember what they have seen
        waiting.drop_weights()
        with LOCK:
            WAITING[inner] = waiting


def cached_model(model: PreTrainedModel) -> Waiting | None:
    """With weights; None for a model that cannot be compared with what it was."""
    with LOCK:
        waiting = WAITING.pop(model, None)
    try:
        if waiting is None or not waiting.fits(model):
            return Waiting.made_for(model)
        with torch.inference_mode(False):
            waiting.take_weights()
        return waiting
    except CannotCompare:
        return None
