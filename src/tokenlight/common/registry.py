"""Registries: modules that register themselves, and look-up of names in any case."""

import difflib
import pkgutil
from collections.abc import Iterable, Mapping
from importlib import import_module

from tokenlight.common.errors import RefusedType, RefusedValue


def look_up(name: str, aliases: Mapping[str, str], kind: str, known: Iterable[str]) -> str:
    """The identifier of a name or alias; `kind` says what it names in the error, which lists those in `known`."""
    if not isinstance(name, str):
        raise RefusedType(f"expected the name of a {kind}, found {type(name).__name__}: {name!r}")
    identifier = aliases.get(name.lower())
    if identifier is None:
        close = difflib.get_close_matches(name.lower(), aliases, n=1)
        hint = f" Did you mean '{aliases[close[0]]}'?" if close else ""
        raise RefusedValue(f"there is no {kind} '{name}'.{hint} {kind.capitalize()}s: {', '.join(known)}")
    return identifier


def import_all(folder: Iterable[str], package: str) -> None:
    """Import every module of a package, so that each registers its entries."""
    for module in pkgutil.iter_modules(folder):
        import_module(f"{package}.{module.name}")
