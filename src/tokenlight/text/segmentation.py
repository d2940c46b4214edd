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
    """Token indices of each word, in order. A special token or the token of a line break is a word of its own."""
    numbers = [number_words(text) for text in texts]
    groups: list[list[int]] = []
    open_word: tuple[int, int] | None = None  # segment and word that the last group ends in
    blanks: list[int] = []  # tokens that are only a blank, which are added to the next word
    for token, (segment, (start, end)) in enumerate(zip(segments, spans, strict=True)):
        if segment is None or special[token] or texts[segment][start:end].isspace():
            groups += [blanks, [token]] if blanks else [[token]]
            blanks, open_word = [], None
        elif start == end:
            blanks.append(token)
        elif open_word == (segment, numbers[segment][start]):  # blanks inside a word come from a normalizer
            groups[-1] += [*blanks, token]
            blanks, open_word = [], (segment, numbers[segment][end - 1])
        else:
            groups.append([*blanks, token])
            blanks, open_word = [], (segment, numbers[segment][end - 1])
    return [*groups, blanks] if blanks else groups


def readable(token: str) -> str:
    """A token with blanks instead of the tokenizer's signs for them."""
    return token.translate(BLANKS)


def find_whole(text: str, phrase: str) -> int | None:
    """The first occurrence of a phrase as whole words, with no other letter or digit next to it; or None."""
    first = text.find(phrase) if phrase else -1
    if first < 0 or is_whole_words(text, first, phrase):
        return first if first >= 0 else None
    return next((start for start in occurrences(text, phrase, first + 1) if is_whole_words(text, start, phrase)), None)


def is_whole_words(text: str, start: int, phrase: str) -> bool:
    return is_word_border(text, start) and is_word_border(text, start + len(phrase))


def occurrences(text: str, phrase: str, first: int = 0) -> Iterator[int]:
    """Where a phrase begins, from index `first` on, including overlaps. An empty phrase has no occurrence.

    Every character is compared at most twice (Knuth, Morris and Pratt 1977). `str.find` would compare the whole phrase
    at every index of a text such as "aaaa".
    """
    if not phrase:
        return
    borders = [0] * len(
        phrase
    )  # for each prefix of the phrase, the length of its longest proper prefix that is also its suffix
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


def is_word_border(text: str, position: int) -> bool:
    """Whether a word may begin or end before the character at this index."""
    if not 0 < position < len(text):
        return True
    if text[position] in MARK_SET:  # belongs to the character before it
        return text[position - 1].isspace()
    if IN_NUMBER.match(text, position - 1) or (position > 1 and IN_NUMBER.match(text, position - 2)):
        return False
    start = position - 1
    while start > 0 and text[start] in MARK_SET:
        start -= 1
    inside = INSIDE.match(text, start)
    return inside is None or inside.end() <= position


def number_words(text: str) -> list[int]:
    """For each character the number of its word; blanks have -1."""
    numbers = [-1] * len(text)
    for number, match in enumerate(WORD.finditer(text)):
        numbers[match.start() : match.end()] = [number] * (match.end() - match.start())
    return numbers


# A sentence ends after . ! ? or …, with closing quotes and brackets, before a blank without a small letter; after the
# full stops of Chinese, Japanese, Hindi and others anywhere; before a line that begins a list.
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
    """Paragraphs separated by blank lines, each with the blanks after it."""
    return cut(text, [match.end() for match in PARAGRAPH.finditer(text)])


def sentences(text: str) -> list[Span]:
    """Sentences; none extends beyond its paragraph."""
    ends = [match.end() for match in PARAGRAPH.finditer(text)]
    ends += [skip_blanks(text, match.end()) for match in END.finditer(text) if is_end(text, match)]
    return cut(text, ends)


def is_end(text: str, match: re.Match[str]) -> bool:
    if match.group()[0] not in ".!?…":
        return True
    following = text[skip_blanks(text, match.end())]
    stop = match.group() == "." and ABBREVIATION.search(text, max(0, match.end() - 12), match.end())
    return not following.islower() and not stop


def skip_blanks(text: str, position: int) -> int:
    match = VISIBLE.search(text, position)
    return len(text) if match is None else match.start()


def cut(text: str, ends: list[int]) -> list[Span]:
    """Spans between the ends; those with only blanks are joined to the one before."""
    borders = sorted({0, *ends, len(text)})
    spans: list[Span] = []
    for start, end in pairwise(borders):
        if spans and (not text[start:end].strip() or not text[slice(*spans[-1])].strip()):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans
