"""Texts become token rows, rows become a padded batch. Character spans always point into the original text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

Text = str | tuple[str, str]


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


@dataclass(frozen=True)
class Batch:
    """Rows of token ids with padding; all [batch, token]."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor | None = None
    position_ids: Tensor | None = None
    special: Tensor | None = None  # bool; None where the caller did not say
    mask_id: int | None = None  # the ids that stand for "nothing here", where the vocabulary has them
    pad_id: int | None = None

    @property
    def lengths(self) -> Tensor:
        return self.attention_mask.sum(1)

    @property
    def last(self) -> Tensor:
        """[batch] index of each row's last real token, whichever side the padding is on."""
        steps = torch.arange(self.attention_mask.shape[1], device=self.attention_mask.device)
        return (steps * self.attention_mask).argmax(1)

    @property
    def first(self) -> Tensor:
        """[batch] index of each row's first real token."""
        return self.attention_mask.argmax(1)

    def inputs(self) -> dict[str, Tensor]:
        """The keywords of the model call."""
        named = {
            name: getattr(self, name) for name in ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def map(self, change: Any) -> "Batch":
        """The same batch with `change` applied to every tensor."""
        return replace(self, **{n: change(t) for n, t in vars(self).items() if isinstance(t, Tensor)})


def encode(tokenizer: Any, texts: Sequence[Text], max_length: int | None, cut: str = "longest_first") -> list[Row]:
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


def shorten(row: Row, length: int, cut: str) -> Row:
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


def collate(rows: Sequence[Row], tokenizer: Any, device: torch.device | str = "cpu", pad: int | None = None) -> Batch:
    """Pad on the right: causal models never look there, and encoders read position 0.

    `pad` is the padding id that the model knows: some models find the end of a text by it, whatever the mask says.
    """
    width = max(len(row) for row in rows)
    padding = next(i for i in (pad, tokenizer.pad_token_id, 0) if i is not None)

    def padded(values: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([row + [fill] * (width - len(row)) for row in values], device=device)

    types = [row.token_type_ids for row in rows if row.token_type_ids is not None]
    return Batch(
        input_ids=padded([row.input_ids for row in rows], padding),
        attention_mask=padded([[1] * len(row) for row in rows], 0),
        token_type_ids=padded(types, 0) if len(types) == len(rows) else None,
        special=padded([[int(s) for s in row.special] for row in rows], 1).bool(),
        mask_id=tokenizer.mask_token_id,
        pad_id=tokenizer.pad_token_id,
    )


def length_batches(lengths: Sequence[int], tokens: int, exact: bool = False) -> list[list[int]]:
    """Numbers of rows, similar lengths together, at most `tokens` a batch with padding; `exact`: equal lengths only."""
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        last = batches[-1] if batches else []
        fits = (len(last) + 1) * lengths[i] <= tokens and not (exact and last and lengths[last[0]] != lengths[i])
        if last and fits:
            last.append(i)
        else:
            batches.append([i])
    return batches
