"""Documents of a prompt: named parts that an answer may be based on, located in the prompt or inserted before it."""

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
# Texts that occur in the prompt, with or without names; spans in it, preceded by the index of the text if there are
# several (a pair, a chat); or how to divide each text of the prompt.
Documents = (
    Division
    | Mapping[str, str]
    | Mapping[str, tuple[int, int, int]]
    | Sequence[str]
    | Sequence[tuple[int, ...]]
    | Callable[[str], Sequence[Span]]
)


def find_documents(text: Text, documents: Documents | None) -> tuple[Document, ...]:
    """The documents of a text, in the order of the text."""
    if documents is None:
        return ()
    if isinstance(documents, str):
        found = divide(text, documents)
    elif callable(documents):
        found = divide_by(text, documents, "part")
    elif isinstance(documents, bytes | Set) or not isinstance(documents, Iterable):
        raise RefusedType(
            "documents must be a list of texts or spans, a dict {name: text}, or a way to divide the prompt; "
            f"found {type(documents).__name__}"
        )
    else:
        named = documents.items() if isinstance(documents, Mapping) else number_names("document", documents)
        found = [locate(text, name, document) for name, document in named]
    if not found:
        raise RefusedValue("expected documents, found none: name one or more, or leave documents= out")
    ordered = sorted(found, key=lambda document: (document.segment, document.span))
    for document, following in pairwise(ordered):
        if document.segment == following.segment and following.span[0] < document.span[1]:
            raise RefusedValue(f"the documents {document.name!r} and {following.name!r} overlap")
    return tuple(ordered)


def number_names(name: str, items: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(f"{name} {i}", item) for i, item in enumerate(items, 1)]


def divide(text: Text, way: str) -> list[Document]:
    """The documents that a named division of the prompt gives."""
    if way not in DIVISIONS:
        raise RefusedValue(f"expected a division ({', '.join(DIVISIONS)}) or a list of documents; found {way!r}")
    if way == "turns":
        roles = text.roles if isinstance(text, Chat) else ["text"] * len(parts(text))
        full_spans = [(0, len(part)) for part in parts(text)]
        return [
            Document(f"{role} {i + 1}", i, span) for i, (role, span) in enumerate(zip(roles, full_spans, strict=True))
        ]
    return divide_by(text, getattr(segmentation, way), way.removesuffix("s"))


def divide_by(text: Text, cut: Callable[[str], Sequence[Span]], name: str) -> list[Document]:
    spans = [(segment, *span) for segment, part in enumerate(parts(text)) for span in spans_of(cut, part)]
    return [locate(text, numbered_name, span) for numbered_name, span in number_names(name, spans)]


def spans_of(cut: Callable[[str], Sequence[Span]], text: str) -> list[Span]:
    """The spans that a function returns for a text; `locate` checks that they are inside the text."""
    result = cut(text)
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        raise RefusedType(
            f"a function that divides a text must return spans (start, end); found {type(result).__name__}"
        )
    spans = list(result)
    if wrong := [span for span in spans if isinstance(span, str | bytes) or not isinstance(span, Iterable)]:
        raise RefusedType(
            f"a function that divides a text must return spans (start, end); found {wrong[0]!r} among them"
        )
    return spans


def locate(text: Text, name: str, document: str | Sequence[int]) -> Document:
    """A document given by its text or by its span."""
    if not isinstance(name, str):
        raise RefusedType(f"the name of a document must be a text; found {type(name).__name__}: {name!r}")
    texts = parts(text)
    if isinstance(document, str):
        phrase = document.strip()
        starts = [(segment, at) for segment, part in enumerate(texts) for at in occurrences(part, phrase)]
        if len(starts) != 1:
            raise RefusedValue(f"{name}, {document[:60]!r}, occurs {len(starts)} times in the prompt, not once")
        segment, at = starts[0]
        return Document(name, segment, (at, at + len(phrase)))
    if not isinstance(document, Iterable) or len(span := tuple(document)) not in (2, 3) or not all(map(is_whole, span)):
        raise RefusedType(
            f"{name}: expected a text that occurs in the prompt, or a span (start, end) or (part, start, end) of whole "
            f"numbers; found {document!r}"
        )
    segment, start, end = map(int, (0, *span)[-3:])
    if not 0 <= segment < len(texts) or not 0 <= start < end <= len(texts[segment]):
        raise RefusedValue(f"{name}: {tuple(document)} is not a span of characters in the prompt")
    return Document(name, segment, (start, end))


