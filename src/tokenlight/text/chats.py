"""Chats: messages in the form that a tokenizer's own chat template gives them.

What the template adds counts as added tokens, like [CLS]; spans point into the messages.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tokenlight.text.rows import Chat, Text, TokenizedText, trim

Messages = list[dict[str, str]]  # each with "role" and "content"
Prompt = str | Chat | Messages  # what a language model answers
Prompts = list[str] | list[Chat] | list[Messages] | list[Prompt]
ASSISTANT = "assistant"  # the role of what the model itself has written
MARK = re.compile("\ue000(\\d+)\ue001")  # stands for a message while the template is looked at


@dataclass(frozen=True)
class Place:
    """Where a message stands in what the template writes; many templates leave out the blanks at its beginning."""

    start: int
    end: int
    left_out: int


def texts_of(given: Any) -> tuple[list[Text], bool]:
    """What somebody gave as text or texts, as a list, and whether it was a single one. A list of messages is one."""
    if isinstance(given, str | tuple | Chat):
        return [given], True
    if isinstance(given, bytes | Mapping | Set) or not hasattr(given, "__iter__"):
        raise TypeError(f"expected a text, a pair as a tuple, a chat, or a list of these; found {type(given).__name__}")
    listed = list(given)
    if not listed:
        raise ValueError("expected at least one text, found an empty list")
    if isinstance(listed[0], Mapping):
        return [read_chat(listed)], True
    return [read_chat(one) if is_chat(one) else one for one in listed], False


def is_chat(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and isinstance(given[0], Mapping)


def read_chat(messages: Sequence[Any]) -> Chat:
    """From a list of {"role": ..., "content": ...}."""
    for i, message in enumerate(messages):
        found = sorted(message) if isinstance(message, Mapping) else type(message).__name__
        if found != ["content", "role"] or not all(isinstance(message[key], str) for key in found):
            raise ValueError(f'message {i}: expected {{"role": text, "content": text}}, found {message!r}')
    return Chat(tuple(message["role"] for message in messages), tuple(message["content"] for message in messages))


def plain_text(text: Text) -> Any:
    """As JSON has it: a string, a list of two, or a list of messages."""
    if isinstance(text, Chat):
        return messages_of(text)
    return list(text) if isinstance(text, tuple) else text


def read_text(plain: Any) -> Text:
    """The inverse of `plain_text`."""
    if is_chat(plain):
        return read_chat(plain)
    return tuple(plain) if isinstance(plain, list) else plain


def messages_of(chat: Chat) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in zip(chat.roles, chat.contents, strict=True)]


def chat_row(tokenizer: Any, chat: Chat, replies: bool) -> TokenizedText:
    """A chat as the tokenizer's template writes it."""
    text, places = place_messages(tokenizer, chat, replies)
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, truncation=False, verbose=False)
    ids, roles = list(encoded["input_ids"]), set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    found = [message_at(text, places, span) for span in encoded["offset_mapping"]]
    spans = [
        (0, 0) if number is None else inside(text, places[number], span)
        for number, span in zip(found, encoded["offset_mapping"], strict=True)
    ]
    types = encoded.get("token_type_ids")
    return TokenizedText(
        text=chat,
        input_ids=ids,
        token_type_ids=None if types is None else list(types),
        tokens=tokenizer.convert_ids_to_tokens(ids),
        special=[number is None or token in roles for number, token in zip(found, ids, strict=True)],
        segments=found,
        spans=spans,
        truncated=0,
    )


def message_at(text: str, places: Sequence[Place], span: tuple[int, int]) -> int | None:
    """The message that has characters of this token; of several the first that has more of it than blanks."""
    touched = {
        i: text[max(span[0], one.start) : min(span[1], one.end)]
        for i, one in enumerate(places)
        if span[0] < one.end and span[1] > one.start
    }
    return next((i for i, piece in touched.items() if not piece.isspace()), next(iter(touched), None))


def inside(text: str, place: Place, span: tuple[int, int]) -> tuple[int, int]:
    """A token's span in its message."""
    start, end = trim(text, max(span[0], place.start), min(span[1], place.end))
    return start - place.start + place.left_out, end - place.start + place.left_out


def place_messages(tokenizer: Any, chat: Chat, replies: bool) -> tuple[str, list[Place]]:
    """The chat as one text, and where in it the messages stand."""
    marks = Chat(chat.roles, tuple(f"\ue000{i}\ue001" for i in range(len(chat.contents))))
    text, frame = render(tokenizer, chat, replies), MARK.split(render(tokenizer, marks, replies))
    if frame[1::2] != [str(i) for i in range(len(chat.contents))]:
        raise ValueError(
            "the tokenizer's chat template does not write every message once, in order: "
            f"of {len(chat.contents)} messages, it writes {', '.join(frame[1::2]) or 'none'}, counted from 0"
        )
    places, at = list[Place](), len(frame[0])
    for content, behind in zip(chat.contents, frame[2::2], strict=True):
        written = next((one for one in (content, content.strip()) if text.startswith(one + behind, at)), None)
        if written is None:
            raise ValueError(
                f"the tokenizer's chat template changes message {len(places)}, so scores cannot be placed in it: "
                "give the prompt as one text, from tokenizer.apply_chat_template(messages, tokenize=False)"
            )
        places.append(Place(at, at + len(written), content.index(written)))
        at += len(written) + len(behind)
    return text, places


def render(tokenizer: Any, chat: Chat, replies: bool) -> str:
    """By transformers' own code. A last message of the assistant is one that goes on."""
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "this tokenizer has no chat template: give the prompt as one text, or set tokenizer.chat_template"
        )
    goes_on = replies and chat.roles[-1] == ASSISTANT
    settings = {"add_generation_prompt": replies and not goes_on, "continue_final_message": goes_on}
    try:
        return tokenizer.apply_chat_template(messages_of(chat), tokenize=False, **settings)
    except Exception as error:  # templates raise what they like
        raise ValueError(f"the tokenizer's chat template refuses this chat: {error}") from error
