"""A method with its options, checked: rules, head masks, contexts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.heads.mask import HeadMask, HeadsLike, choose_heads, has_heads
from tokenlight.methods import METHODS, Method, Pass, find_method
from tokenlight.record.pass_spec import PassSpec
from tokenlight.rules.mode import RuleTable
from tokenlight.text.removal import Contexts

Option = HeadsLike | Sequence[str] | bool | int | float  # what a method's own keywords may be


@dataclass(frozen=True)
class MethodConfig:
    """A method with its options, and the user's own rule table if there is one."""

    method: Method
    options: Mapping[str, Any]  # each an Option; the method's own signature says which
    rules: RuleTable | None = None

    def __post_init__(self) -> None:
        self.method.check_options(self.options)
        if self.contexts and self.options.get("detail"):
            raise RefusedValue("detail= is read in one pass over the whole text: leave it out, or set contexts=0")
        if self.rules is not None and not any(one.rules for one in self.method.passes):
            raise RefusedType(f"method '{self.method.name}' has no rule table that could be replaced")
        if self.rules is not None and (chosen := self._table_options()):
            raise RefusedValue(f"rules= replaces the rule table that {', '.join(chosen)} chose: leave one of them out")

    def _table_options(self) -> list[str]:
        """The options that were given, apart from heads, where they decide which rule table a pass runs under."""
        own, full = self.method.options, self.full_options
        defaults = {name: full[name] if name == "heads" else default for name, default in own.items()}
        if all(one.rules_with(defaults) is one.rules_with(full) for one in self.method.passes):
            return []
        return [f"{name}={value!r}" for name, value in full.items() if name != "heads" and value != own[name]]

    @classmethod
    def for_model(
        cls, method: Method, options: Mapping[str, Any], model: PreTrainedModel, rules: RuleTable | None = None
    ) -> "MethodConfig":
        """With the heads that the options name, or that the method takes by default, looked up and checked."""
        method.check_options(options)
        if "heads" in method.options:
            options = {**options, "heads": choose_heads(options.get("heads", method.options["heads"]), model)}
        return cls(method, options, rules)

    def passes(self, split: bool) -> list[PassSpec]:
        """The method's passes, each with what the options or the user say."""
        return [self._plan(one, split) for one in self.method.passes]

    def _plan(self, one: Pass, split: bool) -> PassSpec:
        options = self.full_options
        table, double = one.rules_with(options), one.double
        if table is not None and self.rules is not None:  # only our own tables can mix precisions
            table, double = self.rules, False
        needs = frozenset(one.needs_with(options))
        return PassSpec(
            needs=frozenset() if self.method.folds else needs,
            in_passing=needs if self.method.folds else frozenset(),
            rules=table,
            gates=one.gates_with(options),
            split=split,
            unit=one.unit,
            double=double,
            last_block=one.last_block,
        )

    @cached_property
    def contexts(self) -> Contexts | None:
        """In which the method is asked, beside the whole text; None: in none."""
        return None if self.method.asks_model else Contexts.of({**self.method.all_options, **self.options})

    @property
    def own_options(self) -> dict[str, Any]:
        """Those that the method's function takes."""
        return {name: value for name, value in self.options.items() if name in self.method.options}

    @property
    def full_options(self) -> dict[str, Any]:
        return {**self.method.options, **self.own_options}

    @property
    def described_options(self) -> dict[str, Any]:
        """As a result keeps them: in words where they are objects."""
        own = {name: str(v) if isinstance(v, HeadMask) else v for name, v in self.full_options.items()}
        return own if self.contexts is None else {**own, **self.contexts.described}


def configs_for(
    model: PreTrainedModel, methods: Sequence[str] | None, options: Mapping[str, Option]
) -> dict[str, MethodConfig]:
    """A job for each method, with those of the options that it has."""
    if isinstance(methods, str):
        raise RefusedType(f"methods is a list of names; for one method call explain(..., method={methods!r})")
    known: dict[str, Any] = dict(options)
    if "heads" in known:
        known["heads"] = choose_heads(known["heads"], model)
    once = [entry for entry in METHODS.values() if not (entry.asks_model or entry.averaged or entry.slow)]
    fitting = [entry for entry in once if entry.fits(model)]
    if "heads" not in options:
        fitting = [entry for entry in fitting if has_heads(entry.options.get("heads"), model)]
    chosen = fitting if methods is None else [find_method(name) for name in methods]
    if not chosen:
        raise RefusedValue("name at least one method")
    for name in options:
        if not any(name in entry.all_options for entry in chosen):
            raise RefusedType(f"none of the methods {', '.join(e.name for e in chosen)} has an option '{name}'")
    return {
        entry.name: MethodConfig.for_model(entry, {n: v for n, v in known.items() if n in entry.all_options}, model)
        for entry in chosen
    }
