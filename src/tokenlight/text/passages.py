"""Sentences and paragraphs of a text, as spans that cover all of it. Rules alone, so that any language does."""

import re
from itertools import pairwise

Span = tuple[int, int]
# A sentence ends behind . ! ? or …, with closing quotes and brackets, where a blank follows and no small letter; behind
# the full stops of Chinese, Japanese, Hindi and others anywhere; before a line that begins a list.
# Quantifiers are possessive and a run of stops is tried only from its start, so that a search takes linear time.
END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s++\S)"
    r"|[。！？｡।۔։።]++[」』”’）]*+"
    r"|\n(?=[ \t]*+(?:[-*•–]|\d++[.)])\s)"
)
VISIBLE = re.compile(r"\S")
PARAGRAPH = re.compile(r"\n[ \t\r]*+\n\s*+")
ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Gen|Col|Lt|Rev|Hon|vs|etc|cf|al|Fig|Eq|No|Vol|pp|ca|Inc|Ltd|Co|e\.g|i\.e)"
    r"|\b[A-Z])\.$",  # or the initial of a name
)


def paragraphs(text: str) -> list[Span]:
    """Parts that blank lines separate, each with the blanks behind it."""
    return cut(text, [match.end() for match in PARAGRAPH.finditer(text)])


def sentences(text: str) -> list[Span]:
    """No sentence goes beyond its paragraph."""
    ends = [match.end() for match in PARAGRAPH.finditer(text)]
    ends += [behind_blanks(text, match.end()) for match in END.finditer(text) if is_end(text, match)]
    return cut(text, ends)


def is_end(text: str, match: re.Match[str]) -> bool:
    if match.group()[0] not in ".!?…":
        return True
    following = text[behind_blanks(text, match.end())]
    stop = match.group() == "." and ABBREVIATION.search(text, max(0, match.end() - 12), match.end())
    return not following.islower() and not stop


def behind_blanks(text: str, place: int) -> int:
    found = VISIBLE.search(text, place)
    return len(text) if found is None else found.start()


def cut(text: str, ends: list[int]) -> list[Span]:
    """Spans between the ends, without those that hold only blanks."""
    places = sorted({0, *ends, len(text)})
    found: list[Span] = []
    for start, end in pairwise(places):
        if found and (not text[start:end].strip() or not text[slice(*found[-1])].strip()):
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found
