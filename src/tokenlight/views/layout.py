"""The layout of scores over the original text, shared by every view; long texts folded."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tokenlight.common.errors import RefusedType
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation
from tokenlight.results.units import Passage, Word
from tokenlight.text.segmentation import readable
from tokenlight.text.tokenized_text import Chat, Text, parts

CLEAR = 0.25  # of the strongest word: weaker negative scores are too pale to be noticed
BREAK = "↵"  # shown before a line break that has a token

Results = Explanation | Iterable[Explanation] | Mapping[str, Explanation | Sequence[Explanation]]


@dataclass(frozen=True)
class Piece:
    """A piece of the text: a word with its strength in [-1, 1], or text between words."""

    text: str
    strength: float = 0.0
    word: Word | None = None


def pieces(explanation: Explanation, words: Sequence[Word] | None = None) -> Iterator[Piece]:
    """The original text in order, with special tokens; `words` may be other units than the words of the text."""
    words = explanation.words() if words is None else words
    largest = max((abs(word.score) for word in words if word.counts), default=0.0)
    texts, chat = parts(explanation.text), isinstance(explanation.text, Chat)
    segment, position = None, 0
    for word in words:
        if word.special and word.segment is None:
            if segment is not None:
                yield from rest(texts[segment], position)
                segment = None
            written = readable(explanation.tokens[word.tokens[0]]) if chat else f" {word.text} "
            yield Piece(written, word=word)
            continue
        if word.segment != segment:
            if segment is not None:
                yield from rest(texts[segment], position)
            segment, position = word.segment, 0
        assert segment is not None
        start, end = word.span
        if start > position:
            yield Piece(texts[segment][position:start])
        strength = 0.0 if word.special or not largest else max(-1.0, min(1.0, word.score / largest))
        written = texts[segment][max(start, position) : end]
        yield Piece(BREAK + written if word.newline else written, strength, word)
        position = max(position, end)
    if segment is not None:
        yield from rest(texts[segment], position)


def rest(text: str, position: int) -> Iterator[Piece]:
    """The text after the last token, unless it is blank."""
    if text[position:].strip():
        yield Piece(text[position:])


def by_text(results: Results) -> list[list[Explanation]]:
    """Groups of explanations with the same text, target and foil, in the order of their first members."""
    if isinstance(results, Explanation):
        return [[results]]
    values = list(results.values() if isinstance(results, Mapping) else results)
    explanations = [
        explanation for value in values for explanation in (value if isinstance(value, list | tuple) else [value])
    ]
    groups: dict[tuple[Text, str, str | None], list[Explanation]] = {}
    for explanation in explanations:
        if not isinstance(explanation, Explanation):
            raise RefusedType(f"expected explanations, found {type(explanation).__name__}")
        groups.setdefault((explanation.text, explanation.target, explanation.foil), []).append(explanation)
    return list(groups.values())


def headline(explanation: Explanation) -> str:
    """The prediction: 'positive (p = 0.998)'."""
    sure = "" if explanation.probability is None else f" (p = {explanation.probability:.3f})"
    return f"{explanation.prediction.strip()}{sure}"


def explained(explanation: Explanation) -> str:
    """What was explained: 'positive, logit 3.21', 'are minus is, logit difference 1.02'."""
    if explanation.foil is None:
        return f"{explanation.target.strip()}, {explanation.score_word} {explanation.score:.3g}"
    return f"{explanation.target.strip()} minus {explanation.foil.strip()}, difference {explanation.score:.3g}"


def title_of(result: Explanation | ExplainedAnswer) -> str:
    """The name of the result's method in papers, or its identifier if the result has no title."""
    return result.method_title or result.method


def origin(explanations: Sequence[Explanation]) -> str:
    """Model and versions: 'Model: org/model. Made with tokenlight 0.2.0, torch 2.13.0, transformers 5.22.2.'"""
    models = ", ".join(dict.fromkeys(explanation.model for explanation in explanations))
    versions = dict.fromkeys(
        f"{name} {explanation.versions[name]}"
        for explanation in explanations
        for name in explanation.versions
        if name != "python"
    )
    return f"Model: {models}." + (f" Made with {', '.join(versions)}." if versions else "")


