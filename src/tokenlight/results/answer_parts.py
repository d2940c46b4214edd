"""Which tokens of an answer are meant: named by their text, their numbers or a sentence. Tokens count from 0."""

from bisect import bisect_right
from collections.abc import Sequence

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
    places = [place for place in range(len(answer)) if text and answer.startswith(text, place)]
    if len(places) != 1:
        raise ValueError(f"{text!r} occurs {len(places)} times in the answer {answer!r}: name its tokens instead")
    return places[0], places[0] + len(text)


def pick_sentence(sentences: Sequence[list[int]], number: int) -> list[int]:
    if not -len(sentences) <= number < len(sentences):
        raise ValueError(f"there is no sentence {number}: the answer has {len(sentences)}, counted from 0")
    return sentences[number]


def choose(tokens: TokenNumbers | None, count: int) -> list[int]:
    """In order."""
    if isinstance(tokens, slice):
        return list(range(count))[tokens]
    wanted = [tokens] if isinstance(tokens, int) else list(tokens or ())
    if outside := [i for i in wanted if not -count <= i < count]:
        raise ValueError(f"the answer has the tokens 0 to {count - 1}; found {outside[0]}")
    return sorted({i % count for i in wanted})
