"""Sub-words become words of the original text, by character spans alone, so every tokenizer works."""

import re
from collections.abc import Sequence

# A word is a CJK or Thai character, a contraction's tail ('s, n't stays whole), letters and digits with inner
# apostrophes and hyphens, or any other single visible character.
WORD = re.compile(
    r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    r"|['’](?:s|t|re|ve|ll|d|m)\b"
    r"|[^\W\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
    r"(?:['’\-][^\W\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)*"
    r"|\S",
    re.IGNORECASE,
)


def group_tokens(
    texts: Sequence[str],
    segments: Sequence[int | None],
    spans: Sequence[tuple[int, int]],
    special: Sequence[bool],
) -> list[list[int]]:
    """Token indices word by word, in order. A special token is a word of its own."""
    numbers = [number_words(text) for text in texts]
    groups: list[list[int]] = []
    open_word: tuple[int, int] | None = None  # segment and word that the last group ends in
    blanks: list[int] = []  # tokens that are only a blank wait for the word they stand before
    for token, (segment, (start, end)) in enumerate(zip(segments, spans, strict=True)):
        if segment is None or special[token]:
            groups += [blanks, [token]] if blanks else [[token]]
            blanks, open_word = [], None
        elif start == end:
            blanks.append(token)
        elif open_word == (segment, numbers[segment][start]) and not blanks:
            groups[-1].append(token)
            open_word = (segment, numbers[segment][end - 1])
        else:
            groups.append([*blanks, token])
            blanks, open_word = [], (segment, numbers[segment][end - 1])
    return [*groups, blanks] if blanks else groups


def number_words(text: str) -> list[int]:
    """For each character the number of its word; blanks have -1."""
    numbers = [-1] * len(text)
    for number, match in enumerate(WORD.finditer(text)):
        numbers[match.start() : match.end()] = [number] * (match.end() - match.start())
    return numbers
