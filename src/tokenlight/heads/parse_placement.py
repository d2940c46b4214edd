"""Finds the words of a parse in its text."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tokenlight.common.errors import RefusedValue

Span = tuple[int, int]
LONGEST_EXPANSION = 4  # words that one written word may stand for
SHOWN = 30  # characters of the text in an error


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
    """What stands in the text, for one word or for several."""

    form: str
    words: tuple[str, ...]
    where: str


def written_forms(sentence: Sequence[Entry]) -> list[Written]:
    """Words that belong to one written form are put together."""
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
        raise RefusedValue(f"{written[-1].where}: stands for words up to {end}, but the sentence has {count}")
    return written


def place_words(texts: Sequence[str], written: Sequence[Written], where: str, expand: bool) -> list[tuple[int, Span]]:
    """Segment and characters of every word; all that stands between and behind the words must be blank.

    With `expand`, words may be written otherwise in the text where it is clear what stands for them.
    """
    placed: list[tuple[int, Span]] = []
    segment, at, i = 0, skip_blanks(texts[0], 0), 0
    while i < len(written):
        if at == len(texts[segment]) and segment + 1 < len(texts):
            segment, at = segment + 1, skip_blanks(texts[segment + 1], 0)
        text = texts[segment]
        end = find_end(text, at, written[i].form)
        taken = 1
        if end is None:
            found = find_expansion(text, at, written[i:], segment + 1 < len(texts)) if expand else None
            if found is None:
                stands = repr(text[at : at + SHOWN]) if at < len(text) else "the end of the text"
                raise RefusedValue(f"{written[i].where}: expected the word {written[i].form!r} here, found {stands}")
            taken, end = found
        spans = split_span(written[i], (at, end)) if taken == 1 else [(at, end)] * taken
        placed += [(segment, span) for span in spans]
        at, i = skip_blanks(text, end), i + taken
    left = "".join([texts[segment][at:], *texts[segment + 1 :]]).strip()
    if left:
        where = written[-1].where if written else where
        raise RefusedValue(f"{where}: the parse has no more words, but the text goes on with {left[:SHOWN]!r}")
    return placed


def skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def find_end(text: str, at: int, form: str) -> int | None:
    """Where a form that begins at `at` ends; a blank inside it stands for any blanks."""
    if text.startswith(form, at):
        return at + len(form) if form else None
    parts = form.split()
    found = re.compile(r"\s++".join(map(re.escape, parts))).match(text, at) if len(parts) > 1 else None
    return found.end() if found else None


def find_expansion(text: str, at: int, written: Sequence[Written], more_text: bool) -> tuple[int, int] | None:
    """How many words stand for unread characters that are written otherwise ('au' for 'à le'), and where those end.

    They reach to where the next word is found again, inside one run without blanks that holds at least two words:
    a single word that differs is no expansion but another text.
    """
    chunk_end = at
    while chunk_end < len(text) and not text[chunk_end].isspace():
        chunk_end += 1
    for count in range(1, min(len(written), LONGEST_EXPANSION) + 1):
        if len(written[count - 1].words) != 1:  # its written form is known, and does not stand here
            return None
        following = written[count].form if count < len(written) else None
        ends = [end for end in range(at + 1, chunk_end + 1) if goes_on(text, end, following, more_text)]
        if not ends:
            continue
        glued_before = at > 0 and text[at - 1].isalnum()
        glued_behind = ends[0] < chunk_end and following is not None and any(map(str.isalnum, following))
        several = count > 1 or glued_before or glued_behind
        clear = len(ends) == 1 and several and begins_alike(written[0].form, text[at : ends[0]])
        return (count, ends[0]) if clear else None
    return None


def goes_on(text: str, end: int, following: str | None, more_text: bool) -> bool:
    """Whether the next word, or the end of the text, comes behind `end`."""
    rest = skip_blanks(text, end)
    if rest == len(text):
        return following is None or more_text
    return following is not None and find_end(text, rest, following) is not None


def begins_alike(form: str, found: str) -> bool:
    """'will' and 'won't', 'à' and 'au'; a shortened word behind an apostrophe ends alike: 'have' and "'ve"."""
    expected, stands = (unicodedata.normalize("NFKD", part).casefold() for part in (form, found))
    return expected[:1] == stands[:1] or (stands[0] in "'’" and expected[-1:] == stands[-1])


def split_span(written: Written, span: Span) -> list[Span]:
    """A span for each word: its own characters if the words are written one after the other, else the whole."""
    ends = [span[0], *(span[0] + end for end in accumulate(map(len, written.words)))]
    if ends[-1] != span[1] or "".join(written.words).casefold() != written.form.casefold():
        return [span] * len(written.words)
    return list(pairwise(ends))