def documents_for(texts: Sequence[Text], single: bool, documents: Any) -> list[tuple[Document, ...]]:
    """The documents of each text. For a list of texts, `documents` has an entry per text, or is a division."""
    each = list(repeat(documents, len(texts)) if single or is_way(documents) else documents)
    if len(each) != len(texts):
        raise RefusedValue(f"documents for {len(each)} texts, but there are {len(texts)} texts")
    return [find_documents(text, text_documents) for text, text_documents in zip(texts, each, strict=True)]


def attach_documents(
    tokenized_texts: Sequence[TokenizedText], documents: Sequence[tuple[Document, ...]]
) -> list[TokenizedText]:
    """The tokenized texts with their documents."""
    return [
        replace(tokenized_text, documents=text_documents)
        for tokenized_text, text_documents in zip(tokenized_texts, documents, strict=True)
    ]


def is_way(documents: Any) -> bool:
    """Whether documents are given as one way to divide any text, or as None."""
    return documents is None or isinstance(documents, str) or callable(documents)


def plain_documents(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """Documents as JSON values."""
    return [{**vars(document), "span": list(document.span)} for document in documents]


def documents_from_plain(plain: Sequence[Mapping[str, Any]]) -> tuple[Document, ...]:
    """The inverse of `plain_documents`."""
    return tuple(
        Document(document["name"], document["segment"], (document["span"][0], document["span"][1]))
        for document in plain
    )


Prompt = str | Chat
USER = "user"  # the role of the user in a chat
BREAK = "\n\n"


def with_documents(text: Prompt, documents: Mapping[str, str] | Sequence[str]) -> tuple[Prompt, tuple[Document, ...]]:
    """The prompt with these documents, and their locations.

    A prompt that contains all of them is unchanged. If it contains none, each becomes a paragraph before it, in a chat
    before the last message of the user.
    """
    named = documents if isinstance(documents, Mapping) else {f"document {i}": d for i, d in enumerate(documents, 1)}
    if not named:
        return text, ()
    missing = [
        name for name, document in named.items() if not any(document.strip() in segment for segment in parts(text))
    ]
    if not missing:
        return text, find_documents(text, named)
    if len(missing) < len(named):
        raise RefusedValue(
            f"{missing[0]}, {named[missing[0]][:60]!r}, does not occur in the prompt, but other documents do: "
            "put all of them into it, or none"
        )
    return put_before(text, named)


def put_before(text: Prompt, documents: Mapping[str, str]) -> tuple[Prompt, tuple[Document, ...]]:
    """The prompt with the documents as paragraphs before it, and their locations."""
    segment, located, before = find_question(text) if isinstance(text, Chat) else 0, list[Document](), ""
    for name, document in documents.items():
        stripped = document.strip()
        located.append(Document(name, segment, (len(before), len(before) + len(stripped))))
        before += stripped + BREAK
    if isinstance(text, Chat):
        contents = [before + content if i == segment else content for i, content in enumerate(text.contents)]
        return replace(text, contents=tuple(contents)), tuple(located)
    return before + text, tuple(located)


def find_question(chat: Chat) -> int:
    """The index of the last message of the user, or else of the last message."""
    users = [i for i, role in enumerate(chat.roles) if role == USER]
    return users[-1] if users else len(chat.roles) - 1


def named_spans(documents: Sequence[Document]) -> dict[str, tuple[int, int, int]]:
    """Located documents in the form that `documents=` accepts: {name: (segment, start, end)}."""
    return {document.name: (document.segment, *document.span) for document in documents}
