"""Prompt and answer word by word, with the strengths for a part of the answer: what figures and LaTeX print."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.views.drawable_answer import drawable_answer

Kind = Literal["word", "between", "added", "break", "fold"]
FEW = 2  # added tokens that are written out; more of them are counted


@dataclass(frozen=True)
class AnswerWord:
    """A word, what stands between words, tokens that a template added, a line break's token, or what is left out."""

    text: str
    kind: Kind
    tokens: tuple[int, ...] = ()
    strength: float = 0.0  # -1 to 1, relative to the strongest word of the prompt
    chosen: bool = False  # part of what is explained


def answer_words(answer: ExplainedAnswer, chosen: Sequence[int]) -> list[tuple[str, list[AnswerWord]]]:
    """Each message with its role, the prompt's and then the answer; `chosen` are tokens of the answer, from 0."""
    laid = [(block["role"], list(words_of(block))) for block in drawable_answer(answer)["blocks"]]
    scores = answer.matrix[list(chosen)].sum(0)
    start = answer.prompt_length
    marked = {start + i for i in chosen} if len(chosen) < len(answer) else set()

    def score(word: AnswerWord) -> float:
        return float(scores[list(word.tokens)].sum())

    words = [word for _, some in laid for word in some if word.kind == "word"]
    read = [abs(score(word)) for word in words if word.tokens[0] < start]
    largest = max(read, default=0.0) or max(map(abs, map(score, words)), default=0.0)

    def lit(word: AnswerWord) -> AnswerWord:
        strength = max(-1.0, min(1.0, score(word) / largest)) if word.kind == "word" and largest else 0.0
        return replace(word, strength=strength, chosen=not marked.isdisjoint(word.tokens))

    return [(role, [lit(word) for word in some]) for role, some in laid]


def words_of(block: Mapping[str, Any]) -> Iterator[AnswerWord]:
    if block["head"]:
        tokens = tuple(token for piece in block["head"] for token in piece["tokens"])
        written = "".join(piece["text"] for piece in block["head"])
        yield AnswerWord(written if len(tokens) <= FEW else f"[{len(tokens)} template tokens]", "added", tokens)
        yield AnswerWord(" ", "between")
    place = 0
    for first, end, label in block["folds"]:
        yield from joined(block["pieces"][place:first])
        yield AnswerWord(label, "fold")
        yield AnswerWord(" ", "between")
        place = end
    yield from joined(block["pieces"][place:])


def joined(pieces: Sequence[Mapping[str, Any]]) -> Iterator[AnswerWord]:
    """Pieces of the same word are one."""
    for _, group in groupby(pieces, key=lambda piece: piece["word"]):
        some = list(group)
        text, first = "".join(piece["text"] for piece in some), some[0]
        kind: Kind = "between" if not first["tokens"] else "added" if first["special"] else "word"
        tokens = tuple(token for piece in some for token in piece["tokens"])
        yield AnswerWord(text, "break" if first["newline"] else kind, tokens)
