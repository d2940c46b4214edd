"""A text with its tokens: grouped into words, sentences and documents, selected, and found by their characters."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeGuard, get_args

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.text.segmentation import Span, group_tokens, number_words, occurrences, readable, sentences


@dataclass(frozen=True)
class Chat:
    """The messages of a conversation."""

    roles: tuple[str, ...]
    contents: tuple[str, ...]


Text = str | tuple[str, str] | Chat
Texts = list[str] | list[tuple[str, str]] | list[Chat] | list[Text]
Cut = Literal["longest_first", "only_second", "start"]  # which end is truncated if a text or a pair is too long
Gap = Literal["inside", "end"]  # where in a text the model predicts a token


@dataclass(frozen=True)
class Document:
    """A named part of a text."""

    name: str
    segment: int  # the text of a pair, or the message of a chat
    span: Span


Units = Literal["tokens", "words", "sentences", "documents"]
UNITS = get_args(Units)


class Section(NamedTuple):
    """A span of a text, and the tokens that begin in it."""

    segment: int  # the text of a pair, or the message of a chat
    span: Span  # characters in that text
    tokens: list[int]


class SegmentIndex(NamedTuple):
    """The tokens of one text that have characters, in order, for many searches by characters."""

    tokens: list[int]
    starts: list[int]
    ends: list[int]

    def find(self, span: Span) -> Span | None:
        """The span of tokens that share a character with this span of characters; None if there are none."""
        first = bisect_right(self.ends, span[0])
        after = bisect_left(self.starts, span[1])
        return (self.tokens[first], self.tokens[after - 1] + 1) if first < after else None


class TokenGroups:
    """Groups tokens into units and finds them by their characters: the base of a tokenized text and of its results."""

    tokens: list[str]
    special: Any  # [token] bool, as a list or a tensor
    segments: list[int | None]
    spans: list[Span]
    documents: tuple[Document, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that segments are indices of, and that spans point into."""
        raise NotImplementedError

    def units(self, kind: Units, *, keep_special: bool = False) -> list[list[int]]:
        """The tokens of each unit, in the order of the text.

        Special tokens are in no unit. With `keep_special`, each is a word, and those inside a sentence or a document
        belong to it. A document without tokens is not a unit.
        """
        check_units(kind)
        special = self._special_flags()
        if kind == "tokens":
            return [[i] for i in range(len(special)) if keep_special or not special[i]]
        if kind == "words":
            words = group_tokens(self.texts, self.segments, self.spans, special)
            return [word for word in words if keep_special or not special[word[0]]]
        if kind == "sentences":
            groups = [section.tokens for section in self.divide(sentences, keep_special=keep_special)]
        else:
            groups = self._document_units(keep_special)
        return [group for group in groups if group]

    def divide(
        self,
        cut: Callable[[str], Sequence[Span]],
        *,
        segments: Sequence[int] | None = None,
        keep_special: bool = False,
    ) -> list[Section]:
        """The spans that `cut` returns for each text (or these `segments`), with the tokens that begin in each.

        The sections cover their text: a token after the last one belongs to the last one. A text without characters
        is one section.
        """
        special, texts = self._special_flags(), self.texts
        chosen_segments = range(len(texts)) if segments is None else segments
        sections = {
            segment: [Section(segment, span, []) for span in cut(texts[segment]) or [(0, len(texts[segment]))]]
            for segment in chosen_segments
        }
        starts = {
            segment: [section.span[0] for section in text_sections] for segment, text_sections in sections.items()
        }
        for token, (segment, (start, _)) in enumerate(zip(self.segments, self.spans, strict=True)):
            if segment in sections and (keep_special or not special[token]):
                number = max(0, bisect_right(starts[segment], start) - 1)
                sections[segment][number].tokens.append(token)
        return [section for text_sections in sections.values() for section in text_sections]

    def _document_units(self, keep_special: bool) -> list[list[int]]:
        if not self.documents:
            raise RefusedValue("units='documents', but the text has none: name them with documents=")
        return [
            self.tokens_starting_in(document.segment, document.span, keep_special=keep_special)
            for document in self.documents
        ]

    def tokens_starting_in(self, segment: int, span: Span, *, keep_special: bool = False) -> list[int]:
        """The tokens whose first character is in the span; a token without characters has a position, too."""
        special, (first, end) = self._special_flags(), span
        return [
            token
            for token, (token_segment, (start, _)) in enumerate(zip(self.segments, self.spans, strict=True))
            if token_segment == segment and first <= start < end and (keep_special or not special[token])
        ]

    def tokens_touching(self, segment: int, span: Span) -> list[int]:
        """The tokens that share a character with the span, including special tokens."""
        return [
            token
            for token, (token_segment, (start, end)) in enumerate(zip(self.segments, self.spans, strict=True))
            if token_segment == segment and start < span[1] and end > span[0]
        ]

    def segment_index(self, segment: int) -> SegmentIndex:
        """An index for many searches in one text; tokens without characters are left out."""
        index = SegmentIndex([], [], [])
        for token, (token_segment, (start, end)) in enumerate(zip(self.segments, self.spans, strict=True)):
            if token_segment == segment and start < end:
                index.tokens.append(token)
                index.starts.append(start)
                index.ends.append(end)
        return index

    def find(self, phrase: str, *, segment: int | None = None) -> list[tuple[int, Span]]:
        """All occurrences of a phrase in the texts, or in one of them: segment and span."""
        return [
            (number, (start, start + len(phrase)))
            for number, text in enumerate(self.texts)
            if segment in (None, number)
            for start in occurrences(text, phrase)
        ]

    def token_of_word(self, word: str) -> int:
        """The first token of a word that occurs exactly once in the texts; refused otherwise.

        Whole words are preferred: "is" is not the end of "this" if it is also a word of the text.
        """
        matches = self.find(word)
        numbers = [[-1, *number_words(text), -1] for text in self.texts]
        whole_words = [
            (segment, (start, end))
            for segment, (start, end) in matches
            if numbers[segment][start] != numbers[segment][start + 1]
            and numbers[segment][end] != numbers[segment][end + 1]
        ]
        matches = whole_words or matches
        if len(matches) != 1:
            raise RefusedValue(f"{word!r} occurs {len(matches)} times in the text: give the index of its token instead")
        segment, (start, _) = matches[0]
        tokens = self.tokens_touching(segment, (start, start + 1))
        if not tokens:
            raise RefusedValue(f"{word!r} is not among the tokens that fit into the model")
        return tokens[0]

    def span_of(self, tokens: Sequence[int]) -> Span:
        """The characters from the first token to the last; all are of one text."""
        return self.spans[tokens[0]][0], self.spans[tokens[-1]][1]

    def text_of(self, tokens: Sequence[int]) -> str:
        """The characters of a word in the text; for a special token, its name in the tokenizer."""
        if bool(self.special[tokens[0]]):
            return readable(self.tokens[tokens[0]]).strip()
        return self.texts[self.segments[tokens[0]] or 0][slice(*self.span_of(tokens))]

    def _special_flags(self) -> list[bool]:
        return self.special.tolist() if isinstance(self.special, Tensor) else self.special


