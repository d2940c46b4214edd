"""Instrumentation cache: instrumented models, kept without weights and reused while the model is unchanged.

Making an instrumented model takes a large part of the time that a short text takes. A cached one is reused if a new one
would be the same: the same modules with the same attributes and settings, and the same weights in them. Its weights are
set again from the model for every use, so that the cache keeps no weights in memory that the model has moved or
converted. A model whose changes cannot all be detected, for example because it has hooks, is not cached.
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
from tokenlight.model.precision import without_caller_modes
from tokenlight.model.private_copy import Dequantized, unwrap

Weights = dict[str, nn.Parameter | None]
VALUES = methodcaller("values")
UNCHANGING = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range, type)


class CannotCompare(Exception):
    """A module has state whose changes cannot be detected."""


class Snapshot:
    """The attributes of a model's modules and settings, for a later test of whether any has changed.

    Values of modules and settings are compared by identity, which is fast; lists and other containers by value. The
    comparison is a large part of the time for a short text, so it runs over all mappings at once, in builtin functions.
    """

    def __init__(self, model: nn.Module, without: Collection[str] = ()):
        modules = list(model.modules())
        self._kind = type(model)
        self._watched_modules = modules[1:]  # without the model, which must not be kept alive
        self._kinds = list(map(type, self._watched_modules))
        self._inside = {id(module) for module in modules}
        self._without = without
        self._groups: dict[int, Mapping[Any, Any]] = {}  # by identity
        self._empty: list[Collection[Any]] = []
        self._values: list[tuple[Any, Any]] = []  # containers, and their description
        for module in modules:
            self._watch(vars(module))
        groups = self._groups.values()
        self._sizes, self._names = list(map(len, groups)), list(chain.from_iterable(groups))
        self._attributes = list(chain.from_iterable(group.values() for group in groups))

    def is_current(self, model: nn.Module) -> bool:
        """Whether nothing of the model has changed."""
        groups = self._groups.values()
        return (
            type(model) is self._kind
            and list(map(type, self._watched_modules)) == self._kinds
            and not any(self._empty)
            and list(map(len, groups)) == self._sizes
            and list(chain.from_iterable(groups)) == self._names
            and all(map(is_, chain.from_iterable(map(VALUES, groups)), self._attributes))
            and all(describe(value) == was for value, was in self._values)
        )

    def _watch(self, group: Mapping[Any, Any]) -> None:
        """Watch a mapping, and the mappings and containers in it."""
        if id(group) in self._groups:
            return
        self._groups[id(group)] = group
        for name, value in group.items():
            if name not in self._without:
                self._watch_value(name, value)

    def _watch_value(self, name: str, value: Any) -> None:
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
    """A less complete snapshot, for models that `Snapshot` cannot compare: modules, hooks, settings, simple attributes.

    Modules are referenced weakly: a hook may reference the model, which must not be kept alive.
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
    """The addresses and versions of a model's weights and buffers, for a later test of whether any was written."""

    def __init__(self, model: nn.Module):
        self._tensors = [*model.parameters(), *model.buffers()]
        self._was = self._read()

    def is_current(self) -> bool:
        return self._read() == self._was

    def _read(self) -> list[tuple[int, int]]:
        return [(x.data_ptr(), 0 if x.is_inference() else changes_of(x)) for x in self._tensors]


class FactSnapshot:
    """Modules, settings, weights and buffers of a model: facts about the model hold while it is current."""

    def __init__(self, model: PreTrainedModel):
        self._state = TensorState(model)
        try:
            self._structure: Snapshot | LooseSnapshot = Snapshot(model)
        except CannotCompare:
            self._structure = LooseSnapshot(model)

    def is_current(self, model: PreTrainedModel) -> bool:
        return self._structure.is_current(model) and self._state.is_current()


def describe(value: Any) -> Any:
    """A value for comparison: containers and settings by their contents."""
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if isinstance(value, dict):
        return kind, [(key, describe(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return kind, [describe(item) for item in value]
    if isinstance(value, set | frozenset):
        return kind, frozenset(describe(item) for item in value)
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
    """Whether a value is a function without state: no closure, not bound to an object."""
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType)
    return isinstance(value, FunctionType) and value.__closure__ is None


@dataclass(frozen=True)
class CacheEntry:
    """An instrumented model, with snapshots of it and of the user's model at the time when it was made."""

    instrumented: InstrumentedModel
    model_snapshot: Snapshot
    instrumented_snapshot: Snapshot
    # For each module with weights: its `_parameters` in the instrumented model, in the user's model, and a mapping of
    # the same names to empty tensors.
    parameters: list[tuple[Weights, Weights, Weights]]
    weights: list[nn.Parameter]  # of the user's model

    @classmethod
    def of_model(cls, model: PreTrainedModel) -> "CacheEntry":
        instrumented = InstrumentedModel(model)
        if any(isinstance(module, Dequantized) for module in instrumented.model.modules()):
            raise CannotCompare("packed weights")
        # Before the modules are paired: it refuses models whose copy has other modules, such as compiled ones.
        model_snapshot = Snapshot(model)
        instrumented_snapshot = Snapshot(instrumented.model, without=("forward", "tokenlight", WEIGHTS, *HOOKS))
        modules = zip(instrumented.model.modules(), model.modules(), strict=True)
        pairs = [(weights_in(copy), weights_in(original)) for copy, original in modules if weights_in(original)]
        parameters = [
            (copy, original, {name: weight if weight is None else NO_WEIGHT for name, weight in copy.items()})
            for copy, original in pairs
        ]
        return cls(instrumented, model_snapshot, instrumented_snapshot, parameters, list(model.parameters()))

    def take_weights(self) -> None:
        """Set views of the user's weights in the instrumented model; tied weights stay tied."""
        views: dict[int, nn.Parameter | None] = {id(None): None}
        for weight in self.weights:
            views[id(weight)] = nn.Parameter(weight.detach(), requires_grad=False)
        for copy, original, _ in self.parameters:
            for name, weight in original.items():
                copy[name] = views[id(weight)]

    def drop_weights(self) -> None:
        for copy, _, empty in self.parameters:
            copy.update(empty)

    def fits(self, model: PreTrainedModel) -> bool:
        """Whether the instrumented model can be used for the model as it is now."""
        if not self.model_snapshot.is_current(model):
            return False
        return not any(map(torch.is_inference, self.weights))


NO_WEIGHT = nn.Parameter(torch.empty(0), requires_grad=False)
CACHE: WeakKeyDictionary[PreTrainedModel, CacheEntry] = WeakKeyDictionary()
LOCK = Lock()  # guards CACHE


@contextmanager
def borrowed_model(model: nn.Module) -> Iterator[InstrumentedModel]:
    """An instrumented model for one call, taken from the cache if possible. No two calls share one at the same time."""
    inner = unwrap(model)
    entry = cached_model(inner)
    if entry is None:
        yield InstrumentedModel(inner)
        return
    yield entry.instrumented  # not returned to the cache after an exception
    entry.instrumented.reset_attention()
    if entry.instrumented_snapshot.is_current(entry.instrumented.model):  # some modules change their state as they run
        entry.drop_weights()
        with LOCK:
            CACHE[inner] = entry


def cached_model(model: PreTrainedModel) -> CacheEntry | None:
    """A cache entry with weights, taken out of the cache or new; None for a model that cannot be cached."""
    with LOCK:
        entry = CACHE.pop(model, None)
    try:
        if entry is None or not entry.fits(model):
            return CacheEntry.of_model(model)
        with without_caller_modes():
            entry.take_weights()
        return entry
    except CannotCompare:
        return None
