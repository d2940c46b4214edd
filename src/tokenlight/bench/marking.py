"""Which tokens of a case are marked: those of the gold answer or of the evidence."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tokenlight.bench.protocol import Protocol
from tokenlight.data.examples import Example, Span
from tokenlight.syntax.align import segment_tokens, tokens_of
from tokenlight.text.rows import TokenizedText


def find_marks(protocol: Protocol, tokenized_text: TokenizedText, example: Example) -> Tensor | None:
    """[token] bool; None where nothing is marked, or not all of it is among the tokens."""
    if example.answer is not None:
        return protocol.answer_marks(tokenized_text, example.answer)
    return mark(tokenized_text, [(0, span) for span in example.evidence])


def mark(tokenized_text: TokenizedText, places: Sequence[tuple[int, Span]]) -> Tensor | None:
    """The same for spans in parts of the text."""
    marks = torch.zeros(len(tokenized_text), dtype=torch.bool)
    for segment, span in places:
        found = tokens_of(segment_tokens(tokenized_text, segment), span)
        if found is None:
            return None
        marks[found[0] : found[1] + 1] = True
    return marks if places else None


def marked_span(marks: Tensor) -> tuple[int, int]:
    places = marks.nonzero()[:, 0]
    return int(places[0]), int(places[-1])
