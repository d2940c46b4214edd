"""What the browser may ask: JSON becomes frozen dataclasses, or is refused with a sentence that says why."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from tokenlight.methods import find_method

CHARACTERS = 30_000  # of one text
INDEX = 2**31  # larger ones are nobody's label, token or position
Target = str | int | None
Lit = tuple[tuple[float, ...], ...]  # [layer][head]
Perturbed = Literal["mask", "pad", "delete"]
Format = Literal["html", "latex", "json"]
Asked = TypeVar("Asked", bound="Question")


class Refused(ValueError):
    """The request cannot be answered as it is; the message says what to change."""


@dataclass(frozen=True)
class Question:
    """A text and what is asked about it; None stands for what the model predicts."""

    text: str
    second: str | None = None
    target: Target = None
    foil: Target = None
    position: int | None = None
    target_span: tuple[int, int] | None = None
    foil_span: tuple[int, int] | None = None

    @property
    def question(self) -> "Question":
        """Without what a request adds to it: requests about the same are equal here."""
        return Question(*(getattr(self, field.name) for field in fields(Question)))


@dataclass(frozen=True)
class MethodsAsked(Question):
    """Methods, and the heads that are lit for those that take a mask, or for some of them."""

    methods: tuple[str, ...] = ()
    heads: Lit | None = None
    masked: tuple[str, ...] | None = None  # whom the heads are for; None: all that take a mask


@dataclass(frozen=True)
class ExplainAsked(MethodsAsked):
    layers: bool = False


@dataclass(frozen=True)
class CurvesAsked(MethodsAsked):
    perturbation: Perturbed | None = None  # None: as suits the model


@dataclass(frozen=True)
class DownloadAsked(MethodsAsked):
    format: Format = "html"


@dataclass(frozen=True)
class AttentionAsked(Question):
    layer: int = 0
    head: int = 0


@dataclass(frozen=True)
class RemoveAsked(Question):
    gone: tuple[int, ...] = ()
    perturbation: Perturbed | None = None


REQUIRED: dict[type[Question], tuple[str, ...]] = {
    Question: ("text",),
    ExplainAsked: ("text", "methods"),
    CurvesAsked: ("text", "methods"),
    DownloadAsked: ("text", "methods", "format"),
    AttentionAsked: ("text", "layer", "head"),
    RemoveAsked: ("text", "gone"),
}


def parse(body: bytes, kind: type[Asked]) -> Asked:
    """A request of this kind, checked as far as that is possible without the model."""
    found = read_object(body)
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(found) - set(known)):
        raise Refused(f"unknown {', '.join(map(short, unknown))}: expected some of {', '.join(known)}")
    if missing := [name for name in REQUIRED[kind] if name not in found]:
        raise Refused(f"missing {', '.join(missing)}: expected {', '.join(REQUIRED[kind])}")
    asked = kind(**{name: CHECKS[name](name, value) for name, value in found.items()})
    for target, span in (("target", "target_span"), ("foil", "foil_span")):
        if getattr(asked, target) is not None and getattr(asked, span) is not None:
            raise Refused(f"{target} and {span} both name the {target}: give one of them")
    return asked


def read_object(body: bytes) -> Mapping[str, Any]:
    """JSON without what only some readers know (NaN) or read in different ways (a key twice)."""
    try:
        found = json.loads(body, parse_constant=refuse_constant, object_pairs_hook=distinct)
    except RecursionError as error:
        raise Refused("the JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Refused("the body is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}") from error
    except Refused:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise Refused("the body holds a number that is too long") from error
    if not isinstance(found, dict):
        raise Refused(f"expected a JSON object, found {kind_of(found)}")
    return found


def refuse_constant(name: str) -> None:
    raise Refused(f"{name} is not a number that JSON has")


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("a key stands twice in an object")
    return found


def some_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"{name} is a text, found {kind_of(value)}")
    if len(value) > CHARACTERS:
        raise Refused(f"{name} has {len(value):,} characters, at most {CHARACTERS:,} are allowed: shorten it")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise Refused(f"{name} holds half a character (a lone surrogate), which no tokenizer can read")
    return value


def maybe_text(name: str, value: Any) -> str | None:
    return None if value is None else some_text(name, value)


def whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{name} is a whole number, found {kind_of(value)}")
    if not 0 <= value < INDEX:
        raise Refused(f"{name} is a number from 0 up to {INDEX:,}, found one outside")
    return value


def maybe_whole(name: str, value: Any) -> int | None:
    return None if value is None else whole(name, value)


def some_target(name: str, value: Any) -> Target:
    if value is None or isinstance(value, str):
        return maybe_text(name, value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{name} is a label, a token or an answer as text, or an index; found {kind_of(value)}")
    return whole(name, value)


def maybe_span(name: str, value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    first, last = listed(name, value, 2, 2)
    return whole(name, first), whole(name, last)


def maybe_methods(name: str, value: Any) -> tuple[str, ...] | None:
    return None if value is None else method_names(name, value, 0)


def some_methods(name: str, value: Any) -> tuple[str, ...]:
    return method_names(name, value, 1)


def method_names(name: str, value: Any, least: int) -> tuple[str, ...]:
    """Identifiers; papers' names are understood too. A name twice is asked once."""
    found = listed(name, value, least, 100)
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise Refused(f"{name} are names, found {kind_of(wrong[0])}")
    try:
        return tuple(dict.fromkeys(find_method(some_text(name, one)).name for one in found))
    except ValueError as error:
        raise Refused(str(error)) from error


