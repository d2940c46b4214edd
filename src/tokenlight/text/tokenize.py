"""Tokenization of texts, chats, and answers that continue a text.

Tokens that a chat template adds have no segment, like [CLS]; spans point into the messages.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.text.tokenized_text import Chat, Cut, Text, TokenizedText, check_text, parts, shorten, trim

Messages = list[dict[str, str]]  # each with "role" and "content"
Prompt = str | Chat | Messages  # the input of a language model
Prompts = list[str] | list[Chat] | list[Messages] | list[Prompt]
ASSISTANT = "assistant"  # the role of the model in a chat
PLACEHOLDER = re.compile("\ue000(\\d+)\ue001")  # stands for a message in the rendered template


@dataclass(frozen=True)
class MessageSpan:
    """The characters of a message in the rendered chat; many templates remove blanks at its beginning."""

    start: int
    end: int
    left_out: int  # characters of the message that are missing at its beginning


def texts_of(value: Any) -> tuple[list[Text], bool]:
    """The texts as a list, and whether a single text was given. A list of messages is a single text."""
    if isinstance(value, str | tuple | Chat):
        return [value], True
    if isinstance(value, bytes | Mapping | Set) or not hasattr(value, "__iter__"):
        raise RefusedType(
            f"expected a text, a pair as a tuple, a chat, or a list of these; found {type(value).__name__}"
        )
    refuse_table(value)
    listed = list(value)
    if not listed:
        raise RefusedValue("expected at least one text, found an empty list")
    if isinstance(listed[0], Mapping):
        return [read_chat(listed)], True
    return [read_chat(entry) if is_chat(entry) else entry for entry in listed], False


def refuse_table(value: Any) -> None:
    """Refuse tables of pandas, polars and others: iterating over them yields columns, or their names."""
    if hasattr(type(value), "columns"):
        raise RefusedType(
            f"expected texts, found a {type(value).__name__}: give the column with the texts, such as "
            'list(table["text"]), or, where rows are read, a list of rows, such as table.to_dict("records")'
        )


def is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def read_chat(messages: Sequence[Any]) -> Chat:
    """A chat from a list of {"role": ..., "content": ...}."""
    for i, message in enumerate(messages):
        actual = sorted(message) if isinstance(message, Mapping) else type(message).__name__
        if actual != ["content", "role"] or not all(isinstance(message[key], str) for key in actual):
            raise RefusedValue(f'message {i}: expected {{"role": text, "content": text}}, found {message!r}')
    return Chat(tuple(message["role"] for message in messages), tuple(message["content"] for message in messages))


def plain_text(text: Text) -> Any:
    """The text as a JSON value: a string, a list of two, or a list of messages."""
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


def tokenize_chat(tokenizer: Any, chat: Chat, replies: bool) -> TokenizedText:
    """Tokenize a chat as rendered by the tokenizer's template."""
    text, messages = locate_messages(tokenizer, chat, replies)
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, truncation=False, verbose=False)
    ids, roles = list(encoded["input_ids"]), set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    segments = [message_at(text, messages, span) for span in encoded["offset_mapping"]]
    spans = [
        (0, 0) if number is None else span_in_message(text, messages[number], span)
        for number, span in zip(segments, encoded["offset_mapping"], strict=True)
    ]
    types = encoded.get("token_type_ids")
    return TokenizedText(
        text=chat,
        input_ids=ids,
        token_type_ids=None if types is None else list(types),
        tokens=tokenizer.convert_ids_to_tokens(ids),
        special=[number is None or token in roles for number, token in zip(segments, ids, strict=True)],
        segments=segments,
        spans=spans,
        truncated=0,
    )


def message_at(text: str, messages: Sequence[MessageSpan], span: tuple[int, int]) -> int | None:
    """The message with characters of this token; of several, the first with other characters than blanks; or None."""
    characters = {
        i: text[max(span[0], message.start) : min(span[1], message.end)]
        for i, message in enumerate(messages)
        if span[0] < message.end and span[1] > message.start
    }
    return next((i for i, shared in characters.items() if not shared.isspace()), next(iter(characters), None))


