"""Values of options, for the library and for the command line, which must not import torch for them."""

from typing import Literal, get_args

from tokenlight.common.errors import RefusedType, RefusedValue

Quantity = Literal["logit", "log_probability"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
DEFAULT_QUANTITY: Quantity = "log_probability"  # orders sentences better: docs/answers-results.md


def check_quantity(quantity: str) -> None:
    if quantity not in QUANTITIES:
        raise RefusedValue(f"quantity must be one of {', '.join(QUANTITIES)}; found {quantity!r}")


def check_flag(name: str, value: object, *, or_none: bool = False) -> None:
    """Refuse what is not a boolean; 1 and "no" would be read as True."""
    if not isinstance(value, bool) and not (or_none and value is None):
        raise RefusedType(f"{name} is {'True, False or None' if or_none else 'True or False'}, found {value!r}")


BadRows = Literal["skip", "refuse"]
Removal = Literal["hide", "mask", "pad", "delete"]  # how methods remove tokens; "hide": others do not attend to them
REMOVALS: tuple[Removal, ...] = get_args(Removal)
RemovalName = Literal["delete", "pad", "mask"]  # how metrics remove tokens from the model's input
