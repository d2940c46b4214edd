"""What is explained of a token of an answer. Light: the command line reads it before torch is there."""

from typing import Literal, get_args

Quantity = Literal["logit", "log_probability"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
DEFAULT_QUANTITY: Quantity = "log_probability"  # orders sentences better: docs/answers-results.md


def check_quantity(quantity: str) -> None:
    if quantity not in QUANTITIES:
        raise ValueError(f"number is one of {', '.join(QUANTITIES)}; found {quantity!r}")
