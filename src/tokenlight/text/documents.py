"""Documents in a prompt: stretches that an answer may rest on, found in the prompt or put before it."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise, repeat
from typing import Any, Literal, get_args

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.text import segmentation
from tokenlight.text.segmentation import Span, occurrences
from tokenlight.text.tokenized_text import Chat, Document, Text, TokenizedText, is_whole, parts

Division = Literal["sentences", "paragraphs", "turns"]
DIVISIONS = get_args(Division)
# Texts that stand in the prompt, with names or without; spans in it, with the number of the part before them where
# there are several; or a way to divide each of its parts.
Documents = Division | Mapping[str, str] | Sequence[str] | Sequence[tuple[int, ...]] | Callable[[str], Sequence[Span]]


def find_documents(text: Text, documents: Documents | None) -> tuple[Document, ...]:
    """What is named as sources of this text, in its order."""
    if documents is None:
        return ()
    if isinstance(documents, str):
        found = divide(text, documents)
    elif callable(documents):
        found = divide_by(text, documents, "part")
    elif isinstance(documents, bytes | Set) or not isinstance(documents, Iterable):
        raise RefusedType(
            "documents are a list of texts or spans, a dict of texts by their names, or a way to divide the prompt; "
            f"found {type(documents).__name__}"
        )
    else:
        named = documents.items() if isinstance(documents, Mapping) else number("document", documents)
        found = [locate(text, name, one) for name, one in named]
    if not found:
        raise RefusedValue("expected sources, found none: name one or more, or leave documents= out")
    ordered = sorted(found, key=lambda source: (source.segment, source.span))
    for one, next_one in pairwise(ordered):
        if one.segment == next_one.segment and next_one.span[0] < one.span[1]:
            raise RefusedValue(f"the sources {one.name!r} and {next_one.name!r} overlap")
    return tuple(ordered)


def number(name: str, some: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(f"{name} {i}", one) for i, one in enumerate(some, 1)]


def divide(text: Text, way: str) -> list[Document]:
    if way not in DIVISIONS:
        raise RefusedValue(
            f"a prompt is divided by {', '.join(DIVISIONS)}, or name the documents in a list; found {way!r}"
        )
    if way == "turns":
        roles = text.roles if isinstance(text, Chat) else ["text"] * len(parts(text))
        whole = [(0, len(part)) for part in parts(text)]
        return [Document(f"{role} {i + 1}", i, span) for i, (role, span) in enumerate(zip(roles, whole, strict=True))]
    return divide_by(text, getattr(segmentation, way), way.removesuffix("s"))


def divide_by(text: Text, cut: Callable[[str], Sequence[Span]], name: str) -> list[Document]:
    spans = [(segment, *span) for segment, part in enumerate(parts(text)) for span in spans_of(cut, part)]
    return [locate(text, one, span) for one, span in number(name, spans)]


def spans_of(cut: Callable[[str], Sequence[Span]], part: str) -> list[Span]:
    """What a function makes of a text; `locate` looks whether they are spans in it."""
    found = cut(part)
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise RefusedType(f"a function that divides a text returns spans (start, end); found {type(found).__name__}")
    spans = list(found)
    if wrong := [span for span in spans if isinstance(span, str | bytes) or not isinstance(span, Iterable)]:
        raise RefusedType(f"a function that divides a text returns spans (start, end); found {wrong[0]!r} among them")
    return spans


def locate(text: Text, name: str, document: str | Sequence[int]) -> Document:
    """One source, by the text that it has, or by its span."""
    if not isinstance(name, str):
        raise RefusedType(f"a document is named by a text; found {type(name).__name__}: {name!r}")
    texts = parts(text)
    if isinstance(document, str):
        wanted = document.strip()
        places = [(segment, at) for segment, part in enumerate(texts) for at in occurrences(part, wanted)]
        if len(places) != 1:
            raise RefusedValue(f"{name}, {document[:60]!r}, occurs {len(places)} times in the prompt, not once")
        segment, at = places[0]
        return Document(name, segment, (at, at + len(wanted)))
    if not isinstance(document, Iterable) or len(span := tuple(document)) not in (2, 3) or not all(map(is_whole, span)):
        raise RefusedType(
            f"{name}: expected a text that stands in the prompt, or a span (start, end) or (part, start, end) of whole "
            f"numbers; found {document!r}"
        )
    segment, start, end = map(int, (0, *span)[-3:])
    if not 0 <= segment < len(texts) or not 0 <= start < end <= len(texts[segment]):
        raise RefusedValue(f"{name}: {tuple(document)} is not a span of characters in the prompt")
    return Document(name, segment, (start, end))


def documents_for(texts: Sequence[Text], single: bool, documents: Any) -> list[tuple[Document, ...]]:
    """For each text its sources. For a list of texts, documents are a list with those of each, or one way for all."""
    each = list(repeat(documents, len(texts)) if single or is_way(documents) else documents)
    if len(each) != len(texts):
        raise RefusedValue(f"documents for {len(each)} texts, but there are {len(texts)} texts")
    return [find_documents(text, some) for text, some in zip(texts, each, strict=True)]


def attach_documents(
    tokenized_texts: Sequence[TokenizedText], documents: Sequence[tuple[Document, ...]]
) -> list[TokenizedText]:
    return [
        replace(tokenized_text, documents=some) for tokenized_text, some in zip(tokenized_texts, documents, strict=True)
    ]


def is_way(documents: Any) -> bool:
    """One way to divide any text, or none."""
    return documents is None or isinstance(documents, str) or callable(documents)


def plain_documents(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [{**vars(source), "span": list(source.span)} for source in documents]


def documents_from_plain(plain: Sequence[Mapping[str, Any]]) -> tuple[Document, ...]:
    """From JSON."""
    return tuple(Document(one["name"], one["segment"], (one["span"][0], one["span"][1])) for one in plain)


Prompt = str | Chat
USER = "user"  # the role of those who ask
BREAK = "\n\n"


def with_documents(text: Prompt, documents: Mapping[str, str] | Sequence[str]) -> tuple[Prompt, tuple[Document, ...]]:
    """The prompt with these documents, and where each of them stands.

    A prompt that holds them stays as it is. If it holds none of them, each becomes a paragraph before it; in a chat
    they stand before the last message of the user.
    """
    named = documents if isinstance(documents, Mapping) else {f"document {i}": d for i, d in enumerate(documents, 1)}
    if not named:
        return text, ()
    missing = [name for name, one in named.items() if not any(one.strip() in part for part in parts(text))]
    if not missing:
        return text, find_documents(text, named)
    if len(missing) < len(named):
        raise RefusedValue(
            f"{missing[0]}, {named[missing[0]][:60]!r}, does not occur in the prompt, but other documents do: "
            "put all of them into it, or none"
        )
    return put_before(text, named)


def put_before(text: Prompt, documents: Mapping[str, str]) -> tuple[Prompt, tuple[Document, ...]]:
    segment, placed, begun = asking(text) if isinstance(text, Chat) else 0, list[Document](), ""
    for name, document in documents.items():
        words = document.strip()
        placed.append(Document(name, segment, (len(begun), len(begun) + len(words))))
        begun += words + BREAK
    if isinstance(text, Chat):
        contents = [begun + one if i == segment else one for i, one in enumerate(text.contents)]
        return replace(text, contents=tuple(contents)), tuple(placed)
    return begun + text, tuple(placed)


def asking(chat: Chat) -> int:
    """The message that documents belong to."""
    users = [i for i, role in enumerate(chat.roles) if role == USER]
    return users[-1] if users else len(chat.roles) - 1


def named_spans(documents: Sequence[Document]) -> dict[str, tuple[int, int, int]]:
    """As `documents=` takes them."""
    return {document.name: (document.segment, *document.span) for document in documents}