def check_units(kind: object) -> None:
    if kind not in UNITS:
        raise RefusedValue(f"units must be one of {', '.join(UNITS)}; found {kind!r}")


@dataclass(frozen=True)
class TokenizedText(TokenGroups):
    """One tokenized text, without padding."""

    text: Text
    input_ids: list[int]
    token_type_ids: list[int] | None
    tokens: list[str]
    special: list[bool]  # [CLS], <s>, [MASK] ...: ids with a role, not words
    segments: list[int | None]  # which text of a pair, or message of a chat; None for added tokens
    spans: list[Span]  # characters in that text
    truncated: int  # the number of tokens that did not fit
    documents: tuple[Document, ...] = ()  # named parts of the text

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def texts(self) -> tuple[str, ...]:
        return parts(self.text)

    def select(self, kept: Sequence[int]) -> "TokenizedText":
        """Only these tokens, in this order; documents and the number of truncated tokens are unchanged."""
        lists = {name: [values[i] for i in kept] for name, values in vars(self).items() if isinstance(values, list)}
        return replace(self, **lists)


def parts(text: Text) -> tuple[str, ...]:
    """The texts that spans point into: one, the two of a pair, or the messages of a chat."""
    if isinstance(text, Chat):
        return text.contents
    return text if isinstance(text, tuple) else (text,)


