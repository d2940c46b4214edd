"""Alignment of the words of a parse with the characters of its text."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tokenlight.common.errors import RefusedValue

Span = tuple[int, int]
LONGEST_EXPANSION = 4  # the largest number of words with one written form
SHOWN = 30  # characters of the text that are shown in an error


@dataclass(frozen=True)
class Entry:
    """One entry of a parsed sentence: a word, or the written form of the words `first` to `last` ('don't')."""

    first: int  # numbers within the sentence, from 1
    last: int
    form: str
    head: int  # 0 for a root
    relation: str
    where: str  # for errors


@dataclass(frozen=True)
class Written:
    """A written form in the text, of one word or of several."""

    form: str
    words: tuple[str, ...]
    where: str


def written_forms(sentence: Sequence[Entry]) -> list[Written]:
    """Group the words that share a written form."""
    written: list[Written] = []
    count, end = 0, 0  # words so far; the last word of the open written form
    for entry in sentence:
        if entry.last > entry.first:
            written.append(Written(entry.form, (), entry.where))
            end = entry.last
            continue
        count += 1
        if entry.first != count:
            raise RefusedValue(f"{entry.where}: expected word {count} of its sentence, found number {entry.first}")
        if count <= end:
            written[-1] = Written(written[-1].form, (*written[-1].words, entry.form), written[-1].where)
        else:
            written.append(Written(entry.form, (entry.form,), entry.where))
    if count < end:
        raise RefusedValue(
            f"{written[-1].where}: this written form includes words up to {end}, but the sentence has {count}"
        )
    return written


def place_words(texts: Sequence[str], written: Sequence[Written], where: str, expand: bool) -> list[tuple[int, Span]]:
    """Segment and characters of every word; only blanks may be between and after the words.

    With `expand`, words may be written differently in the text if there is only one interpretation (`find_expansion`).
    """
    placed: list[tuple[int, Span]] = []
    segment, position, i = 0, skip_blanks(texts[0], 0), 0
    while i < len(written):
        if position == len(texts[segment]) and segment + 1 < len(texts):
            segment, position = segment + 1, skip_blanks(texts[segment + 1], 0)
        text = texts[segment]
        end = find_end(text, position, written[i].form)
        n_words = 1
        if end is None:
            expansion = find_expansion(text, position, written[i:], segment + 1 < len(texts)) if expand else None
            if expansion is None:
                actual = repr(text[position : position + SHOWN]) if position < len(text) else "the end of the text"
                raise RefusedValue(f"{written[i].where}: expected the word {written[i].form!r} here, found {actual}")
            n_words, end = expansion
        spans = split_span(written[i], (position, end)) if n_words == 1 else [(position, end)] * n_words
        placed += [(segment, span) for span in spans]
        position, i = skip_blanks(text, end), i + n_words
    unread = "".join([texts[segment][position:], *texts[segment + 1 :]]).strip()
    if unread:
        where = written[-1].where if written else where
        raise RefusedValue(f"{where}: the parse has no more words, but the text goes on with {unread[:SHOWN]!r}")
    return placed


def skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def find_end(text: str, at: int, form: str) -> int | None:
    """The end of a form that begins at `at`, or None; a blank inside it matches any blanks."""
    if text.startswith(form, at):
        return at + len(form) if form else None
    pieces = form.split()
    match = re.compile(r"\s++".join(map(re.escape, pieces))).match(text, at) if len(pieces) > 1 else None
    return match.end() if match else None


def find_expansion(text: str, at: int, written: Sequence[Written], more_text: bool) -> tuple[int, int] | None:
    """The number of words that share a different written form ('au' for 'à le'), and where that form ends; or None.

    The form ends where the next word begins, inside a run without blanks that has at least two words: a single word
    that differs means another text.
    """
    chunk_end = at
    while chunk_end < len(text) and not text[chunk_end].isspace():
        chunk_end += 1
    for count in range(1, min(len(written), LONGEST_EXPANSION) + 1):
        if len(written[count - 1].words) != 1:  # its written form is known, and is not here
            return None
        following = written[count].form if count < len(written) else None
        ends = [end for end in range(at + 1, chunk_end + 1) if continues(text, end, following, more_text)]
        if not ends:
            continue
        joined_before = at > 0 and text[at - 1].isalnum()
        joined_after = ends[0] < chunk_end and following is not None and any(map(str.isalnum, following))
        several = count > 1 or joined_before or joined_after
        unambiguous = len(ends) == 1 and several and begins_like(written[0].form, text[at : ends[0]])
        return (count, ends[0]) if unambiguous else None
    return None


def continues(text: str, end: int, following: str | None, more_text: bool) -> bool:
    """Whether the next word, or the end of the text, follows `end`."""
    rest = skip_blanks(text, end)
    if rest == len(text):
        return following is None or more_text
    return following is not None and find_end(text, rest, following) is not None


def begins_like(form: str, written: str) -> bool:
    """Whether two forms begin alike ('will', "won't"), or, after an apostrophe, end alike ('have', "'ve")."""
    expected, actual = (unicodedata.normalize("NFKD", word).casefold() for word in (form, written))
    return expected[:1] == actual[:1] or (actual[0] in "'’" and expected[-1:] == actual[-1])


def split_span(written: Written, span: Span) -> list[Span]:
    """A span for each word: its characters if the words are written one after another, else the span of all."""
    ends = [span[0], *(span[0] + end for end in accumulate(map(len, written.words)))]
    if ends[-1] != span[1] or "".join(written.words).casefold() != written.form.casefold():
        return [span] * len(written.words)
    return list(pairwise(ends))
