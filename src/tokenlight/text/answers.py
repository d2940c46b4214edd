"""Tokens that follow a text: what a language model has written, or what is put into its mouth."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tokenlight.text.chats import ASSISTANT
from tokenlight.text.rows import Chat, Row, Text, parts, trim

UNFINISHED = "\ufffd"  # how decoders write the first bytes of a character whose other bytes are still to come


def follow(row: Row, ids: Sequence[int], tokenizer: Any) -> Row:
    """A text and what follows it, as a pair, or as the next message of a chat; its spans point into what is decoded."""
    roles = set(tokenizer.all_special_ids)
    text, spans = decode(ids, tokenizer)
    types = row.token_type_ids
    return replace(
        row,
        text=followed(row.text, text),
        input_ids=[*row.input_ids, *ids],
        token_type_ids=None if types is None else [*types, *types[-1:] * len(ids)],
        tokens=[*row.tokens, *tokenizer.convert_ids_to_tokens(list(ids))],
        special=[*row.special, *(i in roles for i in ids)],
        segments=[*row.segments, *[len(parts(row.text))] * len(ids)],
        spans=[*row.spans, *spans],
    )


def followed(text: Text, answer: str) -> Text:
    if isinstance(text, Chat):
        return Chat((*text.roles, ASSISTANT), (*text.contents, answer))
    if isinstance(text, tuple):
        raise ValueError("a language model continues one text or a chat; found a pair")
    return text, answer


def decode(ids: Sequence[int], tokenizer: Any) -> tuple[str, list[tuple[int, int]]]:
    """The text of token ids, and each token's place in it; that of bytes is the character that they are a part of.

    Tokens with a role, such as the end of an answer, have no text.
    """
    text, ends, begun = "", list[int](), list[bool]()
    for count in range(1, len(ids) + 1):
        text = tokenizer.decode(list(ids[:count]), skip_special_tokens=True)
        whole = len(text.rstrip(UNFINISHED)) if count < len(ids) else len(text)
        begun.append(whole < len(text))
        ends.append(max(whole, ends[-1] if ends else 0))
    starts = [0, *ends[:-1]]
    reach = [min(end + part, len(text)) for end, part in zip(ends, begun, strict=True)]
    return text, [trim(text, start, end) for start, end in zip(starts, reach, strict=True)]


def refuse_too_long(row: Row, ids: Sequence[int], max_length: int | None) -> None:
    """The model reads the whole text and all of the answer, or nothing is explained."""
    total = len(row) + row.truncated + len(ids)
    if max_length is not None and total > max_length:
        raise ValueError(f"prompt and answer have {total} tokens, the model reads {max_length}: shorten the prompt")