def shorten(tokenized_text: TokenizedText, length: int, cut: Cut) -> TokenizedText:
    """Truncate tokens at the end of the text, or with cut="start" at its start.

    The tokenizer's own truncation is not used, because it would stay enabled in the tokenizer.
    """
    if isinstance(tokenized_text.text, Chat):
        return shorten_chat(tokenized_text, length)
    kept_counts = [tokenized_text.segments.count(segment) for segment in (0, 1)]
    for _ in range(len(tokenized_text) - length):
        kept_counts[1 if kept_counts[1] > kept_counts[0] or (cut == "only_second" and kept_counts[1]) else 0] -= 1
    if isinstance(tokenized_text.text, tuple) and min(kept_counts) < 1:
        raise RefusedValue(f"nothing of the context fits after the question in {length} tokens: shorten the question")
    if kept_counts[0] < 1:
        raise RefusedValue(f"no token of the text fits into the {length} tokens that the model reads")
    counts, kept = [0, 0], []
    for i, segment in enumerate(tokenized_text.segments):
        skipped = (
            tokenized_text.segments.count(segment) - kept_counts[segment]
            if segment is not None and cut == "start"
            else 0
        )
        if segment is None or skipped <= counts[segment] < kept_counts[segment] + skipped:
            kept.append(i)
        if segment is not None:
            counts[segment] += 1
    return replace(tokenized_text.select(kept), truncated=len(tokenized_text) - len(kept))


def shorten_chat(tokenized_text: TokenizedText, length: int) -> TokenizedText:
    """Truncate the beginning of the messages, the oldest first; the template stays."""
    message_tokens = [i for i, segment in enumerate(tokenized_text.segments) if segment is not None]
    excess = len(tokenized_text) - length
    if excess >= len(message_tokens):
        raise RefusedValue(f"the chat template needs all of the {length} tokens that the model reads")
    removed = set(message_tokens[:excess])
    kept = [i for i in range(len(tokenized_text)) if i not in removed]
    return replace(tokenized_text.select(kept), truncated=len(tokenized_text) - len(kept))


def check_text(text: object, where: str = "") -> None:
    texts = text if isinstance(text, tuple) and len(text) == 2 else (text,)
    if isinstance(text, Chat):
        texts = ("\n".join(text.contents),)  # single messages may be empty
    if not all(isinstance(piece, str) for piece in texts):
        raise RefusedType(
            f"{where}expected a text or a pair of texts as a tuple, found {type(text).__name__}: {text!r}"
        )
    if not all(piece.strip() for piece in texts if isinstance(piece, str)):
        raise RefusedValue(f"{where}expected a text, found an empty one")
    if any("\ud800" <= character <= "\udfff" for piece in texts if isinstance(piece, str) for character in piece):
        raise RefusedValue(f"{where}the text has half a character (a lone surrogate), which no tokenizer can read")


def is_whole(number: object) -> TypeGuard[int]:
    """Whether a value is an integer of any type, including numpy's, but not a bool."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Remove the blanks that byte-level and SentencePiece tokenizers include in a token's span.

    If there are only blanks, the line breaks among them are kept, since they have a token of their own.
    """
    first, last = start, end
    while first < last and text[first].isspace():
        first += 1
    while last > first and text[last - 1].isspace():
        last -= 1
    breaks = [index for index in range(start, end) if text[index] == "\n"]
    return (breaks[0], breaks[-1] + 1) if first == last and breaks else (first, last)


def random_sets(units: int, count: int, seed: int) -> Tensor:
    """[set, unit] bool: units that stay, each with probability 1/2; equal for all texts with this number of units."""
    return torch.rand(count, units, generator=torch.Generator().manual_seed(seed), dtype=torch.float32) < 0.5
