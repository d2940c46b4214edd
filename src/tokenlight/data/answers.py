"""Prompts with the answers of a language model: which columns hold them, and the values of a row."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenlight.data.columns import one_of
from tokenlight.text.chats import ASSISTANT
from tokenlight.text.documents import Prompt
from tokenlight.text.rows import Chat

# Common names; upper and lower case are the same.
PROMPT, MESSAGES = "prompt", "messages"
ANSWERS = ("answer", "response", "completion")
DOCUMENTS = ("documents", "passages", "contexts")
EVIDENCE = "evidence"


def answer_columns(
    found: Sequence[str], text: str | None, answer: str | None, where: str
) -> tuple[str, str | None] | None:
    """Those of the prompt and of the answer: as the caller named them, or common names. None: there are no answers.

    Messages may end with the answer, and need no other column.
    """
    for name in (text, answer):
        if name is not None and name not in found:
            raise ValueError(f"{where} has no column {name!r}; it has {', '.join(found)}")
    if text is not None:  # beside a text of any name, a column may be called answer and be something else
        return None if answer is None else (text, answer)
    prompt = one_of((PROMPT, MESSAGES), found, "text", where)
    if answer is None and prompt is not None:
        answer = one_of(ANSWERS, found, "answer", where)
    if prompt is None and answer is not None:
        known = ", ".join(found)
        raise ValueError(f"{where} has no column that is known to hold a prompt; it has {known}. Name it with text=")
    if prompt is None or (answer is None and prompt.lower() == PROMPT):
        return None
    return prompt, answer


def documents_of(values: Mapping[str, Any], column: str | None, where: str) -> dict[str, str]:
    """The documents of a row, where it has any: in the named column, or in one with a common name."""
    name = column if column is not None else one_of(DOCUMENTS, list(values), "documents", where)
    try:
        return {} if name is None else read_documents(values.get(name))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def split_reply(text: Prompt) -> tuple[Prompt, str | None]:
    """A chat that ends with a message of the assistant, as what came before and this answer; others as they are."""
    if not isinstance(text, Chat) or len(text.roles) < 2 or text.roles[-1] != ASSISTANT:
        return text, None
    return Chat(text.roles[:-1], text.contents[:-1]), text.contents[-1]


def read_documents(value: Any) -> dict[str, str]:
    """By name, from a list of texts or an object with names and texts. Nothing is no document."""
    if value is None:
        return {}
    if isinstance(value, Mapping):  # in a column of Parquet, every row has all names
        named = {str(name): text for name, text in value.items() if text is not None}
    elif isinstance(value, list | tuple):
        named = {f"document {i}": text for i, text in enumerate(value, 1)}
    else:
        raise ValueError(f"expected a list of texts or an object with names and texts, found {value!r}")
    for name, text in named.items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name}: expected a text, found {text!r}")
    return named


def read_evidence(value: Any) -> dict[str, str]:
    """By name, from a text or a list of texts that stand in the prompt. Nothing is no evidence."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(
            f"{EVIDENCE}: expected a text that occurs in the prompt, or a list of such texts; found {value!r}"
        )
    return {f"{EVIDENCE} {i}": text for i, text in enumerate(texts, 1)}
