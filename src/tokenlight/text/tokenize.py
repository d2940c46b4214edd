"""Tokenization of texts, chats, and answers that continue a text.

What the template adds counts as added tokens, like [CLS]; spans point into the messages.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.text.tokenized_text import Chat, Cut, Text, TokenizedText, check_text, parts, shorten, trim

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
        raise RefusedType(
            f"expected a text, a pair as a tuple, a chat, or a list of these; found {type(given).__name__}"
        )
    refuse_table(given)
    listed = list(given)
    if not listed:
        raise RefusedValue("expected at least one text, found an empty list")
    if isinstance(listed[0], Mapping):
        return [read_chat(listed)], True
    return [read_chat(one) if is_chat(one) else one for one in listed], False


def refuse_table(given: Any) -> None:
    """Refuse tables of pandas, polars and others: to iterate over one gives its columns, or their names."""
    if hasattr(type(given), "columns"):
        raise RefusedType(
            f"expected texts, found a {type(given).__name__}: give the column with the texts, such as "
            'list(table["text"]), or, where rows are read, a list of rows, such as table.to_dict("records")'
        )


def is_chat(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and isinstance(given[0], Mapping)


def read_chat(messages: Sequence[Any]) -> Chat:
    """From a list of {"role": ..., "content": ...}."""
    for i, message in enumerate(messages):
        found = sorted(message) if isinstance(message, Mapping) else type(message).__name__
        if found != ["content", "role"] or not all(isinstance(message[key], str) for key in found):
            raise RefusedValue(f'message {i}: expected {{"role": text, "content": text}}, found {message!r}')
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
        raise RefusedValue(
            "the tokenizer's chat template does not write every message once, in order: "
            f"of {len(chat.contents)} messages, it writes {', '.join(frame[1::2]) or 'none'}, counted from 0"
        )
    places, at = list[Place](), len(frame[0])
    for content, behind in zip(chat.contents, frame[2::2], strict=True):
        written = next((one for one in (content, content.strip()) if text.startswith(one + behind, at)), None)
        if written is None:
            raise RefusedValue(
                f"the tokenizer's chat template changes message {len(places)}, so scores cannot be placed in it: "
                "give the prompt as one text, from tokenizer.apply_chat_template(messages, tokenize=False)"
            )
        places.append(Place(at, at + len(written), content.index(written)))
        at += len(written) + len(behind)
    return text, places


def render(tokenizer: Any, chat: Chat, replies: bool) -> str:
    """By transformers' own code. A last message of the assistant is one that goes on."""
    if not getattr(tokenizer, "chat_template", None):
        raise RefusedValue(
            "this tokenizer has no chat template: give the prompt as one text, or set tokenizer.chat_template"
        )
    goes_on = replies and chat.roles[-1] == ASSISTANT
    settings = {"add_generation_prompt": replies and not goes_on, "continue_final_message": goes_on}
    try:
        return tokenizer.apply_chat_template(messages_of(chat), tokenize=False, **settings)
    except Exception as error:  # templates raise what they like
        raise RefusedValue(f"the tokenizer's chat template refuses this chat: {error}") from error


def encode(
    tokenizer: Any, texts: Sequence[Text], max_length: int | None, cut: Cut = "longest_first", replies: bool = False
) -> list[TokenizedText]:
    """Tokenize texts, pairs or chats; `cut` says which part of a pair gives way when it is too long.

    A model that `replies` reads a chat up to the beginning of its own message.
    """
    for i, text in enumerate(texts):
        check_text(text, f"text {i}: " if len(texts) > 1 else "")
    if not getattr(tokenizer, "is_fast", False):
        raise RefusedValue(
            f"{type(tokenizer).__name__} gives no character offsets, so scores cannot be placed in the text. "
            "Load its fast version (a tokenizer.json), or tokenize yourself and call tokenlight.attribute"
        )
    rows = [chat_row(tokenizer, text, replies) if isinstance(text, Chat) else None for text in texts]
    if plain := [i for i, tokenized_text in enumerate(rows) if tokenized_text is None]:
        given = [pair(texts[i]) for i in plain]
        encoded = tokenizer(given, return_offsets_mapping=True, truncation=False, verbose=False)
        for place, i in enumerate(plain):
            rows[i] = make_row(tokenizer, texts[i], encoded, place)
    return [fit(tokenized_text, max_length, cut) for tokenized_text in rows if tokenized_text is not None]


def encode_each(
    encode: Callable[[Sequence[Text]], list[TokenizedText]], texts: Sequence[Text]
) -> list[TokenizedText | Exception]:
    """What `encode` makes of the texts, all at once; in place of a row the error, where a text is at fault."""
    if not texts:
        return []
    try:
        return [*encode(texts)]
    except Exception as error:
        if len(texts) == 1:
            return [error]
    return [tokenized_text for text in texts for tokenized_text in encode_each(encode, [text])]