def span_in_message(text: str, message: MessageSpan, span: tuple[int, int]) -> tuple[int, int]:
    """A token's span in its message."""
    start, end = trim(text, max(span[0], message.start), min(span[1], message.end))
    return start - message.start + message.left_out, end - message.start + message.left_out


def locate_messages(tokenizer: Any, chat: Chat, replies: bool) -> tuple[str, list[MessageSpan]]:
    """The rendered chat, and the characters of each message in it."""
    placeholders = Chat(chat.roles, tuple(f"\ue000{i}\ue001" for i in range(len(chat.contents))))
    text, frame = render(tokenizer, chat, replies), PLACEHOLDER.split(render(tokenizer, placeholders, replies))
    if frame[1::2] != [str(i) for i in range(len(chat.contents))]:
        raise RefusedValue(
            "the tokenizer's chat template does not write every message once, in order: "
            f"of {len(chat.contents)} messages, it writes {', '.join(frame[1::2]) or 'none'}, counted from 0"
        )
    messages, position = list[MessageSpan](), len(frame[0])
    for content, template_text in zip(chat.contents, frame[2::2], strict=True):
        written = next(
            (
                candidate
                for candidate in (content, content.strip())
                if text.startswith(candidate + template_text, position)
            ),
            None,
        )
        if written is None:
            raise RefusedValue(
                f"the tokenizer's chat template changes message {len(messages)}, so scores cannot be placed in it: "
                "give the prompt as one text, from tokenizer.apply_chat_template(messages, tokenize=False)"
            )
        messages.append(MessageSpan(position, position + len(written), content.index(written)))
        position += len(written) + len(template_text)
    return text, messages


def render(tokenizer: Any, chat: Chat, replies: bool) -> str:
    """The chat as text, rendered by transformers. A last message of the assistant is continued."""
    if not getattr(tokenizer, "chat_template", None):
        raise RefusedValue(
            "this tokenizer has no chat template: give the prompt as one text, or set tokenizer.chat_template"
        )
    continues = replies and chat.roles[-1] == ASSISTANT
    settings = {"add_generation_prompt": replies and not continues, "continue_final_message": continues}
    try:
        return tokenizer.apply_chat_template(messages_of(chat), tokenize=False, **settings)
    except Exception as error:  # a template may raise anything
        raise RefusedValue(f"the tokenizer's chat template refuses this chat: {error}") from error


def encode(
    tokenizer: Any, texts: Sequence[Text], max_length: int | None, cut: Cut = "longest_first", replies: bool = False
) -> list[TokenizedText]:
    """Tokenize texts, pairs or chats; `cut` says which text of a pair is truncated if it is too long.

    A model that `replies` reads a chat up to the beginning of its own message.
    """
    for i, text in enumerate(texts):
        check_text(text, f"text {i}: " if len(texts) > 1 else "")
    if not getattr(tokenizer, "is_fast", False):
        raise RefusedValue(
            f"{type(tokenizer).__name__} gives no character offsets, so scores cannot be placed in the text. "
            "Load its fast version (a tokenizer.json), or tokenize yourself and call tokenlight.attribute"
        )
    rows = [tokenize_chat(tokenizer, text, replies) if isinstance(text, Chat) else None for text in texts]
    if plain := [i for i, tokenized_text in enumerate(rows) if tokenized_text is None]:
        pairs = [pair(texts[i]) for i in plain]
        encoded = tokenizer(pairs, return_offsets_mapping=True, truncation=False, verbose=False)
        for row, i in enumerate(plain):
            rows[i] = make_tokenized_text(tokenizer, texts[i], encoded, row)
    return [fit(tokenized_text, max_length, cut) for tokenized_text in rows if tokenized_text is not None]


def encode_each(
    encode: Callable[[Sequence[Text]], list[TokenizedText]], texts: Sequence[Text]
) -> list[TokenizedText | Exception]:
    """The result of `encode` for each text; for a text that cannot be encoded, the error."""
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