def maybe_heads(name: str, value: Any) -> Lit | None:
    if value is None:
        return None
    return tuple(tuple(strengths(name, row)) for row in listed(name, value, 1, 1000))


def strengths(name: str, row: Any) -> Iterator[float]:
    for one in listed(name, row, 1, 1000):
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one <= 1:
            raise Refused(f"{name} are rows of numbers from 0 to 1, one row a layer; found {short(one)}")
        yield float(one)


def token_numbers(name: str, value: Any) -> tuple[int, ...]:
    return tuple(sorted({whole(name, one) for one in listed(name, value, 0, CHARACTERS)}))


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{name} is true or false, found {kind_of(value)}")
    return value


def maybe_perturbation(name: str, value: Any) -> Perturbed | None:
    return None if value is None else one_of(name, value, get_args(Perturbed))


def some_format(name: str, value: Any) -> Format:
    return one_of(name, value, get_args(Format))


def one_of(name: str, value: Any, known: tuple[str, ...]) -> Any:
    if not isinstance(value, str) or value not in known:
        raise Refused(f"{name} is one of {', '.join(known)}; found {short(value)}")
    return value


def listed(name: str, value: Any, least: int, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(f"{name} is a list, found {kind_of(value)}")
    if not least <= len(value) <= most:
        counted = str(least) if least == most else f"{least} to {most:,}"
        raise Refused(f"{name} is a list of {counted} entries, found {len(value):,}")
    return value


def kind_of(value: Any) -> str:
    """In the words of JSON."""
    kinds = {bool: "true or false", dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return kinds.get(type(value), "a number")


def short(value: Any) -> str:
    """For messages: what was found, at no great length."""
    written = json.dumps(value) if isinstance(value, str | int | float | None) else kind_of(value)
    return written if len(written) <= 60 else f"{written[:60]} …"


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "text": some_text,
    "second": maybe_text,
    "target": some_target,
    "foil": some_target,
    "position": maybe_whole,
    "target_span": maybe_span,
    "foil_span": maybe_span,
    "methods": some_methods,
    "heads": maybe_heads,
    "masked": maybe_methods,
    "layers": flag,
    "perturbation": maybe_perturbation,
    "format": some_format,
    "layer": whole,
    "head": whole,
    "gone": token_numbers,
}
