"""Requests of the page: JSON becomes frozen dataclasses, and every field is checked."""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from tokenlight.common.errors import RefusedValue
from tokenlight.explain.generate import LEAST_TEMPERATURE
from tokenlight.methods import find_method

CHARACTERS = 30_000  # of one text, or of all messages together
INDEX_LIMIT = 2**31  # labels, token ids and positions are smaller
LEAST_STRENGTH = 1e-6  # of a head; smaller strengths count as 0
ANSWER = 256  # tokens of an answer, explained or generated
MESSAGES = PASSAGES = 50
Target = str | int | None
Message = tuple[str, str]  # role, content
Lit = tuple[tuple[float, ...], ...]  # [layer][head] strengths
Perturbed = Literal["mask", "pad", "delete"]
Format = Literal["html", "latex", "json"]
Role = Literal["system", "user", "assistant"]
Check = Callable[[str, Any], Any]  # from a field's name and JSON value to its value; refuses a wrong one


class Refused(RefusedValue):
    """The request cannot be answered; the message says what to change."""


def check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"{name} is a text, found {json_type(value)}")
    if len(value) > CHARACTERS:
        raise Refused(f"{name} has {len(value):,} characters, at most {CHARACTERS:,} are allowed: shorten it")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise Refused(f"{name} holds half a character (a lone surrogate), which no tokenizer can read")
    return value


