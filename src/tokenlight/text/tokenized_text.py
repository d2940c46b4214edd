"""A text with its tokens and their character spans; units of a text: tokens, words, sentences, documents."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, Protocol, TypeGuard, get_args

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.text import segmentation
from tokenlight.text.segmentation import group_tokens


@dataclass(frozen=True)
class Chat:
    """The messages of a conversation."""

    roles: tuple[str, ...]
    contents: tuple[str, ...]


Text = str | tuple[str, str] | Chat
Texts = list[str] | list[tuple[str, str]] | list[Chat] | list[Text]
Cut = Literal["longest_first", "only_second", "start"]  # what gives way where a text or a pair is too long
Gap = Literal["inside", "end"]  # of a text: where the word stands that a model answers with


@dataclass(frozen=True)
class Document:
    """A part of a text with a name."""

    name: str
    segment: int  # the text of a pair, or the message of a chat
    span: tuple[int, int]


@dataclass(frozen=True)
class TokenizedText:
    """One tokenized text, without padding."""

    text: Text
    input_ids: list[int]
    token_type_ids: list[int] | None
    tokens: list[str]
    special: list[bool]  # [CLS], <s>, [MASK] ...: ids with a role, not words
    segments: list[int | None]  # which text of a pair, or message of a chat; None for added tokens
    spans: list[tuple[int, int]]  # characters in that text
    truncated: int  # how many tokens did not fit
    documents: tuple[Document, ...] = ()  # the parts of the text that were named as such

    def __len__(self) -> int:
        return len(self.input_ids)


def parts(text: Text) -> tuple[str, ...]:
    """The texts into which spans point: one, the two of a pair, or a chat's messages."""
    if isinstance(text, Chat):
        return text.contents
    return text if isinstance(text, tuple) else (text,)


def shorten(tokenized_text: TokenizedText, length: int, cut: Cut) -> TokenizedText:
    """Leave out tokens at the end of the text, or with cut="start" at its start.

    The tokenizer's own truncation would stay switched on in it.
    """
    if isinstance(tokenized_text.text, Chat):
        return shorten_chat(tokenized_text, length)
    room = [tokenized_text.segments.count(segment) for segment in (0, 1)]
    for _ in range(len(tokenized_text) - length):
        room[1 if room[1] > room[0] or (cut == "only_second" and room[1]) else 0] -= 1
    if isinstance(tokenized_text.text, tuple) and min(room) < 1:
        raise RefusedValue(f"nothing of the context fits after the question in {length} tokens: shorten the question")
    if room[0] < 1:
        raise RefusedValue(f"no token of the text fits into the {length} tokens that the model reads")
    seen, kept = [0, 0], []
    for i, segment in enumerate(tokenized_text.segments):
        skipped = (
            tokenized_text.segments.count(segment) - room[segment] if segment is not None and cut == "start" else 0
        )
        if segment is None or skipped <= seen[segment] < room[segment] + skipped:
            kept.append(i)
        if segment is not None:
            seen[segment] += 1
    return select_tokens(tokenized_text, kept)


def shorten_chat(tokenized_text: TokenizedText, length: int) -> TokenizedText:
    """Leave out the beginnings of the messages, the oldest first; the template stays."""
    words = [i for i, segment in enumerate(tokenized_text.segments) if segment is not None]
    excess = len(tokenized_text) - length
    if excess >= len(words):
        raise RefusedValue(f"the chat template alone fills the {length} tokens that the model reads")
    gone = set(words[:excess])
    return select_tokens(tokenized_text, [i for i in range(len(tokenized_text)) if i not in gone])


def select_tokens(tokenized_text: TokenizedText, kept: list[int]) -> TokenizedText:
    """These tokens alone."""
    lists = {
        name: [values[i] for i in kept] for name, values in vars(tokenized_text).items() if isinstance(values, list)
    }
    return replace(tokenized_text, **lists, truncated=len(tokenized_text) - len(kept))


def check_text(text: object, where: str = "") -> None:
    pieces = text if isinstance(text, tuple) and len(text) == 2 else (text,)
    if isinstance(text, Chat):
        pieces = ("\n".join(text.contents),)  # single messages may be empty
    if not all(isinstance(part, str) for part in pieces):
        raise RefusedType(
            f"{where}expected a text or a pair of texts as a tuple, found {type(text).__name__}: {text!r}"
        )
    if not all(part.strip() for part in pieces if isinstance(part, str)):
        raise RefusedValue(f"{where}expected a text, found an empty one")
    if any("\ud800" <= character <= "\udfff" for part in pieces if isinstance(part, str) for character in part):
        raise RefusedValue(f"{where}the text holds half a character (a lone surrogate), which no tokenizer can read")


def is_whole(number: object) -> TypeGuard[int]:
    """An index of any integer type, also of numpy's; True and False are not meant as one."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Drop the blanks that byte-level and SentencePiece tokenizers count into a token's span.

    Where nothing but blanks is there, line breaks count: a token of its own was spent on them.
    """
    first, last = start, end
    while first < last and text[first].isspace():
        first += 1
    while last > first and text[last - 1].isspace():
        last -= 1
    breaks = [place for place in range(start, end) if text[place] == "\n"]
    return (breaks[0], breaks[-1] + 1) if first == last and breaks else (first, last)


Units = Literal["tokens", "words", "sentences", "documents"]
UNITS = get_args(Units)


class TokenizedLike(Protocol):
    """A text that was cut into tokens: a row, or an explanation of it."""

    @property
    def text(self) -> Text: ...
    @property
    def special(self) -> Any: ...  # [token] bool
    @property
    def segments(self) -> Sequence[int | None]: ...
    @property
    def spans(self) -> Sequence[tuple[int, int]]: ...
    @property
    def documents(self) -> Sequence[Document]: ...


def units_of(row: TokenizedLike, kind: Units) -> list[list[int]]:
    """The tokens of each unit, in the order of the text. Tokens that were added to the text are in none."""
    check_units(kind)
    own = [i for i, special in enumerate(row.special) if not special]
    if kind == "tokens":
        return [[i] for i in own]
    texts = parts(row.text)
    if kind == "documents":
        return document_units(row, own)
    if kind == "words":
        groups = group_tokens(texts, row.segments, row.spans, row.special)
        return [group for group in groups if not row.special[group[0]]]
    starts = [[start for start, _ in segmentation.sentences(part)] for part in texts]
    found: dict[tuple[int, int], list[int]] = {}  # by text and number of the sentence
    for i in own:
        segment = row.segments[i] or 0
        found.setdefault((segment, bisect_right(starts[segment], row.spans[i][0]) - 1), []).append(i)
    return list(found.values())


def document_units(row: TokenizedLike, own: Sequence[int]) -> list[list[int]]:
    """The tokens that begin in each source; a source that was cut off has none and is no unit."""
    if not row.documents:
        raise RefusedValue("units='documents', but the text has none: name them with documents=")
    places = [(row.segments[i], row.spans[i][0]) for i in own]
    found = [
        [i for i, (segment, first) in zip(own, places, strict=True) if segment == source.segment and first in span]
        for source, span in ((source, range(*source.span)) for source in row.documents)
    ]
    return [unit for unit in found if unit]


def random_sets(units: int, count: int, seed: int) -> Tensor:
    """[set, unit] bool: which units stay, each with probability 1/2; the same for every text of so many units."""
    return torch.rand(count, units, generator=torch.Generator().manual_seed(seed), dtype=torch.float32) < 0.5


def check_units(kind: object) -> None:
    if kind not in UNITS:
        raise RefusedValue(f"units is one of {', '.join(UNITS)}; found {kind!r}")
