"""Scores of sentences and documents, and the table of an answer's sentences by documents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tokenlight.text.segmentation import Span
from tokenlight.text.tokenized_text import Chat, Document

if TYPE_CHECKING:
    from tokenlight.results.explanation import Explanation


@dataclass(frozen=True)
class Word:
    """A word of the original text; its score is the sum over its tokens."""

    text: str  # as it is written there
    score: float  # of all its tokens together
    tokens: tuple[int, ...]  # their numbers in the explanation
    special: bool  # a token that the tokenizer added, such as [CLS]
    segment: int | None  # the text of a pair, or the message of a chat, that it stands in
    span: Span  # its characters there
    error: float | None = None  # the score's standard error, where it is a mean over contexts

    @property
    def newline(self) -> bool:
        """A line break that takes a token of its own."""
        return not self.special and self.text.isspace()

    @property
    def counts(self) -> bool:
        """Neither special nor a line break or blank."""
        return not self.special and bool(self.text.strip())


@dataclass(frozen=True)
class Passage:
    """A sentence, a paragraph or another part of the original text; its score is the sum over its tokens."""

    text: str  # as it is written there
    score: float  # of all its tokens together
    tokens: tuple[int, ...]  # their numbers in the explanation
    segment: int | None  # the text of a pair, or the message of a chat, that it stands in
    span: Span  # its characters there
    name: str = ""  # of a source or a turn; empty for others


REST, BEGINNING, ANSWER = "rest of the prompt", "beginning of the text", "the answer itself"
TEMPLATE, ADDED = "template", "special tokens"


def tokens_of_document(explanation: "Explanation", document: Document) -> tuple[int, ...]:
    """The tokens that begin in a document, special tokens included."""
    return tuple(explanation.tokens_starting_in(document.segment, document.span, keep_special=True))


def passages_of(explanation: "Explanation", documents: Sequence[Document]) -> list[Passage]:
    texts = explanation.texts
    return [
        sum_up(
            explanation,
            tokens_of_document(explanation, document),
            texts[document.segment][slice(*document.span)].strip(),
            document,
        )
        for document in documents
    ]


def sum_up(explanation: "Explanation", tokens: Sequence[int], text: str, source: Document) -> Passage:
    score = float(explanation.scores[list(tokens)].sum())
    return Passage(text, score, tuple(tokens), source.segment, source.span, source.name)


def remainder(explanation: "Explanation") -> list[Passage]:
    """What no source has: other words, the first token if it is an added one, further added tokens, the answer."""
    taken = {token for source in explanation.documents for token in tokens_of_document(explanation, source)}
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


@dataclass(frozen=True, eq=False)
class DocumentTable:
    """Rows are sentences of the answer. Columns are sources, followed by everything else that has a share."""

    parts: list[Passage]  # a sentence's score is the sum of its row
    documents: list[Passage]  # a source's score is the sum of its column
    scores: Tensor  # [sentence, source]

    @classmethod
    def of(cls, answer: str, spans: Sequence[Span], found: Sequence[Sequence[Passage]]) -> "DocumentTable":
        """From what `Explanation.by_document` says of each sentence; all of them name the same sources."""
        scores = torch.tensor([[source.score for source in row] for row in found], dtype=torch.float64)
        sums = scores.sum(0).tolist()
        parts = [
            Passage(answer[slice(*span)].strip(), total, (), None, span, f"sentence {i + 1}")
            for i, (span, total) in enumerate(zip(spans, scores.sum(1).tolist(), strict=True))
        ]
        return cls(parts, [replace(one, score=total) for one, total in zip(found[0], sums, strict=True)], scores)

    def strongest(self, part: int) -> Passage:
        """The source with the highest score for a sentence, with that score; other columns do not count."""
        named = [i for i, source in enumerate(self.documents) if source.segment is not None]
        best = max(named, key=lambda i: float(self.scores[part, i]))
        return replace(self.documents[best], score=float(self.scores[part, best]))

    def show(self) -> None:
        """Print the table; in a narrow terminal, the strongest sources under each sentence."""
        from tokenlight.views.document_table import show_table

        show_table(self)

    def to_html(self) -> str:
        """A standalone HTML page with the table, shaded."""
        from tokenlight.views.document_table import table_page

        return table_page(self)

    def _repr_html_(self) -> str:
        from tokenlight.views.document_table import table_fragment

        return table_fragment(self)

    def to_latex(self) -> str:
        """A table for a paper, with shaded cells."""
        from tokenlight.views.latex import table_latex

        return table_latex(self)

    def save_figure(self, path: str | Path) -> None:
        """The same as PNG, SVG or PDF, depending on the ending of the name."""
        from tokenlight.views.document_table import document_figure
        from tokenlight.views.drawing import save

        save(document_figure(self), path)
