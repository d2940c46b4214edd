"""Words of a parse and tokens of a model, matched by characters alone, so every tokenizer works."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from tokenlight.syntax.parses import Parse
from tokenlight.text.rows import TokenizedText


class Pair(NamedTuple):
    """A dependent and its syntactic head in the tokens of one row."""

    relation: int
    query: int  # the first sub-word of the word that should attend
    first: int  # the tokens of the word that should be attended to
    last: int
    distance: int  # in words of the parse: dependent minus head


def align(
    parse: Parse, tokenized_text: TokenizedText, numbers: Mapping[str, int], direction: str
) -> tuple[list[Pair], int]:
    """The pairs whose relation has a number, and how many of them the row does not hold."""
    if parse.text != tokenized_text.text:
        raise ValueError(f"the parse is of another text: {parse.text!r} instead of {tokenized_text.text!r}")
    segments = [segment_tokens(tokenized_text, segment) for segment in (0, 1)]
    pairs, missed = [], 0
    for i, word in enumerate(parse.words):
        if word.head is None or word.relation not in numbers:
            continue
        head = parse.words[word.head]
        ends = (word, head) if direction == "dependent-head" else (head, word)
        asking, asked = (tokens_of(segments[end.segment], end.span) for end in ends)
        if asking is None or asked is None:
            missed += 1
        else:
            pairs.append(Pair(numbers[word.relation], asking[0], *asked, i - word.head))
    return pairs, missed


class SegmentTokens(NamedTuple):
    """The tokens of one text of a row that stand for characters, in order."""

    tokens: list[int]
    starts: list[int]
    ends: list[int]


def segment_tokens(tokenized_text: TokenizedText, segment: int) -> SegmentTokens:
    spans = enumerate(zip(tokenized_text.segments, tokenized_text.spans, strict=True))
    found = [(token, start, end) for token, (where, (start, end)) in spans if where == segment and start < end]
    return SegmentTokens(*(list(column) for column in zip(*found, strict=True))) if found else SegmentTokens([], [], [])


def tokens_of(segment: SegmentTokens, span: tuple[int, int]) -> tuple[int, int] | None:
    """First and last token that share a character with the span."""
    first = bisect_right(segment.ends, span[0])
    after = bisect_left(segment.starts, span[1])
    return (segment.tokens[first], segment.tokens[after - 1]) if first < after else None