def make_tokenized_text(tokenizer: Any, text: Text, encoded: Any, i: int) -> TokenizedText:
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


UNFINISHED = "\ufffd"  # the decoded text of an incomplete character


def follow(tokenized_text: TokenizedText, ids: Sequence[int], tokenizer: Any) -> TokenizedText:
    """The text with these ids appended, as a pair or as the next message of a chat; spans are in the decoded text."""
    roles = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    text, spans = decode(ids, tokenizer)
    types = tokenized_text.token_type_ids
    return replace(
        tokenized_text,
        text=append_answer(tokenized_text.text, text),
        input_ids=[*tokenized_text.input_ids, *ids],
        token_type_ids=None if types is None else [*types, *types[-1:] * len(ids)],
        tokens=[*tokenized_text.tokens, *tokenizer.convert_ids_to_tokens(list(ids))],
        special=[*tokenized_text.special, *(i in roles for i in ids)],
        segments=[*tokenized_text.segments, *[len(parts(tokenized_text.text))] * len(ids)],
        spans=[*tokenized_text.spans, *spans],
    )


def append_answer(text: Text, answer: str) -> Text:
    if isinstance(text, Chat):
        return Chat((*text.roles, ASSISTANT), (*text.contents, answer))
    if isinstance(text, tuple):
        raise RefusedValue("a language model continues one text or a chat; found a pair")
    return text, answer


def decode(ids: Sequence[int], tokenizer: Any) -> tuple[str, list[tuple[int, int]]]:
    """The text of token ids, and each token's span in it. The span of a byte is that of its character.

    Special tokens such as the end of an answer have no text; an unknown word is written as the unknown token. Some
    tokenizers remove blanks from what they decode ("do n't" becomes "don't"). If that changes the text of earlier
    tokens, blanks are kept, so that spans are right.
    """
    roles = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    written = [token for token in ids if token not in roles]
    text = tokenizer.decode(written)
    spans = spans_in(text, ids, roles, tokenizer)
    if spans is None:
        text = tokenizer.decode(written, clean_up_tokenization_spaces=False)
        spans = spans_in(text, ids, roles, tokenizer, clean_up_tokenization_spaces=False)
    if spans is None:  # also without clean-up: decode single tokens, with blanks between them
        pieces = ["" if token in roles else f"{tokenizer.decode([token])} " for token in ids]
        text = "".join(pieces).rstrip()
        ends = [min(end, len(text)) for end in accumulate(map(len, pieces))]
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
    return text, [trim(text, *span) for span in spans]


def spans_in(
    text: str, ids: Sequence[int], roles: Set[int], tokenizer: Any, **settings: bool
) -> list[tuple[int, int]] | None:
    """Each token's span in `text`, with blanks around it. The span of a byte is that of its character.

    None if the decoded text of a prefix of the tokens is not a prefix of `text`.
    """
    spans: list[tuple[int, int]] = []
    previous, end = "", 0  # the decoded text so far, and the end of its last complete character
    for count in range(1, len(ids) + 1):
        decoded = tokenizer.decode([token for token in ids[:count] if token not in roles], **settings)
        complete = decoded if count == len(ids) else decoded.rstrip(UNFINISHED)
        if not text.startswith(complete):
            return None
        # Bytes that no later byte completes remain in the text; this token comes after them.
        is_kept = text.startswith(previous) and (len(complete) > len(previous) or text.startswith(decoded))
        start = len(previous) if is_kept and len(decoded) > len(previous) else end
        end = max(len(complete), start)
        spans.append((start, min(end + (len(complete) < len(decoded)), len(text))))
        previous = decoded
    return spans


def refuse_too_long(tokenized_text: TokenizedText, ids: Sequence[int], max_length: int | None) -> None:
    """Refuse an answer that does not fit into the model together with the complete text."""
    total = len(tokenized_text) + tokenized_text.truncated + len(ids)
    if max_length is not None and total > max_length:
        raise RefusedValue(f"prompt and answer have {total} tokens, the model reads {max_length}: shorten the prompt")
