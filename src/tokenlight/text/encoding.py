"""Texts become token rows."""

from collections.abc import Callable, Sequence
from typing import Any

from tokenlight.text.chats import chat_row
from tokenlight.text.rows import Chat, Cut, Text, TokenizedText, check_text, parts, shorten, trim


def encode(
    tokenizer: Any, texts: Sequence[Text], max_length: int | None, cut: Cut = "longest_first", replies: bool = False
) -> list[TokenizedText]:
    """Tokenize texts, pairs or chats; `cut` says which part of a pair gives way when it is too long.

    A model that `replies` reads a chat up to the beginning of its own message.
    """
    for i, text in enumerate(texts):
        check_text(text, f"text {i}: " if len(texts) > 1 else "")
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
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
        raise ValueError(f"the text {tokenized_text.text!r} has no tokens of its own: give a text with words in it")
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
