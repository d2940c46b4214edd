"""The registry: a method is a function with a decorator that says what it needs and where it comes from."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Attribution:
    """Scores [batch, token] and numbers about them, each [batch], such as a residual."""

    scores: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)


Needs = tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]]  # fixed, or a function of the options


@dataclass(frozen=True)
class Method:
    """An entry of METHODS: the function and everything that is known about it."""

    name: str
    function: Callable[..., Tensor | Attribution]
    title: str  # what papers call it
    paper: str
    signed: bool
    class_specific: bool
    needs: Needs  # signals of the trace; a method that asks the model itself has none
    asks_model: bool
    cost: str  # in words, for tables

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """The method's own keywords and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def needs_with(self, options: Mapping[str, Any]) -> frozenset[str]:
        """The signals to record for these options."""
        return frozenset(self.needs({**self.options, **options}) if callable(self.needs) else self.needs)

    def check_options(self, options: Mapping[str, Any]) -> None:
        if unknown := sorted(set(options) - set(self.options)):
            known = ", ".join(f"{name}={default!r}" for name, default in self.options.items()) or "none"
            raise TypeError(f"method '{self.name}' has no option {', '.join(unknown)}; its options: {known}")


METHODS: dict[str, Method] = {}
ALIASES: dict[str, str] = {}  # papers' names in lower case -> identifier


def method(
    *,
    title: str,
    paper: str,
    signed: bool,
    class_specific: bool = True,
    needs: Needs = (),
    asks_model: bool = False,
    cost: str | None = None,
    aliases: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a method under its function's name."""
    backward = callable(needs) or any(need.endswith(".grad") for need in needs)
    passes = "forward + backward" if backward else "forward"

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        METHODS[name] = Method(name, function, title, paper, signed, class_specific, needs, asks_model, cost or passes)
        ALIASES.update({alias.lower(): name for alias in (name, title, *aliases)})
        return function

    return register


def find_method(name: str) -> Method:
    """By identifier or by a paper's name, in any case; a wrong name lists the right ones."""
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a method, found {type(name).__name__}: {name!r}")
    identifier = ALIASES.get(name.lower())
    if identifier is None:
        close = difflib.get_close_matches(name.lower(), ALIASES, n=1)
        hint = f" Did you mean '{ALIASES[close[0]]}'?" if close else ""
        raise ValueError(f"there is no method '{name}'.{hint} Methods: {', '.join(METHODS)}")
    return METHODS[identifier]


# Importing a school registers its methods.
from tokenlight.methods import attention as attention  # noqa: E402
from tokenlight.methods import attention_gradients as attention_gradients  # noqa: E402
from tokenlight.methods import gradients as gradients  # noqa: E402
from tokenlight.methods import perturbation as perturbation  # noqa: E402
