"""Tokens that follow a text: what a language model has written, or what is put into its mouth."""

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import accumulate
from typing import Any

from tokenlight.text.chats import ASSISTANT
from tokenlight.text.rows import Chat, Text, TokenizedText, parts, trim

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
        raise ValueError("a language model continues one text or a chat; found a pair")
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
        raise ValueError(f"prompt and answer have {total} tokens, the model reads {max_length}: shorten the prompt")
