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

    text: str  # as in the original text
    score: float  # the sum over its tokens
    tokens: tuple[int, ...]  # positions of its tokens in the explanation
    special: bool  # a token that the tokenizer added, such as [CLS]
    segment: int | None  # the text of a pair or the message of a chat that it belongs to
    span: Span  # its characters in the segment
    error: float | None = None  # the standard error of the score, if it is a mean over contexts

    @property
    def newline(self) -> bool:
        """Whether it is a token that consists of line breaks or blanks."""
        return not self.special and self.text.isspace()

    @property
    def counts(self) -> bool:
        """Whether it takes part in rankings: it is neither special nor only line breaks or blanks."""
        return not self.special and bool(self.text.strip())


@dataclass(frozen=True)
class Passage:
    """A sentence, a paragraph or another part of the original text; its score is the sum over its tokens."""

    text: str  # as in the original text
    score: float  # the sum over its tokens
    tokens: tuple[int, ...]  # positions of its tokens in the explanation
    segment: int | None  # the text of a pair or the message of a chat that it belongs to
    span: Span  # its characters in the segment
    name: str = ""  # of a document or a turn; empty for other passages


REST, BEGINNING, ANSWER = "rest of the prompt", "beginning of the text", "the answer itself"
TEMPLATE, ADDED = "template", "special tokens"


def tokens_of_document(explanation: "Explanation", document: Document) -> tuple[int, ...]:
    """The tokens that begin in a document, special tokens included."""
    return tuple(explanation.tokens_starting_in(document.segment, document.span, keep_special=True))


def passages_of(explanation: "Explanation", documents: Sequence[Document]) -> list[Passage]:
    """Documents with the sums of their tokens' scores."""
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


def sum_up(explanation: "Explanation", tokens: Sequence[int], text: str, document: Document) -> Passage:
    """A document as a passage with the sum of the tokens' scores."""
    score = float(explanation.scores[list(tokens)].sum())
    return Passage(text, score, tuple(tokens), document.segment, document.span, document.name)


def remainder(explanation: "Explanation") -> list[Passage]:
    """Groups of the tokens in no document: other words, an added first token, further added tokens; and the answer."""
    in_documents = {token for document in explanation.documents for token in tokens_of_document(explanation, document)}
    added = TEMPLATE if isinstance(explanation.text, Chat) else ADDED
    groups: dict[str, list[int]] = {REST: [], BEGINNING: [], added: []}
    for token, segment in enumerate(explanation.segments):
        if token not in in_documents:
            groups[REST if segment is not None else BEGINNING if token == 0 else added].append(token)
    passages = [
        Passage("", float(explanation.scores[tokens].sum()), tuple(tokens), None, (0, 0), name)
        for name, tokens in groups.items()
        if tokens
    ]
    answer_share = explanation.extras.get("answer_share")
    return passages if answer_share is None else [*passages, Passage("", answer_share, (), None, (0, 0), ANSWER)]


@dataclass(frozen=True, eq=False)
class DocumentTable:
    """Scores of documents for each sentence of an answer.

    Rows are sentences; columns are documents, followed by groups of all other tokens.
    """

    parts: list[Passage]  # sentences; a sentence's score is the sum of its row
    documents: list[Passage]  # columns; a column's score is its sum
    scores: Tensor  # [sentence, column]

    @classmethod
    def of(cls, answer: str, spans: Sequence[Span], rows: Sequence[Sequence[Passage]]) -> "DocumentTable":
        """From sentences, given as spans of the answer, and their `Explanation.by_document()`, with equal columns."""
        scores = torch.tensor([[passage.score for passage in row] for row in rows], dtype=torch.float64)
        sums = scores.sum(0).tolist()
        parts = [
            Passage(answer[slice(*span)].strip(), total, (), None, span, f"sentence {i + 1}")
            for i, (span, total) in enumerate(zip(spans, scores.sum(1).tolist(), strict=True))
        ]
        columns = [replace(passage, score=total) for passage, total in zip(rows[0], sums, strict=True)]
        return cls(parts, columns, scores)

    def strongest(self, part: int) -> Passage:
        """The document with the highest score for a sentence, with that score; other columns do not count."""
        named = [i for i, column in enumerate(self.documents) if column.segment is not None]
        best = max(named, key=lambda i: float(self.scores[part, i]))
        return replace(self.documents[best], score=float(self.scores[part, best]))

    def show(self) -> None:
        """Print the table; in a narrow terminal, the strongest documents under each sentence."""
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
        """Save the table as PNG, SVG or PDF, depending on the ending of the name."""
        from tokenlight.views.document_table import document_figure
        from tokenlight.views.drawing import save

        save(document_figure(self), path)
