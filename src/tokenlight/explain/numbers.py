"""What is explained of a token of an answer. Light: the command line reads it before torch is there."""

from typing import Literal, get_args

Number = Literal["logit", "log_probability"]
NUMBERS: tuple[Number, ...] = get_args(Number)
DEFAULT_NUMBER: Number = "log_probability"  # orders sentences better: docs/answers-results.md


def check_number(number: str) -> None:
    if number not in NUMBERS:
        raise ValueError(f"number is one of {', '.join(NUMBERS)}; found {number!r}")
