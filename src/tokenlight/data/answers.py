"""Prompts with the answers of a language model: which columns hold them, and the values of a row."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenlight.data.columns import one_of

# Common names; upper and lower case are the same.
PROMPTS = ("prompt", "messages")
ANSWERS = ("answer", "response", "completion")
DOCUMENTS = ("documents", "passages", "contexts")


def answer_columns(found: Sequence[str], text: str | None, answer: str | None, where: str) -> tuple[str, str] | None:
    """Those of the prompt and of the answer: as the caller named them, or common names. None: there are no answers."""
    for name in (text, answer):
        if name is not None and name not in found:
            raise ValueError(f"{where} has no column {name!r}; it has {', '.join(found)}")
    prompt = text if text is not None else one_of(PROMPTS, found, "text", where)
    if answer is None and text is None and prompt is not None:
        answer = one_of(ANSWERS, found, "answer", where)  # beside a text of another name, it may be something else
    if answer is None:
        return None
    if prompt is None:
        known = ", ".join(found)
        raise ValueError(f"{where} has no column that is known to hold a prompt; it has {known}. Name it with text=")
    return prompt, answer


def documents_of(values: Mapping[str, Any], column: str | None, where: str) -> tuple[tuple[str, str], ...]:
    """(name, text) of each document of a row, where it has any: in the named column, or in one with a common name."""
    name = column if column is not None else one_of(DOCUMENTS, list(values), "documents", where)
    try:
        return () if name is None else read_documents(values.get(name))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def read_documents(value: Any) -> tuple[tuple[str, str], ...]:
    """(name, text) of each: from a list of texts, or an object with their names. Nothing is no document."""
    if value is None:
        return ()
    if isinstance(value, Mapping):  # in a column of Parquet, every row has all names
        named = [(str(name), text) for name, text in value.items() if text is not None]
    elif isinstance(value, list | tuple):
        named = [(f"document {i}", text) for i, text in enumerate(value, 1)]
    else:
        raise ValueError(f"expected a list of texts or an object with names and texts, found {value!r}")
    for name, text in named:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name}: expected a text, found {text!r}")
    return tuple(named)
