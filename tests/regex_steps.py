"""Counts the steps that a backtracking search with a regular expression takes: growth without a clock.

A small interpreter of what Python's own parser makes of a pattern. It backtracks as `re` does, but knows none of the
shortcuts by which `re` skips places where nothing can begin: its count is an upper bound.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

parser: Any = re._parser  # type: ignore[attr-defined]
POSSESSIVE = "POSSESSIVE_REPEAT"


class Steps:
    """Searches with one pattern; `count` grows with every comparison of a character or a place."""

    def __init__(self, pattern: re.Pattern[str]):
        self.items, self.flags = list(parser.parse(pattern.pattern, pattern.flags)), pattern.flags
        self.text, self.count = "", 0
        self.known: dict[tuple[int, str], bool] = {}  # whether a set of characters holds one

    def spans(self, text: str) -> list[tuple[int, int]]:
        """All matches from left to right, as `finditer` has them."""
        self.text, self.count = text, 0
        found: list[tuple[int, int]] = []
        at = 0
        while at <= len(self.text):
            self.count += 1
            end = next(self.ends(self.items, at), None)
            if end is None:
                at += 1
                continue
            found.append((at, end))
            at = end if end > at else at + 1
        return found

    def ends(self, items: Sequence[Any], at: int) -> Iterator[int]:
        """Where the items can end that begin at a place, in the order in which they are tried."""
        if not items:
            yield at
            return
        for end in self.one(items[0], at):
            yield from self.ends(items[1:], end)

    def one(self, item: Any, at: int) -> Iterator[int]:
        kind, value = str(item[0]), item[1]
        if kind in ("MAX_REPEAT", POSSESSIVE):
            least, most, body = value
            reached = self.repeated(list(body), at, int(least), int(most))
            if kind == POSSESSIVE:
                first = next(reached, None)
                yield from () if first is None else (first,)
            else:
                yield from reached
        elif kind == "BRANCH":
            for branch in value[1]:
                yield from self.ends(list(branch), at)
        elif kind == "SUBPATTERN":
            yield from self.ends(list(value[-1]), at)
        elif kind in ("ASSERT", "ASSERT_NOT"):
            direction, body = value
            start = at if direction > 0 else at - body.getwidth()[1]
            holds = start >= 0 and next(self.ends(list(body), start), None) is not None
            if holds == (kind == "ASSERT"):
                yield at
        elif kind == "AT":
            self.count += 1
            if self.place(str(value), at):
                yield at
        else:
            self.count += 1
            if at < len(self.text) and self.fits(item, self.text[at]):
                yield at + 1

    def repeated(self, body: Sequence[Any], at: int, least: int, most: int) -> Iterator[int]:
        """Greedy: the longest first. A body of one character needs no recursion."""
        places = [at]
        while len(places) <= most:
            end = next(self.ends(body, places[-1]), None)
            if end is None or end == places[-1]:
                break
            places.append(end)
        for end in reversed(places[least:]):
            self.count += 1
            yield end

    def place(self, name: str, at: int) -> bool:
        def is_word(i: int) -> bool:
            return 0 <= i < len(self.text) and bool(re.match(r"\w", self.text[i]))

        if name == "AT_BOUNDARY":
            return is_word(at - 1) != is_word(at)
        if name in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return at == 0 or (bool(self.flags & re.MULTILINE) and self.text[at - 1] == "\n")
        assert name in ("AT_END", "AT_END_STRING"), name
        return at == len(self.text)

    def fits(self, item: Any, character: str) -> bool:
        kind, value = str(item[0]), item[1]
        if kind == "LITERAL":
            other = chr(value)
            return character == other or (bool(self.flags & re.IGNORECASE) and character.lower() == other.lower())
        if kind == "NOT_LITERAL":
            return character != chr(value)
        if kind == "ANY":
            return character != "\n"
        assert kind == "IN", kind
        key = (id(value), character)
        if key not in self.known:
            negated = str(value[0][0]) == "NEGATE"
            self.known[key] = any(self.member(part, character) for part in value[negated:]) != negated
        return self.known[key]

    def member(self, part: Any, character: str) -> bool:
        kind, value = str(part[0]), part[1]
        if kind == "RANGE":
            return value[0] <= ord(character) <= value[1]
        if kind == "CATEGORY":
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(value).split("_")[-1]]
            return bool(re.match("\\" + (letter.upper() if "NOT" in str(value) else letter), character))
        return self.fits(part, character)


def count_steps(pattern: re.Pattern[str], texts: Sequence[str]) -> list[int]:
    """Of a search for all matches in each text; the spans that were found must be those of `re`."""
    steps = Steps(pattern)
    counts: list[int] = []
    for text in texts:
        assert steps.spans(text) == [match.span() for match in pattern.finditer(text)], (pattern.pattern, text)
        counts.append(steps.count)
    return counts
