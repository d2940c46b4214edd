"""Texts become token rows. Character spans always point into the original text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Text = str | tuple[str, str]
Texts = list[str] | list[tuple[str, str]] | list[Text]
Cut = Literal["longest_first", "only_second", "start"]  # what gives way where a text or a pair is too long
Gap = Literal["inside", "end"]  # of a text: where the word stands that a model answers with


@dataclass(frozen=True)
class Row:
    """One tokenised text, without padding."""

    text: Text
    input_ids: list[int]
    token_type_ids: list[int] | None
    tokens: list[str]
    special: list[bool]  # [CLS], <s>, [MASK] ...: ids with a role, not words
    segments: list[int | None]  # 0 or 1: which text of a pair; None for added tokens
    spans: list[tuple[int, int]]  # characters in that text
    truncated: int  # how many tokens did not fit

    def __len__(self) -> int:
        return len(self.input_ids)


def encode(tokenizer: Any, texts: Sequence[Text], max_length: int | None, cut: Cut = "longest_first") -> list[Row]:
    """Tokenise texts or pairs; `cut` says which part of a pair gives way when it is too long."""
    for i, text in enumerate(texts):
        check_text(text, f"text {i}: " if len(texts) > 1 else "")
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} gives no character offsets, so scores cannot be placed in the text. "
            "Load its fast version (a tokenizer.json), or tokenise yourself and call tokenlight.attribute"
        )
    encoded = tokenizer([pair(text) for text in texts], return_offsets_mapping=True, truncation=False, verbose=False)
    rows = [make_row(tokenizer, text, encoded, i) for i, text in enumerate(texts)]
    for i, row in enumerate(rows):
        if max_length is not None and len(row) > max_length:
            rows[i] = shorten(row, max_length, cut)
        if not any(segment is not None for segment in row.segments):
            raise ValueError(f"the text {row.text!r} has no tokens of its own: give a text with words in it")
    return rows


def shorten(row: Row, length: int, cut: Cut) -> Row:
    """Leave out tokens at the end of the text, or with cut="start" at its start.

    The tokenizer's own truncation would stay switched on in it.
    """
    room = [row.segments.count(segment) for segment in (0, 1)]
    for _ in range(len(row) - length):
        room[1 if room[1] > room[0] or (cut == "only_second" and room[1]) else 0] -= 1
    if isinstance(row.text, tuple) and min(room) < 1:
        raise ValueError(f"nothing of the context fits behind the question in {length} tokens: shorten the question")
    seen, kept = [0, 0], []
    for i, segment in enumerate(row.segments):
        skipped = row.segments.count(segment) - room[segment] if segment is not None and cut == "start" else 0
        if segment is None or skipped <= seen[segment] < room[segment] + skipped:
            kept.append(i)
        if segment is not None:
            seen[segment] += 1
    parts = {name: [values[i] for i in kept] for name, values in vars(row).items() if isinstance(values, list)}
    return replace(row, **parts, truncated=len(row) - len(kept))


def pair(text: Text) -> Any:
    return text if isinstance(text, str) else list(text)


def check_text(text: object, where: str = "") -> None:
    parts = text if isinstance(text, tuple) and len(text) == 2 else (text,)
    if not all(isinstance(part, str) for part in parts):
        raise TypeError(f"{where}expected a text or a pair of texts as a tuple, found {type(text).__name__}: {text!r}")
    if not all(part.strip() for part in parts if isinstance(part, str)):
        raise ValueError(f"{where}expected a text, found an empty one")
    if any("\ud800" <= character <= "\udfff" for part in parts if isinstance(part, str) for character in part):
        raise ValueError(f"{where}the text holds half a character (a lone surrogate), which no tokenizer can read")


def make_row(tokenizer: Any, text: Text, encoded: Any, i: int) -> Row:
    ids = list(encoded["input_ids"][i])
    roles = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    segments = encoded.sequence_ids(i)
    parts = text if isinstance(text, tuple) else (text,)
    spans = [
        (0, 0) if segment is None else trim(parts[segment], *span)
        for segment, span in zip(segments, encoded["offset_mapping"][i], strict=True)
    ]
    types = encoded.get("token_type_ids")
    return Row(
        text=text,
        input_ids=ids,
        token_type_ids=None if types is None else list(types[i]),
        tokens=tokenizer.convert_ids_to_tokens(ids),
        special=[segment is None or token in roles for segment, token in zip(segments, ids, strict=True)],
        segments=list(segments),
        spans=spans,
        truncated=0,
    )


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Drop the blanks that byte-level and SentencePiece tokenizers count into a token's span."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
