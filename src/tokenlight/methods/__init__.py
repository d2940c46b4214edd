"""The registry: a method is a function with a decorator that says what it needs and where it comes from."""

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
from tokenlight.text.removal import NONE


@dataclass(frozen=True)
class Attribution:
    """Scores [batch, token]; numbers about them, each [batch], such as a residual; larger maps, each [batch, ...]."""

    scores: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    maps: Mapping[str, Tensor] = field(default_factory=dict)
    fused: bool | None = None  # whether attention was one operation; whoever ran the passes fills it in


# Fixed, or a function of the options.
Needs = tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]]
Rules = RuleTable | None | Callable[[Mapping[str, Any]], RuleTable]
GatesWith = Callable[[Mapping[str, Any]], Gates | None]


@dataclass(frozen=True)
class Pass:
    """A recorded pass that a method reads."""

    needs: Needs
    rules: Rules = None  # None: the plain gradient
    unit: bool = False  # relevance starts from 1, not from the score
    double: bool = False  # in double precision, whatever the model's
    gates: GatesWith | None = None  # which heads relevance flows through; None: all
    last_block: bool = False  # nothing is read below the last block

    def needs_with(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return self.needs(options) if callable(self.needs) else self.needs

    def rules_with(self, options: Mapping[str, Any]) -> RuleTable | None:
        return self.rules(options) if callable(self.rules) else self.rules

    def gates_with(self, options: Mapping[str, Any]) -> Gates | None:
        return None if self.gates is None else self.gates(options)


@dataclass(frozen=True)
class Asking:
    """How a method that records no pass asks the model again, about changed texts."""

    passes: Callable[[Mapping[str, Any], int], int]  # options, tokens of a text -> forward passes for this one text
    together: Callable[[Mapping[str, Any], int, int], int]  # options, texts, tokens of each -> changed texts at once
    gradient: bool = False  # every pass is also one backward, to the embeddings
    # Embeddings [batch, token, dim] whose score the method needs, too: they run beside the text in its own first pass.
    baseline: Callable[[InstrumentedModel, Batch, Mapping[str, Any]], Tensor | None] = (
        lambda instrumented, batch, options: None
    )
    written_out: bool = False  # every pass writes attention out: the fused operation gives nobody its scores
    parts: bool = False  # the method finds scores [part, batch, token], of all parts of a target from the same passes


NEVER = Asking(passes=lambda options, tokens: 0, together=lambda options, texts, tokens: texts)  # looks at texts alone


@dataclass(frozen=True)
class Method:
    """An entry of METHODS: the function and everything that is known about it."""

    name: str
    function: Callable[..., Any]  # gives a Tensor or an Attribution, at once or as a Fold (record/trace.py)
    title: str  # what papers call it
    paper: str
    signed: bool
    class_specific: bool
    passes: tuple[Pass, ...]  # the function takes a trace of each; a method that asks the model itself has none
    defined_for: Callable[[PreTrainedModel], bool]  # apart from what reading attention requires
    split: bool  # explains target and foil separately and returns the difference
    cost: str  # in words, for tables
    asks: Asking  # NEVER where recorded passes say it all
    slow: bool  # what it computes beside the model's passes takes longer than they do
    averaged: Mapping[str, Any]  # the contexts that it is averaged over by default (text/removal.py)
    control: str  # what it is, in words, if tables compare methods with it; "" for methods themselves
    caution: str  # what a reader of its scores might get wrong, in words; "" where they mean what they seem to

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @cached_property
    def options(self) -> dict[str, Any]:
        """The method's own keywords and their defaults."""
        return options_of(self.function)

    @property
    def all_options(self) -> dict[str, Any]:
        """Also those about contexts, which every method that reads recorded passes has."""
        return {**self.options, **({} if self.asks_model else {**NONE, **self.averaged})}

    @property
    def reads_query_position(self) -> bool:
        """Whether, by default, it reads [query, key] maps at the token whose output is explained."""
        return any("row" in one.needs_with(self.options) for one in self.passes)

    @property
    def reads_attention(self) -> bool:
        """Whether, by default, it reads attention weights or the values that they mix, or chooses among heads."""
        needs = {need.removesuffix(".grad") for one in self.passes for need in one.needs_with(self.options)}
        return bool(needs & FROM_ATTENTION) or self.options.get("heads") is not None

    def fits(self, model: PreTrainedModel) -> bool:
        """Whether the method is defined for the model."""
        return self.defined_for(model) and (attends_alone(model) or not self.reads_attention)

    @property
    def folds(self) -> bool:
        """Whether it reads its passes block by block, and needs nothing of a block afterwards."""
        return inspect.isgeneratorfunction(self.function)

    @property
    def asks_model(self) -> bool:
        return not self.passes

    @property
    def asks_often(self) -> bool:
        """Whether many changed texts are asked about."""
        return self.asks is not NEVER

    @property
    def takes_long(self) -> bool:
        """Whether one text takes many times as long as a pass."""
        return self.asks_often or self.slow

    def explains_apart(self, task: Task | type[Task], foiled: bool) -> bool:
        """Whether target and foil get explanations of their own, whose difference is the result.

        A foil that is read at a row of its own needs a pass of its own, too, where methods that know it read rows.
        """
        own_row = task.foil_has_own_query_position and self.class_specific and self.reads_query_position
        return foiled and (self.split or own_row)

    def check_options(self, options: Mapping[str, Any]) -> None:
        if unknown := sorted(set(options) - set(self.all_options)):
            known = ", ".join(f"{name}={default!r}" for name, default in self.all_options.items()) or "none"
            raise RefusedType(f"method '{self.name}' has no option {', '.join(unknown)}; its options: {known}")


METHODS: dict[str, Method] = {}  # every method by its identifier
ALIASES: dict[str, str] = {}  # papers' names in lower case -> identifier


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
    asks: Asking | None = None,
    slow: bool = False,
    averaged: Mapping[str, Any] = MappingProxyType({}),
    control: str = "",
    caution: str = "",
    aliases: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a method under its function's name. `needs` and `last_block` are short for one plain pass."""
    passes = passes or ((Pass(needs, last_block=last_block),) if needs else ())
    if not passes and asks is None:
        raise RefusedType(f"{title} records no pass: say how it asks the model (asks=Asking(...), or asks=NEVER)")

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
            asks=asks or NEVER,
            slow=slow,
            averaged=averaged,
            control=control,
            caution=caution,
        )
        ALIASES.update({alias.lower(): name for alias in (name, title, *aliases)})
        return function

    return register


def details(asked: Any, known: Iterable[str]) -> tuple[str, ...]:
    """The maps that the option `detail` asks for: one name or several."""
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    if unknown := [name for name in names if name not in known]:
        raise RefusedValue(f"detail is one or more of {', '.join(known)}; found {', '.join(map(repr, unknown))}")
    return names


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def describe_cost(passes: tuple[Pass, ...], options: Mapping[str, Any]) -> str:
    words = []
    for one in passes:
        backward = any(need.endswith(".grad") for need in one.needs_with(options))
        words.append(("forward + backward" if backward else "forward") + (" under rules" if one.rules else ""))
    return ", ".join(words)


def find_method(name: str) -> Method:
    """By identifier or by a paper's name, in any case; a wrong name lists the right ones."""
    return METHODS[look_up(name, ALIASES, "method", METHODS)]


import_all(__path__, __name__)  # importing a school registers its methods
