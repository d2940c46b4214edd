"""Segmentation of a text into words, sentences and paragraphs, for every language."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

Span = tuple[int, int]  # [start, end) of characters or tokens

ALONE = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # scripts without blanks: Thai, CJK
# Accents, vowel signs, variation selectors: they belong to the character before them, but Python's \w leaves them out.
MARKS = "".join(chr(i) for i in range(0x300, 0x10000) if unicodedata.category(chr(i)).startswith("M"))
MARK_SET = frozenset(MARKS)
LETTERS = rf"(?:[^\W{ALONE}]|[{MARKS}])+"
SIGN = rf"\S[{MARKS}\U0001f3fb-\U0001f3ff]*"  # with its marks and skin tone
# A word is a Thai or CJK character, a flag, a contraction's tail ('s; n't stays whole), letters and digits with inner
# apostrophes, hyphens and joiners, or any other single visible character; joined emoji are one.
WORD = re.compile(
    rf"[{ALONE}][{MARKS}]*"
    r"|[\U0001f1e6-\U0001f1ff]{2}"
    r"|['’](?:s|t|re|ve|ll|d|m)\b"
    rf"|{LETTERS}(?:['’\-\u00ad\u200c\u200d]{LETTERS})*"
    rf"|{SIGN}(?:\u200d{SIGN})*",
    re.IGNORECASE,
)

# Two characters between which no word ends: both are letters or digits, of a script that puts blanks between words.
# Korean puts them only between groups of words and particles.
INSIDE = re.compile(rf"[^\W{ALONE}\uac00-\ud7a3][{MARKS}]*[^\W{ALONE}\uac00-\ud7a3]|\S[{MARKS}]")
IN_NUMBER = re.compile(r"\d[.,]\d")  # 3.5 and 1,000 are one number each

BLANKS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "↵"})  # as byte-level and SentencePiece tokenizers write them


def group_tokens(
    texts: Sequence[str],
    segments: Sequence[int | None],
    spans: Sequence[Span],
    special: Sequence[bool],
) -> list[list[int]]:
    """Token indices word by word, in order. A special token is a word of its own, and so is a line break's."""
    numbers = [number_words(text) for text in texts]
    groups: list[list[int]] = []
    open_word: tuple[int, int] | None = None  # segment and word that the last group ends in
    blanks: list[int] = []  # tokens that are only a blank wait for the word they stand before
    for token, (segment, (start, end)) in enumerate(zip(segments, spans, strict=True)):
        if segment is None or special[token] or texts[segment][start:end].isspace():
            groups += [blanks, [token]] if blanks else [[token]]
            blanks, open_word = [], None
        elif start == end:
            blanks.append(token)
        elif open_word == (segment, numbers[segment][start]):  # blanks within a word are what a normalizer made of it
            groups[-1] += [*blanks, token]
            blanks, open_word = [], (segment, numbers[segment][end - 1])
        else:
            groups.append([*blanks, token])
            blanks, open_word = [], (segment, numbers[segment][end - 1])
    return [*groups, blanks] if blanks else groups


def readable(token: str) -> str:
    """A token with blanks where tokenizers write signs for them."""
    return token.translate(BLANKS)


def find_whole(text: str, phrase: str) -> int | None:
    """Where a phrase first stands as whole words: no other letter or digit touches it. None where it does nowhere."""
    place = text.find(phrase) if phrase else -1
    if place < 0 or is_whole(text, place, phrase):
        return place if place >= 0 else None
    return next((later for later in occurrences(text, phrase, place + 1) if is_whole(text, later, phrase)), None)


def is_whole(text: str, place: int, phrase: str) -> bool:
    return is_word_border(text, place) and is_word_border(text, place + len(phrase))


def occurrences(text: str, phrase: str, first: int = 0) -> Iterator[int]:
    """Where a phrase begins, from a place on; also where it overlaps itself. An empty phrase stands nowhere.

    Every character is compared at most twice (Knuth, Morris and Pratt 1977). `str.find` would compare the whole phrase
    again for every place of a phrase such as "aaaa".
    """
    if not phrase:
        return
    borders = [0] * len(phrase)  # of the part of the phrase that ends here: the longest that it begins and ends with
    matched = 0
    for i in range(1, len(phrase)):
        while matched and phrase[i] != phrase[matched]:
            matched = borders[matched - 1]
        matched += phrase[i] == phrase[matched]
        borders[i] = matched
    matched = 0
    for i in range(first, len(text)):
        while matched and text[i] != phrase[matched]:
            matched = borders[matched - 1]
        matched += text[i] == phrase[matched]
        if matched == len(phrase):
            yield i + 1 - matched
            matched = borders[matched - 1]


def is_word_border(text: str, place: int) -> bool:
    """Whether a word may begin or end before the character at this place."""
    if not 0 < place < len(text):
        return True
    if text[place] in MARK_SET:  # belongs to the character before it
        return text[place - 1].isspace()
    if IN_NUMBER.match(text, place - 1) or (place > 1 and IN_NUMBER.match(text, place - 2)):
        return False
    start = place - 1
    while start > 0 and text[start] in MARK_SET:
        start -= 1
    inside = INSIDE.match(text, start)
    return inside is None or inside.end() <= place


def number_words(text: str) -> list[int]:
    """For each character the number of its word; blanks have -1."""
    numbers = [-1] * len(text)
    for number, match in enumerate(WORD.finditer(text)):
        numbers[match.start() : match.end()] = [number] * (match.end() - match.start())
    return numbers


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
