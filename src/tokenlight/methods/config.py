"""A method with its options: rule table, head mask and contexts, checked."""

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
from tokenlight.text.context_draws import Contexts

Option = HeadsLike | Sequence[str] | bool | int | float  # values of methods' options


@dataclass(frozen=True)
class MethodConfig:
    """A method with its options and, if the caller gives one, a rule table."""

    method: Method
    options: Mapping[str, Any]  # each an Option; the signature of the method's function has their types
    rules: RuleTable | None = None

    def __post_init__(self) -> None:
        self.method.check_options(self.options)
        if self.contexts and self.options.get("detail"):
            raise RefusedValue("detail= is read in one pass over the whole text: leave it out, or set contexts=0")
        if self.rules is not None and not any(pass_.rules for pass_ in self.method.passes):
            raise RefusedType(f"method '{self.method.name}' has no rule table that could be replaced")
        if self.rules is not None and (selecting := self._options_of_rules()):
            raise RefusedValue(
                f"rules= replaces the rule table that {', '.join(selecting)} chose: leave one of them out"
            )

    def _options_of_rules(self) -> list[str]:
        """The options other than `heads` that are not at their defaults, if they select another rule table."""
        own, full = self.method.options, self.full_options
        defaults = {name: full[name] if name == "heads" else default for name, default in own.items()}
        if all(pass_.rules_with(defaults) is pass_.rules_with(full) for pass_ in self.method.passes):
            return []
        return [f"{name}={value!r}" for name, value in full.items() if name != "heads" and value != own[name]]

    @classmethod
    def for_model(
        cls, method: Method, options: Mapping[str, Any], model: PreTrainedModel, rules: RuleTable | None = None
    ) -> "MethodConfig":
        """The method with these options, and its heads (given or by default) as a head mask of the model."""
        method.check_options(options)
        if "heads" in method.options:
            options = {**options, "heads": choose_heads(options.get("heads", method.options["heads"]), model)}
        return cls(method, options, rules)

    def passes(self, split: bool) -> list[PassSpec]:
        """The method's passes with these options and the caller's rule table."""
        return [self._pass_spec(pass_, split) for pass_ in self.method.passes]

    def _pass_spec(self, pass_: Pass, split: bool) -> PassSpec:
        options = self.full_options
        table, double = pass_.rules_with(options), pass_.double
        if table is not None and self.rules is not None:  # the tables of the package can mix precisions, others cannot
            table, double = self.rules, False
        needs = frozenset(pass_.needs_with(options))
        return PassSpec(
            needs=frozenset() if self.method.folds else needs,
            in_passing=needs if self.method.folds else frozenset(),
            rules=table,
            gates=pass_.gates_with(options),
            split=split,
            unit=pass_.unit,
            double=double,
            last_block=pass_.last_block,
        )

    @cached_property
    def contexts(self) -> Contexts | None:
        """The contexts that are explained in addition to the whole text; None: only the whole text is explained."""
        return None if self.method.runs_model else Contexts.of({**self.method.all_options, **self.options})

    @property
    def own_options(self) -> dict[str, Any]:
        """The given options that are keywords of the method's function, without those of contexts."""
        return {name: value for name, value in self.options.items() if name in self.method.options}

    @property
    def full_options(self) -> dict[str, Any]:
        """All keywords of the method's function, with defaults where none is given."""
        return {**self.method.options, **self.own_options}

    @property
    def described_options(self) -> dict[str, Any]:
        """All options as they are stored in results: head masks as text, and those of contexts if there are any."""
        own = {name: str(value) if isinstance(value, HeadMask) else value for name, value in self.full_options.items()}
        return own if self.contexts is None else {**own, **self.contexts.described}


def configs_for(
    model: PreTrainedModel, methods: Sequence[str] | None, options: Mapping[str, Option]
) -> dict[str, MethodConfig]:
    """Each method with those options that it has; by default, methods of a few passes that fit the model."""
    if isinstance(methods, str):
        raise RefusedType(f"methods is a list of names; for one method call explain(..., method={methods!r})")
    known: dict[str, Any] = dict(options)
    if "heads" in known:
        known["heads"] = choose_heads(known["heads"], model)
    quick = [entry for entry in METHODS.values() if not (entry.runs_model or entry.averaged or entry.slow)]
    fitting = [entry for entry in quick if entry.fits(model)]
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
