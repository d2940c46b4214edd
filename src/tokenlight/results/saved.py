"""Checks of saved results: values are consistent, or refused with the name of the field and the problem."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue

DTYPES = ("float32", "float64", "float16", "bfloat16")
CONVERSION = (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError)


def read_json(path: Path, kind: str) -> Any:
    """The content of a JSON file. NaN and infinite numbers are read; fields with such numbers are refused later."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RefusedValue(f"{path} is not a saved {kind}, or a damaged one: expected JSON ({error})") from error


@contextmanager
def converting(kind: str) -> Iterator[None]:
    """Errors of conversion in the body become errors about a damaged file."""
    try:
        yield
    except CONVERSION as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        if reason.startswith(damaged(kind, "")):
            raise
        raise RefusedValue(damaged(kind, reason)) from error


def damaged(kind: str, reason: str) -> str:
    """The message about a damaged file."""
    return f"this saved {kind} is damaged: {reason}"


def check_version(found: Any, expected: int) -> None:
    """Refuse files of other versions of the format."""
    if found == expected and not isinstance(found, bool):
        return
    newer = isinstance(found, int) and found > expected
    what = "a newer tokenlight wrote it: update" if newer else "save it again with this one"
    raise RefusedValue(f"saved in version {found!r}, but this tokenlight reads version {expected}; {what}")


def check_texts(fields: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check that fields are texts."""
    for name in names:
        expect(isinstance(fields[name], str), name, "a text", fields[name])


def check_optional(fields: Mapping[str, Any], names: Sequence[str], is_valid: Callable[[Any], bool], what: str) -> None:
    """Check that fields are valid or null; `what` describes a valid value."""
    for name in names:
        expect(fields[name] is None or is_valid(fields[name]), name, f"{what} or null", fields[name])


def check_mappings(fields: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check that fields are objects of JSON."""
    for name in names:
        expect(isinstance(fields[name], dict), name, "an object", fields[name])


def check_tokens(fields: Mapping[str, Any], texts: Sequence[str]) -> int:
    """Check tokens with their flags, segments and spans, which have to lie in the texts. Returns their number."""
    tokens = fields["tokens"]
    are_texts = isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
    expect(are_texts, "tokens", "a list of texts", tokens)
    count = len(tokens)
    for name, is_valid, what in (
        ("special", lambda value: isinstance(value, bool), "true or false"),
        (
            "segments",
            lambda value: value is None or (is_whole(value) and 0 <= value < len(texts)),
            "the number of a text",
        ),
        ("spans", is_span, "two numbers, first and end"),
    ):
        check_list(fields, name, count, is_valid, what)
    for segment, (_, end) in zip(fields["segments"], fields["spans"], strict=True):
        longest = 0 if segment is None else len(texts[segment])
        expect(segment is None or end <= longest, "spans", f"characters up to {longest}", end)
    return count


def check_list(fields: Mapping[str, Any], name: str, count: int, is_valid: Callable[[Any], bool], what: str) -> None:
    """Check that a field is a list of `count` valid entries; `what` describes a valid entry."""
    values = fields[name]
    expect(isinstance(values, list), name, "a list", values)
    expect(len(values) == count, name, f"{count} entries, one for each token", len(values))
    for value in values:
        expect(is_valid(value), name, what, value)


def read_tensor(name: str, values: Any, dtype: torch.dtype) -> Tensor:
    """A tensor of the saved numbers; numbers that the type cannot represent as finite ones are refused."""
    exact = torch.tensor(values, dtype=torch.float64)
    tensor = exact.to(dtype)
    too_large = exact[exact.isfinite() & ~tensor.isfinite()]
    expect(not len(too_large), name, f"numbers that {dtype} can hold".replace("torch.", ""), too_large[:1].tolist())
    return tensor


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_probability(value: Any) -> bool:
    return is_finite(value) and 0 <= value <= 1.0001  # rounding in half precision


def is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_whole, value)) and 0 <= value[0] <= value[1]


def expect(is_valid: bool, name: str, what: str, found: Any) -> None:
    """Refuse an invalid value of a field, with a description of valid ones."""
    if not is_valid:
        shown = repr(found)
        raise RefusedValue(f"{name}: expected {what}, found {shown if len(shown) <= 60 else shown[:60] + ' ...'}")
