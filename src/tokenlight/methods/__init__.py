"""The registry of methods: functions with a decorator that states what they read and where they are published."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.registry import import_all, look_up
from tokenlight.model.capture import FROM_ATTENTION
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.module_ops import attends_alone
from tokenlight.rules.head_gates import Gates
from tokenlight.rules.mode import RuleTable
from tokenlight.tasks.task import Task
from tokenlight.text.batch import Batch
from tokenlight.text.context_draws import NONE


@dataclass(frozen=True)
class Attribution:
    """Scores [batch, token], extras [batch] such as a residual, and maps [batch, ...]."""

    scores: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    maps: Mapping[str, Tensor] = field(default_factory=dict)
    fused: bool | None = None  # whether attention was one operation; set by explain/execute.py


# A fixed value, or a function of the options.
Needs = tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]]
Rules = RuleTable | None | Callable[[Mapping[str, Any]], RuleTable]
GatesWith = Callable[[Mapping[str, Any]], Gates | None]


@dataclass(frozen=True)
class Pass:
    """A recorded pass that a method reads."""

    needs: Needs
    rules: Rules = None  # None: the ordinary gradient
    unit: bool = False  # relevance starts from 1, not from the score
    double: bool = False  # in double precision, also if the model has another one
    gates: GatesWith | None = None  # head gates of the backward pass; None: relevance flows through all heads
    last_block: bool = False  # no signal below the last block is read

    def needs_with(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return self.needs(options) if callable(self.needs) else self.needs

    def rules_with(self, options: Mapping[str, Any]) -> RuleTable | None:
        return self.rules(options) if callable(self.rules) else self.rules

    def gates_with(self, options: Mapping[str, Any]) -> Gates | None:
        return None if self.gates is None else self.gates(options)


@dataclass(frozen=True)
class ModelRuns:
    """How a method without recorded passes runs the model on changed texts."""

    passes: Callable[[Mapping[str, Any], int], int]  # (options, tokens of a text) -> forward passes for one text
    # (options, texts, tokens of each) -> changed texts in a batch
    at_once: Callable[[Mapping[str, Any], int, int], int]
    gradient: bool = False  # every forward pass is followed by a backward pass to the embeddings
    # Embeddings [batch, token, dim] whose score the method needs as well; they run in the first pass of the text.
    baseline: Callable[[InstrumentedModel, Batch, Mapping[str, Any]], Tensor | None] = (
        lambda instrumented, batch, options: None
    )
    written_out: bool = False  # attention is not fused: the method changes attention scores
    parts: bool = False  # the method returns scores [part, batch, token] for all parts of a target


# For methods that read texts only.
NO_RUNS = ModelRuns(passes=lambda options, tokens: 0, at_once=lambda options, texts, tokens: texts)


@dataclass(frozen=True)
class Method:
    """An entry of METHODS: the function and its properties."""

    name: str
    function: Callable[..., Any]  # returns a Tensor or an Attribution, directly or as a Fold (record/trace.py)
    title: str  # the name in papers
    paper: str
    signed: bool
    class_specific: bool
    passes: tuple[Pass, ...]  # the function takes a trace of each; none for a method that runs the model itself
    defined_for: Callable[[PreTrainedModel], bool]  # apart from the conditions of reading attention
    split: bool  # explains target and foil separately and returns the difference
    cost: str  # in words, for tables
    model_runs: ModelRuns  # NO_RUNS for methods that only read recorded passes
    slow: bool  # its own computation takes longer than the model's passes
    averaged: Mapping[str, Any]  # options of the contexts that it is averaged over by default (text/context_draws.py)
    control: str  # its description in tables, if methods are compared with it; "" for methods themselves
    caution: str  # how its negative scores may be misunderstood; "" if there is nothing to warn of

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @cached_property
    def options(self) -> dict[str, Any]:
        """The method's own keywords and their defaults."""
        return options_of(self.function)

    @property
    def all_options(self) -> dict[str, Any]:
        """The method's own options, and the options of contexts, which all methods with recorded passes have."""
        return {**self.options, **({} if self.runs_model else {**NONE, **self.averaged})}

    @property
    def reads_query_position(self) -> bool:
        """Whether, with its default options, it reads maps [query, key] at the query position of the target."""
        return any("row" in pass_.needs_with(self.options) for pass_ in self.passes)

    @property
    def reads_attention(self) -> bool:
        """Whether, with its default options, it reads attention weights or values, or selects heads."""
        needs = {need.removesuffix(".grad") for pass_ in self.passes for need in pass_.needs_with(self.options)}
        return bool(needs & FROM_ATTENTION) or self.options.get("heads") is not None

    def fits(self, model: PreTrainedModel) -> bool:
        """Whether the method is defined for the model."""
        return self.defined_for(model) and (attends_alone(model) or not self.reads_attention)

    @property
    def folds(self) -> bool:
        """Whether it is a generator that reads one block after another (record/trace.py)."""
        return inspect.isgeneratorfunction(self.function)

    @property
    def runs_model(self) -> bool:
        """Whether it runs the model itself, or not at all, and reads no recorded pass."""
        return not self.passes

    @property
    def runs_on_changed_texts(self) -> bool:
        """Whether it runs the model on changed texts."""
        return self.model_runs is not NO_RUNS

    @property
    def is_slow(self) -> bool:
        """Whether explaining one text takes many times as long as one pass."""
        return self.runs_on_changed_texts or self.slow

    def explains_separately(self, task: Task | type[Task], has_foil: bool) -> bool:
        """Whether target and foil are explained separately, and the result is the difference.

        This is so for methods with `split`, and for methods that read a query position if the foil has another one.
        """
        other_position = task.foil_has_own_query_position and self.class_specific and self.reads_query_position
        return has_foil and (self.split or other_position)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the method does not have."""
        if unknown := sorted(set(options) - set(self.all_options)):
            known = ", ".join(f"{name}={default!r}" for name, default in self.all_options.items()) or "none"
            raise RefusedType(f"method '{self.name}' has no option {', '.join(unknown)}; its options: {known}")


METHODS: dict[str, Method] = {}  # by identifier
ALIASES: dict[str, str] = {}  # names in papers, in lower case -> identifier


def method(
    *,
    title: str,
    paper: str,
    signed: bool,
    class_specific: bool = True,
    needs: Needs = (),
    last_block: bool = False,
    passes: tuple[Pass, ...] = (),
    fits: Callable[[PreTrainedModel], bool] = lambda model: True,
    split: bool = False,
    cost: str | None = None,
    model_runs: ModelRuns | None = None,
    slow: bool = False,
    averaged: Mapping[str, Any] = MappingProxyType({}),
    control: str = "",
    caution: str = "",
    aliases: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a method under its own name; `needs` and `last_block` stand for one pass without rules."""
    passes = passes or ((Pass(needs, last_block=last_block),) if needs else ())
    if not passes and model_runs is None:
        raise RefusedType(
            f"{title} records no pass: state how it runs the model (model_runs=ModelRuns(...), or model_runs=NO_RUNS)"
        )

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        METHODS[name] = Method(
            name=name,
            function=function,
            title=title,
            paper=paper,
            signed=signed,
            class_specific=class_specific,
            passes=passes,
            defined_for=fits,
            split=split,
            cost=cost or describe_cost(passes, options_of(function)),
            model_runs=model_runs or NO_RUNS,
            slow=slow,
            averaged=averaged,
            control=control,
            caution=caution,
        )
        ALIASES.update({alias.lower(): name for alias in (name, title, *aliases)})
        return function

    return register


def select_maps(detail: Any, known: Iterable[str]) -> tuple[str, ...]:
    """The names of maps in the option `detail`, which is one name or several."""
    names = (detail,) if isinstance(detail, str) else tuple(detail)
    if unknown := [name for name in names if name not in known]:
        raise RefusedValue(f"detail is one or more of {', '.join(known)}; found {', '.join(map(repr, unknown))}")
    return names


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only parameters of a method's function, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def describe_cost(passes: tuple[Pass, ...], options: Mapping[str, Any]) -> str:
    """The cost of recorded passes in words, such as "forward + backward under rules"."""
    costs = []
    for pass_ in passes:
        backward = any(need.endswith(".grad") for need in pass_.needs_with(options))
        costs.append(("forward + backward" if backward else "forward") + (" under rules" if pass_.rules else ""))
    return ", ".join(costs)


def find_method(name: str) -> Method:
    """The method with this identifier or name in papers, in upper or lower case; raises an error for any other."""
    return METHODS[look_up(name, ALIASES, "method", METHODS)]


import_all(__path__, __name__)  # importing a module registers its methods
