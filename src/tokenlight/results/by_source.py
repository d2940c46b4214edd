"""Scores of tokens added up to those of sources, and of everything else."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenlight.results.passage import Passage
from tokenlight.text.rows import Chat, parts
from tokenlight.text.sources import Document

if TYPE_CHECKING:
    from tokenlight.results.explanation import Explanation

REST, BEGINNING, ANSWER = "rest of the prompt", "beginning of the text", "the answer itself"
TEMPLATE, ADDED = "template", "special tokens"


def members(explanation: "Explanation", source: Document) -> tuple[int, ...]:
    """The tokens that begin in a source; a line break's own token at its end is one of them."""
    start, end = source.span
    return tuple(
        token
        for token, (segment, (first, _)) in enumerate(zip(explanation.segments, explanation.spans, strict=True))
        if segment == source.segment and start <= first < end
    )


def passages_of(explanation: "Explanation", documents: Sequence[Document]) -> list[Passage]:
    texts = parts(explanation.text)
    return [
        sum_up(explanation, members(explanation, one), texts[one.segment][slice(*one.span)].strip(), one)
        for one in documents
    ]


def sum_up(explanation: "Explanation", tokens: Sequence[int], text: str, source: Document) -> Passage:
    score = float(explanation.scores[list(tokens)].sum())
    return Passage(text, score, tuple(tokens), source.segment, source.span, source.name)


def remainder(explanation: "Explanation") -> list[Passage]:
    """What no source has: other words, the first token if it is an added one, further added tokens, the answer."""
    taken = {token for source in explanation.documents for token in members(explanation, source)}
    added = TEMPLATE if isinstance(explanation.text, Chat) else ADDED
    groups: dict[str, list[int]] = {REST: [], BEGINNING: [], added: []}
    for token, segment in enumerate(explanation.segments):
        if token not in taken:
            groups[REST if segment is not None else BEGINNING if token == 0 else added].append(token)
    found = [
        Passage("", float(explanation.scores[tokens].sum()), tuple(tokens), None, (0, 0), name)
        for name, tokens in groups.items()
        if tokens
    ]
    own = explanation.extras.get("answer_share")
    return found if own is None else [*found, Passage("", own, (), None, (0, 0), ANSWER)]
