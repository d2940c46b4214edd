"""What the browser may ask: JSON becomes frozen dataclasses, or is refused with a sentence that says why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from tokenlight.serve.checks import CHECKS, Format, Lit, Message, Perturbed, Refused, Target, kind_of, short

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