def check_index(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{name} is a whole number, found {json_type(value)}")
    if not 0 <= value < INDEX_LIMIT:
        raise Refused(f"{name} is a number from 0 up to {INDEX_LIMIT:,}, found one outside")
    return value


def check_target(name: str, value: Any) -> Target:
    if isinstance(value, str):
        return check_text(name, value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{name} is a label, a token or an answer as text, or an index; found {json_type(value)}")
    return check_index(name, value)


def check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{name} is true or false, found {json_type(value)}")
    return value


def check_method(name: str, value: Any) -> str:
    """The identifier of a method; the names that papers use are accepted too."""
    if not isinstance(value, str):
        raise Refused(f"{name} are names, found {json_type(value)}")
    try:
        return find_method(check_text(name, value)).name
    except ValueError as error:
        raise Refused(str(error)) from error


def check_strength(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Refused(f"{name} are rows of numbers from 0 to 1, one row a layer; found {shorten(value)}")
    return float(value) if value >= LEAST_STRENGTH else 0.0  # dividing by smaller ones could overflow


def check_message(name: str, value: Any) -> Message:
    if not isinstance(value, dict) or set(value) != {"role", "content"}:
        raise Refused(f"{name} are objects with role and content, nothing else")
    return choice_of(Role)("role", value["role"]), check_text("content", value["content"])


def check_messages(name: str, value: Any) -> tuple[Message, ...]:
    messages = list_of(check_message, 1, MESSAGES)(name, value)
    if (total := sum(len(content) for _, content in messages)) > CHARACTERS:
        raise Refused(f"{name} have {total:,} characters, at most {CHARACTERS:,} are allowed: shorten them")
    return messages


def check_answer(name: str, value: Any) -> str | tuple[int, ...]:
    """A text, or token ids."""
    return list_of(check_index, 1, ANSWER)(name, value) if isinstance(value, list) else check_text(name, value)


def check_removed(name: str, value: Any) -> tuple[int, ...]:
    """Distinct token positions, in ascending order."""
    return tuple(sorted(set(list_of(check_index, 0, CHARACTERS)(name, value))))


def check_new_tokens(name: str, value: Any) -> int:
    if not 1 <= check_index(name, value) <= ANSWER:
        raise Refused(f"{name} is the largest number of tokens to generate, 1 to {ANSWER}; found {value}")
    return value


def check_temperature(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (value == 0 or LEAST_TEMPERATURE <= value <= 10):
        expected = f"0 (always the likeliest token) or a number from {LEAST_TEMPERATURE} to 10"
        raise Refused(f"{name} is {expected}, found {shorten(value)}")
    return float(value)


def optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def choice_of(literal: Any) -> Check:
    """A check for one of the strings of a `Literal`."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in get_args(literal):
            raise Refused(f"{name} is one of {', '.join(get_args(literal))}; found {shorten(value)}")
        return value

    return check


def list_of(check_item: Check, least: int, most: int) -> Check:
    """A check for a list of `least` to `most` items, which becomes a tuple."""

    def check(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Refused(f"{name} is a list, found {json_type(value)}")
        if not least <= len(value) <= most:
            expected = str(least) if least == most else f"{least} to {most:,}"
            raise Refused(f"{name} is a list of {expected} entries, found {len(value):,}")
        return tuple(check_item(name, item) for item in value)

    return check


def methods_from(least: int) -> Check:
    """A check for a list of distinct methods; repeated ones are dropped."""
    check = list_of(check_method, least, 100)
    return lambda name, value: tuple(dict.fromkeys(check(name, value)))


def json_type(value: Any) -> str:
    """The JSON type of a value, for messages."""
    types = {bool: "true or false", dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return types.get(type(value), "a number")


def shorten(value: Any) -> str:
    """A value for messages, at most 60 characters of it."""
    text = json.dumps(value) if isinstance(value, str | int | float | None) else json_type(value)
    return text if len(text) <= 60 else f"{text[:60]} …"


CHECK_SPAN = optional(list_of(check_index, 2, 2))
CHECKS: dict[str, Check] = {  # by name of the field, the same in all requests
    "text": check_text,
    "second": optional(check_text),
    "target": optional(check_target),
    "foil": optional(check_target),
    "position": optional(check_index),
    "target_span": CHECK_SPAN,
    "foil_span": CHECK_SPAN,
    "messages": optional(check_messages),
    "documents": list_of(check_text, 0, PASSAGES),
    "answer": optional(check_answer),
    "part": CHECK_SPAN,
    "methods": methods_from(1),
    "heads": optional(list_of(list_of(check_strength, 1, 1000), 1, 1000)),
    "masked": optional(methods_from(0)),
    "layers": check_flag,
    "perturbation": optional(choice_of(Perturbed)),
    "format": choice_of(Format),
    "tokens": check_new_tokens,
    "temperature": check_temperature,
    "seed": check_index,
    "layer": check_index,
    "head": check_index,
    "gone": check_removed,
}
AnyRequest = TypeVar("AnyRequest", bound="PageRequest")


@dataclass(frozen=True)
class PageRequest:
    """A text or a conversation, and a target; None stands for the prediction.

    With an answer, the target is a part of it, or another token instead of one of its tokens.
    """

    text: str = ""
    second: str | None = None
    target: Target = None
    foil: Target = None
    position: int | None = None
    target_span: tuple[int, int] | None = None
    foil_span: tuple[int, int] | None = None
    messages: tuple[Message, ...] | None = None  # instead of a text, for chats
    documents: tuple[str, ...] = ()  # passages in the text or the messages
    answer: str | tuple[int, ...] | None = None  # of a language model: a text or token ids
    part: tuple[int, int] | None = None  # of the answer, as tokens [start, end)

    @property
    def question(self) -> "PageRequest":
        """The request without the fields of its subclass: requests about the same target have equal questions."""
        return PageRequest(*(getattr(self, field.name) for field in fields(PageRequest)))


@dataclass(frozen=True)
class MethodsRequest(PageRequest):
    """Methods, and head strengths for all methods that take a head mask, or for some of them."""

    methods: tuple[str, ...] = ()
    heads: Lit | None = None
    masked: tuple[str, ...] | None = None  # methods that `heads` is for; None: all


@dataclass(frozen=True)
class ExplainRequest(MethodsRequest):
    layers: bool = False


@dataclass(frozen=True)
class CurvesRequest(MethodsRequest):
    perturbation: Perturbed | None = None  # None: what suits the model


@dataclass(frozen=True)
class DownloadRequest(MethodsRequest):
    format: Format = "html"


@dataclass(frozen=True)
class WriteRequest(PageRequest):
    """Options of generating an answer."""

    tokens: int = 60  # the largest number to generate
    temperature: float = 0.0  # 0: always the likeliest token
    seed: int = 0


@dataclass(frozen=True)
class AttentionRequest(PageRequest):
    layer: int = 0
    head: int = 0


@dataclass(frozen=True)
class RemoveRequest(PageRequest):
    gone: tuple[int, ...] = ()  # positions of removed tokens
    perturbation: Perturbed | None = None


REQUIRED: dict[type[PageRequest], tuple[str, ...]] = {
    PageRequest: ("text",),
    WriteRequest: ("text",),
    MethodsRequest: ("text", "methods", "answer"),
    ExplainRequest: ("text", "methods"),
    CurvesRequest: ("text", "methods"),
    DownloadRequest: ("text", "methods", "format"),
    AttentionRequest: ("text", "layer", "head"),
    RemoveRequest: ("text", "gone"),
}


def parse(body: bytes, kind: type[AnyRequest]) -> AnyRequest:
    """A request of this class, checked as far as that is possible without the model."""
    values = read_object(body)
    names = [field.name for field in fields(kind)]
    if unknown := sorted(set(values) - set(names)):
        raise Refused(f"unknown {', '.join(map(shorten, unknown))}: expected some of {', '.join(names)}")
    replaced = {"text"} if "messages" in values else set()
    if missing := [name for name in REQUIRED[kind] if name not in values and name not in replaced]:
        raise Refused(f"missing {', '.join(missing)}: expected {', '.join(REQUIRED[kind])}")
    request = kind(**{name: CHECKS[name](name, value) for name, value in values.items()})
    for target, span in (("target", "target_span"), ("foil", "foil_span")):
        if getattr(request, target) is not None and getattr(request, span) is not None:
            raise Refused(f"{target} and {span} both name the {target}: give one of them")
    if request.messages is not None and (request.text or request.second is not None):
        raise Refused("text and messages both name the input: give one of them")
    if request.part is not None and request.answer is None:
        raise Refused("part is a part of the answer: give the answer, too")
    return request


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object strictly: without NaN, infinities and repeated keys, which parsers treat differently."""
    try:
        value = json.loads(body, parse_constant=refuse_constant, object_pairs_hook=refuse_repeated_keys)
    except RecursionError as error:
        raise Refused("the JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Refused("the body is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}") from error
    except Refused:
        raise
    except ValueError as error:  # an integer with thousands of digits
        raise Refused("the body holds a number that is too long") from error
    if not isinstance(value, dict):
        raise Refused(f"expected a JSON object, found {json_type(value)}")
    return value


def refuse_constant(name: str) -> None:
    raise Refused(f"{name} is not a number that JSON has")


def refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise Refused("a key occurs twice in an object")
    return values
