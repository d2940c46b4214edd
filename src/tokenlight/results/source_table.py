"""Which passage made it say this sentence? A score for each sentence of an answer and each source of its prompt."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from tokenlight.results.passage import Passage


@dataclass(frozen=True, eq=False)
class DocumentTable:
    """Rows are sentences of the answer. Columns are sources, followed by everything else that has a share."""

    parts: list[Passage]  # a sentence's score is the sum of its row
    documents: list[Passage]  # a source's score is the sum of its column
    scores: Tensor  # [sentence, source]

    @classmethod
    def of(cls, answer: str, spans: Sequence[tuple[int, int]], found: Sequence[Sequence[Passage]]) -> "DocumentTable":
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
        from tokenlight.views.source_table import show_table

        show_table(self)

    def to_html(self) -> str:
        """A standalone HTML page with the table, shaded."""
        from tokenlight.views.source_table import table_page

        return table_page(self)

    def _repr_html_(self) -> str:
        from tokenlight.views.source_table import table_fragment

        return table_fragment(self)

    def to_latex(self) -> str:
        """A table for a paper, with shaded cells."""
        from tokenlight.views.answer_latex import table_latex

        return table_latex(self)

    def save_figure(self, path: str | Path) -> None:
        """The same as PNG, SVG or PDF, depending on the ending of the name."""
        from tokenlight.views.figure import save
        from tokenlight.views.source_figure import document_figure

        save(document_figure(self), path)