def notes_of(explanation: Explanation) -> tuple[str, ...]:
    """The notes of an explanation, and a caution if its method's scores are easily misread."""
    return tuple(group_notes([explanation]))


def group_notes(explanations: Sequence[Explanation]) -> list[str]:
    """The notes of several explanations, each once; a caution names all its methods."""
    notes = dict.fromkeys(note for explanation in explanations for note in explanation.notes)
    titles: dict[str, list[str]] = {}  # by caution
    for explanation in explanations:
        if caution := caution_about(explanation):
            titles.setdefault(caution, []).append(title_of(explanation))
    return [
        *notes,
        *(f"{', '.join(dict.fromkeys(method_titles))}: {caution}" for caution, method_titles in titles.items()),
    ]


def caution_about(explanation: Explanation) -> str:
    """What people easily take a method's minus for, where one is clearly seen."""
    scores = [word.score for word in explanation.words() if word.counts]
    misread = explanation.signed and bool(scores) and min(scores) < -CLEAR * max(map(abs, scores))
    return explanation.method_caution if misread else ""


def shared_notes(groups: Sequence[Sequence[Explanation]]) -> list[str]:
    """Those of more than one group."""
    counted = Counter(note for group in groups for note in group_notes(group))
    return [note for note, count in counted.items() if count > 1]


LONG = 300  # words; a shorter text is shown whole
STRONGEST = 5  # sentences that stand in front
OPEN_SENTENCES, OPEN_WORDS = 8, 12  # what stays open: the strongest sentences, and those around the strongest words
SHORT = 15  # words; fewer are not worth folding


@dataclass(frozen=True)
class Fold:
    """A stretch of the text that matters little, or that the model did not read."""

    pieces: tuple[Piece, ...]

    @property
    def label(self) -> str:
        if read := count_words(self.pieces):
            return f"… {read:,} words …"
        return f"… {sum(len(piece.text.split()) for piece in self.pieces):,} words that were not read …"


def is_long(explanation: Explanation) -> bool:
    return len(explanation.tokens) > LONG and sum(not word.special for word in explanation.words()) > LONG


def strongest(explanation: Explanation) -> list[Passage]:
    """Sentences to show before a long text; none for a short one."""
    return explanation.strongest(STRONGEST) if is_long(explanation) else []


def folded(explanation: Explanation) -> Iterator[Piece | Fold]:
    """All pieces of a short text; for a long one, its strongest pieces and folds."""
    all_pieces = list(pieces(explanation))
    if count_words(all_pieces) <= LONG:
        yield from all_pieces
        return
    for state, group in groupby(
        zip(all_pieces, states(explanation, all_pieces), strict=True), key=lambda pair: pair[1]
    ):
        group_pieces = tuple(piece for piece, _ in group)
        if state == "open" or (state == "closed" and count_words(group_pieces) < SHORT):
            yield from group_pieces
        else:
            yield Fold(group_pieces)


def states(explanation: Explanation, all_pieces: list[Piece]) -> Iterator[str]:
    """The state of each piece: open, closed or unread; text between words has that of the word before."""
    sentences = explanation.sentences()
    sentence_of_token = {token: number for number, sentence in enumerate(sentences) for token in sentence.tokens}
    words = sorted(
        (piece.word for piece in all_pieces if piece.word and not piece.word.special), key=lambda w: -abs(w.score)
    )
    order = sorted(range(len(sentences)), key=lambda number: -abs(sentences[number].score))
    open_sentences = {0, len(sentences) - 1, *order[:OPEN_SENTENCES]} | {
        sentence_of_token[word.tokens[0]] for word in words[:OPEN_WORDS]
    }
    state = "open"
    for piece in all_pieces:
        if piece.word is not None:
            state = (
                "open" if piece.word.special or sentence_of_token[piece.word.tokens[0]] in open_sentences else "closed"
            )
        yield "unread" if piece.word is None and len(piece.text.split()) > SHORT else state


def count_words(group_pieces: Sequence[Piece]) -> int:
    return sum(piece.word is not None and not piece.word.special for piece in group_pieces)
