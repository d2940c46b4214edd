"""Requests of the page: JSON becomes frozen dataclasses, every field checked."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from tokenlight.common.errors import RefusedValue
from tokenlight.explain.answers import LEAST_TEMPERATURE
from tokenlight.methods import find_method

CHARACTERS = 30_000  # of one text, or of all messages together
INDEX = 2**31  # larger ones are nobody's label, token or position
LEAST_STRENGTH = 1e-6  # of a head; below, it is dark
ANSWER = 256  # tokens of an answer that is explained, or written
MESSAGES = PASSAGES = 50
Target = str | int | None
Message = tuple[str, str]  # role, content
Lit = tuple[tuple[float, ...], ...]  # [layer][head]
Perturbed = Literal["mask", "pad", "delete"]
Format = Literal["html", "latex", "json"]
Role = Literal["system", "user", "assistant"]


class Refused(RefusedValue):
    """The request cannot be answered as it is; the message says what to change."""


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
        yield float(one) if one >= LEAST_STRENGTH else 0.0  # smaller ones are none: no precision divides by them


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


def some_messages(name: str, value: Any) -> tuple[Message, ...] | None:
    if value is None:
        return None
    found = tuple(some_message(name, one) for one in listed(name, value, 1, MESSAGES))
    if (total := sum(len(content) for _, content in found)) > CHARACTERS:
        raise Refused(f"{name} have {total:,} characters, at most {CHARACTERS:,} are allowed: shorten them")
    return found


def some_message(name: str, value: Any) -> Message:
    if not isinstance(value, dict) or set(value) != {"role", "content"}:
        raise Refused(f"{name} are objects with role and content, nothing else")
    return one_of("role", value["role"], get_args(Role)), some_text("content", value["content"])


def some_documents(name: str, value: Any) -> tuple[str, ...]:
    return tuple(some_text(name, one) for one in listed(name, value, 0, PASSAGES))


def some_answer(name: str, value: Any) -> str | tuple[int, ...] | None:
    """A text, or token ids."""
    if not isinstance(value, list):
        return maybe_text(name, value)
    return tuple(whole(name, one) for one in listed(name, value, 1, ANSWER))


def some_tokens(name: str, value: Any) -> int:
    if not 1 <= whole(name, value) <= ANSWER:
        raise Refused(f"{name} is how many may be written, 1 to {ANSWER}; found {value}")
    return value


def some_temperature(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (value == 0 or LEAST_TEMPERATURE <= value <= 10):
        raise Refused(
            f"{name} is 0 (always the likeliest token) or a number from {LEAST_TEMPERATURE} to 10, found {short(value)}"
        )
    return float(value)


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
    "messages": some_messages,
    "documents": some_documents,
    "answer": some_answer,
    "part": maybe_span,
    "tokens": some_tokens,
    "temperature": some_temperature,
    "seed": whole,
}


AnyRequest = TypeVar("AnyRequest", bound="PageRequest")


@dataclass(frozen=True)
class PageRequest:
    """A text or a conversation, and what is asked about it; None stands for what the model predicts.

    With an answer, the question is about a part of it, or about another token in the place of one of its tokens.
    """

    text: str = ""
    second: str | None = None
    target: Target = None
    foil: Target = None
    position: int | None = None
    target_span: tuple[int, int] | None = None
    foil_span: tuple[int, int] | None = None
    messages: tuple[Message, ...] | None = None  # instead of a text, for models that chat
    documents: tuple[str, ...] = ()  # passages that stand in the text or in the messages
    answer: str | tuple[int, ...] | None = None  # of a language model; as text or as token ids
    part: tuple[int, int] | None = None  # the first token of the answer that is meant, and the one behind the last

    @property
    def question(self) -> "PageRequest":
        """Without what a request adds to it: requests about the same are equal here."""
        return PageRequest(*(getattr(self, field.name) for field in fields(PageRequest)))


@dataclass(frozen=True)
class MethodsRequest(PageRequest):
    """Methods, and the heads that are lit for those that take a mask, or for some of them."""

    methods: tuple[str, ...] = ()
    heads: Lit | None = None
    masked: tuple[str, ...] | None = None  # whom the heads are for; None: all that take a mask


@dataclass(frozen=True)
class ExplainRequest(MethodsRequest):
    layers: bool = False


@dataclass(frozen=True)
class CurvesRequest(MethodsRequest):
    perturbation: Perturbed | None = None  # None: as suits the model


@dataclass(frozen=True)
class DownloadRequest(MethodsRequest):
    format: Format = "html"


@dataclass(frozen=True)
class WriteRequest(PageRequest):
    """How a language model is to go on."""

    tokens: int = 60  # the most that it writes
    temperature: float = 0.0  # 0: always the likeliest token
    seed: int = 0


@dataclass(frozen=True)
class AttentionRequest(PageRequest):
    layer: int = 0
    head: int = 0


@dataclass(frozen=True)
class RemoveRequest(PageRequest):
    gone: tuple[int, ...] = ()
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
    """A request of this kind, checked as far as that is possible without the model."""
    found = read_object(body)
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(found) - set(known)):
        raise Refused(f"unknown {', '.join(map(short, unknown))}: expected some of {', '.join(known)}")
    if missing := [
        name for name in REQUIRED[kind] if name not in found and not (name == "text" and "messages" in found)
    ]:
        raise Refused(f"missing {', '.join(missing)}: expected {', '.join(REQUIRED[kind])}")
    asked = kind(**{name: CHECKS[name](name, value) for name, value in found.items()})
    for target, span in (("target", "target_span"), ("foil", "foil_span")):
        if getattr(asked, target) is not None and getattr(asked, span) is not None:
            raise Refused(f"{target} and {span} both name the {target}: give one of them")
    if asked.messages is not None and (asked.text or asked.second is not None):
        raise Refused("text and messages both say what the model reads: give one of them")
    if asked.part is not None and asked.answer is None:
        raise Refused("part is a part of the answer: give the answer, too")
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
        raise Refused("a key occurs twice in an object")
    return found
