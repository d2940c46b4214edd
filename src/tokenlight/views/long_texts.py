"""Long texts: the strongest sentences first, and in the text itself what is not relevant is folded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tokenlight.results.explanation import Explanation, Passage
from tokenlight.views.layout import Piece, pieces

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
    """Sentences to show in front of a long text; none for a short one."""
    return explanation.strongest(STRONGEST) if is_long(explanation) else []


def folded(explanation: Explanation) -> Iterator[Piece | Fold]:
    """All pieces of a short text; of a long one, those that matter, and folds."""
    laid = list(pieces(explanation))
    if count_words(laid) <= LONG:
        yield from laid
        return
    for state, group in groupby(zip(laid, states(explanation, laid), strict=True), key=lambda pair: pair[1]):
        some = tuple(piece for piece, _ in group)
        if state == "open" or (state == "closed" and count_words(some) < SHORT):
            yield from some
        else:
            yield Fold(some)


def states(explanation: Explanation, laid: list[Piece]) -> Iterator[str]:
    """Of each piece: open, closed or unread; what stands between words goes with the word before."""
    sentences = explanation.sentences()
    place = {token: number for number, sentence in enumerate(sentences) for token in sentence.tokens}
    words = sorted((piece.word for piece in laid if piece.word and not piece.word.special), key=lambda w: -abs(w.score))
    order = sorted(range(len(sentences)), key=lambda number: -abs(sentences[number].score))
    stay = {0, len(sentences) - 1, *order[:OPEN_SENTENCES]} | {place[word.tokens[0]] for word in words[:OPEN_WORDS]}
    now = "open"
    for piece in laid:
        if piece.word is not None:
            now = "open" if piece.word.special or place[piece.word.tokens[0]] in stay else "closed"
        yield "unread" if piece.word is None and len(piece.text.split()) > SHORT else now


def count_words(some: Sequence[Piece]) -> int:
    return sum(piece.word is not None and not piece.word.special for piece in some)
