"""Which tokens of an answer are meant: named by their text, their numbers or a sentence. Tokens count from 0."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from tokenlight.text import passages

Span = tuple[int, int]  # of characters
TokenNumbers = int | slice | Sequence[int]


def tokens_in_part(
    answer: str, spans: Sequence[Span], text: str | None, tokens: TokenNumbers | None, sentence: int | None
) -> list[int]:
    """`spans` are those of the answer's tokens; the part is named in one of three ways."""
    if sum(choice is not None for choice in (text, tokens, sentence)) != 1:
        raise ValueError("name a part of the answer in one way: its text, tokens=... or sentence=...")
    if text is not None:
        first, last = find_once(answer, text)
        chosen = [i for i, (start, end) in enumerate(spans) if start < last and end > first]
    elif sentence is not None:
        chosen = pick_sentence(tokens_by_sentence(answer, spans), sentence)
    else:
        chosen = choose(tokens, len(spans))
    if not chosen:
        raise ValueError("no token of the answer is named")
    return chosen


def tokens_by_sentence(answer: str, spans: Sequence[Span]) -> list[list[int]]:
    """An answer without characters is one sentence."""
    starts = [start for start, _ in passages.sentences(answer)][1:]  # of all but the first
    found: list[list[int]] = [[] for _ in range(len(starts) + 1)]
    for i, (first, _) in enumerate(spans):
        found[bisect_right(starts, first)].append(i)
    return found


def find_once(answer: str, text: str) -> Span:
    """The span of a text that occurs in the answer exactly once."""
    if not isinstance(text, str):
        raise TypeError(f"a part of the answer is named by its text; found {text!r}: name tokens with tokens=")
    places = [place for place in range(len(answer)) if text and answer.startswith(text, place)]
    if len(places) != 1:
        raise ValueError(f"{text!r} occurs {len(places)} times in the answer {answer!r}: name its tokens instead")
    return places[0], places[0] + len(text)


def pick_sentence(sentences: Sequence[list[int]], number: int) -> list[int]:
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise TypeError(f"sentence= is the number of a sentence, counted from 0; found {number!r}")
    if not -len(sentences) <= number < len(sentences):
        raise ValueError(f"there is no sentence {number}: the answer has {len(sentences)}, counted from 0")
    return sentences[number]


def choose(tokens: TokenNumbers | None, count: int) -> list[int]:
    """In order."""
    if isinstance(tokens, slice):
        return sorted(range(count)[tokens])
    wanted: list[Any] = (
        [tokens] if isinstance(tokens, Integral) else list(tokens) if isinstance(tokens, Iterable) else [tokens]
    )
    if wrong := [i for i in wanted if not isinstance(i, Integral) or isinstance(i, bool)]:
        raise TypeError(f"tokens= is a number, a slice or a list of numbers, counted from 0; found {wrong[0]!r}")
    if outside := [i for i in wanted if not -count <= i < count]:
        raise ValueError(f"the answer has the tokens 0 to {count - 1}; found {outside[0]}")
    return sorted({int(i) % count for i in wanted})