def fit(tokenized_text: TokenizedText, max_length: int | None, cut: Cut) -> TokenizedText:
    if not any(segment is not None for segment in tokenized_text.segments):
        raise RefusedValue(f"the text {tokenized_text.text!r} has no tokens of its own: give a text with words in it")
    return (
        tokenized_text
        if max_length is None or len(tokenized_text) <= max_length
        else shorten(tokenized_text, max_length, cut)
    )


def pair(text: Text) -> Any:
    return list(text) if isinstance(text, tuple) else text


def make_row(tokenizer: Any, text: Text, encoded: Any, i: int) -> TokenizedText:
    ids = list(encoded["input_ids"][i])
    roles = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    segments = encoded.sequence_ids(i)
    pieces = parts(text)
    spans = [
        (0, 0) if segment is None else trim(pieces[segment], *span)
        for segment, span in zip(segments, encoded["offset_mapping"][i], strict=True)
    ]
    types = encoded.get("token_type_ids")
    return TokenizedText(
        text=text,
        input_ids=ids,
        token_type_ids=None if types is None else list(types[i]),
        tokens=tokenizer.convert_ids_to_tokens(ids),
        special=[segment is None or token in roles for segment, token in zip(segments, ids, strict=True)],
        segments=list(segments),
        spans=spans,
        truncated=0,
    )


UNFINISHED = "\ufffd"  # how decoders write the first bytes of a character whose other bytes are still to come


def follow(tokenized_text: TokenizedText, ids: Sequence[int], tokenizer: Any) -> TokenizedText:
    """A text and what follows it, as a pair, or as the next message of a chat; its spans point into what is decoded."""
    roles = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    text, spans = decode(ids, tokenizer)
    types = tokenized_text.token_type_ids
    return replace(
        tokenized_text,
        text=followed(tokenized_text.text, text),
        input_ids=[*tokenized_text.input_ids, *ids],
        token_type_ids=None if types is None else [*types, *types[-1:] * len(ids)],
        tokens=[*tokenized_text.tokens, *tokenizer.convert_ids_to_tokens(list(ids))],
        special=[*tokenized_text.special, *(i in roles for i in ids)],
        segments=[*tokenized_text.segments, *[len(parts(tokenized_text.text))] * len(ids)],
        spans=[*tokenized_text.spans, *spans],
    )


def followed(text: Text, answer: str) -> Text:
    if isinstance(text, Chat):
        return Chat((*text.roles, ASSISTANT), (*text.contents, answer))
    if isinstance(text, tuple):
        raise RefusedValue("a language model continues one text or a chat; found a pair")
    return text, answer


def decode(ids: Sequence[int], tokenizer: Any) -> tuple[str, list[tuple[int, int]]]:
    """The text of token ids, and each token's span in it; that of bytes is the character that they are a part of.

    Special tokens such as the end of an answer have no text; an unknown word is written as the unknown token. Some
    tokenizers remove blanks from what they decode ("do n't" becomes "don't"). Where that changes the text of tokens
    that came before, the text keeps its blanks, so that spans are those of the tokens.
    """
    roles = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    written = [token for token in ids if token not in roles]
    text = tokenizer.decode(written)
    spans = spans_in(text, ids, roles, tokenizer)
    if spans is None:
        text = tokenizer.decode(written, clean_up_tokenization_spaces=False)
        spans = spans_in(text, ids, roles, tokenizer, clean_up_tokenization_spaces=False)
    if spans is None:  # not even then: the tokens one by one, with blanks between them
        pieces = ["" if token in roles else f"{tokenizer.decode([token])} " for token in ids]
        text = "".join(pieces).rstrip()
        ends = [min(end, len(text)) for end in accumulate(map(len, pieces))]
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
    return text, [trim(text, *span) for span in spans]


def spans_in(
    text: str, ids: Sequence[int], roles: Set[int], tokenizer: Any, **settings: bool
) -> list[tuple[int, int]] | None:
    """Each token's span in `text`, with the blanks around it; that of bytes is the character that they belong to.

    None if the decoded text of some first tokens is not how `text` begins.
    """
    spans: list[tuple[int, int]] = []
    before, end = "", 0  # what the tokens so far say, and where its last finished character ends
    for count in range(1, len(ids) + 1):
        begun = tokenizer.decode([token for token in ids[:count] if token not in roles], **settings)
        whole = begun if count == len(ids) else begun.rstrip(UNFINISHED)
        if not text.startswith(whole):
            return None
        # Bytes that no later byte completes stay unfinished in the text; this token stands behind them.
        stayed = text.startswith(before) and (len(whole) > len(before) or text.startswith(begun))
        start = len(before) if stayed and len(begun) > len(before) else end
        end = max(len(whole), start)
        spans.append((start, min(end + (len(whole) < len(begun)), len(text))))
        before = begun
    return spans


def refuse_too_long(tokenized_text: TokenizedText, ids: Sequence[int], max_length: int | None) -> None:
    """The model reads the whole text and all of the answer, or nothing is explained."""
    total = len(tokenized_text) + tokenized_text.truncated + len(ids)
    if max_length is not None and total > max_length:
        raise RefusedValue(f"prompt and answer have {total} tokens, the model reads {max_length}: shorten the prompt")
