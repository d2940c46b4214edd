"""Documents and a prompt: where they stand in it, or how they are put before it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tokenlight.text.rows import Chat, parts
from tokenlight.text.sources import Document, find_documents

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
        raise ValueError(
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
