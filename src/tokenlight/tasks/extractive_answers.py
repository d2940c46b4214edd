"""Answers to a question that stand in a context, letter by letter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel

from tokenlight.foundation.first_look import SAMPLE
from tokenlight.record.choices import Choice
from tokenlight.tasks import register
from tokenlight.tasks.targets import (
    GONE,
    Candidate,
    Goal,
    Question,
    Span,
    Target,
    TargetLike,
    Wanted,
    all_or_none,
    check_position,
    check_positions,
    refuse_equal,
)
from tokenlight.tasks.task import MOST, Field, Fields, Task
from tokenlight.text.batches import Batch
from tokenlight.text.rows import Row, Text, parts
from tokenlight.text.words import find_whole

SIDES = ("start_logits", "end_logits")
MAX_ANSWER = 30  # tokens of a predicted answer, as in BERT's own SQuAD evaluation


@register
@dataclass(frozen=True)
class ExtractiveAnswers(Task):
    """Where in the context does the answer stand? Explained is its start plus its end."""

    name = "question-answering"
    heads = ("ForQuestionAnswering",)
    auto_class = "AutoModelForQuestionAnswering"
    cut = "only_second"
    logits_for = "every token"
    parts = 2
    foil_has_own_row = True  # each answer is read where it stands
    reads_pairs = True
    names_spans = True
    score_word = "logits"
    trial_settings: ClassVar[Mapping[str, Any]] = {"num_labels": 2}

    def want(self, row: Row, target: TargetLike, foil: TargetLike) -> Wanted:
        context = self.context(row)
        span = None if target is None else answer_span(row, target)
        other = None if foil is None else answer_span(row, foil)
        refuse_equal(span, other, target)
        return Wanted(span=span, foil_span=other, context=context)

    def want_any(self, row: Row) -> Wanted:
        return Wanted(context=self.context(row))

    def context(self, row: Row) -> Span:
        """The tokens that an answer may lie in."""
        if not isinstance(row.text, tuple):
            raise ValueError("question answering explains a pair: explain((question, context))")
        inside = [i for i, segment in enumerate(row.segments) if segment == 1]
        if not inside:
            raise ValueError("nothing of the context fits after the question: shorten the question")
        return inside[0], inside[-1]

    def want_ids(self, target: Any, foil: Any) -> Wanted:
        for span in (target, foil):
            if span is not None and not (isinstance(span, tuple) and len(span) == 2):
                raise ValueError(f"an answer is (first token, last token), found {span!r}")
            if span is not None and span[0] > span[1]:
                raise ValueError(f"an answer goes from its first to its last token; found {span}")
        refuse_equal(target, foil, target)
        return Wanted(span=target, foil_span=foil)

    def trial_target(self, last: int) -> Any:
        return last // 2, last - 1

    def compose(self, target: Any, position: int | None = None, span: Span | None = None) -> Any:
        return super().compose(target, position) if span is None else span

    def check_shared(self, target: Any) -> None:
        """Every context has to hold it, which only reading them can tell."""

    @property
    def outputs(self) -> int:
        return 2  # start and end

    def index(self, name: object) -> int:
        raise TypeError(f"an answer is a stretch of tokens and has no single index; found {name!r}")

    def name_of(self, index: int) -> str:
        return SIDES[index]

    def words(self, row: Row, indices: Sequence[int]) -> str:
        return answer_text(row, (indices[0], indices[-1]))

    def choose(self, target: Target, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[Choice, ...]:
        if target.function is not None:
            return super().choose(target, output, batch, model)
        start, end = (output[side] for side in SIDES)
        spans = [
            wanted.span or best_span(start[i], end[i], wanted.context or (int(batch.first[i]), int(batch.last[i])))
            for i, wanted in enumerate(target.wanted)
        ]
        foils = [wanted.foil_span for wanted in target.wanted]
        for sides in zip(*spans, strict=True), zip(*foils, strict=True) if all_or_none(foils) else ():
            for positions in sides:
                check_positions(positions, batch)

        def part(field: str, side: int) -> Choice:
            index = batch.input_ids.new_tensor([span[side] for span in spans])
            foil = None if None in foils else batch.input_ids.new_tensor([span[side] for span in foils if span])
            real = batch.attention_mask.bool()
            return Choice(index, index, foil, field=field, of_tokens=True, foil_row=foil, among=real)

        return tuple(part(field, side) for side, field in enumerate(SIDES))

    def moved(self, wanted: Wanted, row: Row, goal: Goal) -> Wanted:
        inside = [i for i, segment in enumerate(row.segments) if segment == 1]
        if not inside:
            raise ValueError("nothing of the context is left to answer from")
        return replace(super().moved(wanted, row, goal), context=(inside[0], inside[-1]))

    def goal(self, index: Sequence[int], foil: Sequence[int], position: int | None) -> Goal:
        return Goal(span=(index[0], index[1]), foil_span=(foil[0], foil[1]) if foil else None)

    def prediction(self, row: Row, output: Any, wanted: Wanted, i: int) -> tuple[str, float | None]:
        start, end = (output[side][i, : len(row)].float() for side in SIDES)
        first, last = best_span(start, end, wanted.context or (0, len(row) - 1))
        return answer_text(row, (first, last)), float(start.softmax(0)[first] * end.softmax(0)[last])

    def candidates(
        self, row: Row, output: Any, wanted: Wanted, asked: Sequence[int] = (), i: int = 0
    ) -> tuple[Candidate, ...]:
        """Spans of the context by their probability as start times as end."""
        first, last = wanted.context or (0, len(row) - 1)
        start, end = (output[side][i, : len(row)].double().softmax(0) for side in SIDES)
        chances = start[first : last + 1, None] * end[None, first : last + 1]
        allowed = torch.ones_like(chances, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
        found = chances.masked_fill(~allowed, -1).flatten().topk(min(MOST, int(allowed.sum())))
        width = last + 1 - first
        spans = [(first + place // width, first + place % width) for place in found.indices.tolist()]
        return tuple(
            Candidate(answer_text(row, span), probability=chance, span=span)
            for span, chance in zip(spans, found.values.tolist(), strict=True)
        )

    def log_probability(self, output: Any, question: Question, i: int) -> Tensor:
        """Of start and end together."""
        goal = question.goal
        found = torch.zeros((), dtype=torch.float64, device=output[SIDES[0]].device)
        if goal.span is None or goal.span == GONE:
            return found - torch.inf
        for side, field in enumerate(SIDES):
            row = output[field][i, : len(question)].double()
            place = goal.span[side]
            if goal.foil_span is None:
                found = found + row.log_softmax(0)[place]
            elif goal.foil_span != GONE:
                found = found + logsigmoid(row[place] - row[goal.foil_span[side]])
        return found

    @property
    def fields(self) -> Fields:
        context = Field("Context", "The text that holds the answer")
        return Fields(Field("Question", "What do you want to know?"), context, second_required=True)

    @property
    def examples(self) -> list[Text]:
        return [("Who wrote the book?", "The book was written by a young author in Paris, who later moved to London.")]

    @property
    def sample(self) -> tuple[Text, TargetLike]:
        return ("Who is in the boat?", SAMPLE), None


@dataclass(frozen=True)
class LooseAnswers(ExtractiveAnswers):
    """Takes start and end of an answer as they come: each is the model's favourite, so an end may come first."""

    def want(self, row: Row, target: Any, foil: Any) -> Wanted:
        return replace(super().want(row, None, foil), span=target)


def best_span(start: Tensor, end: Tensor, context: Span) -> Span:
    """The pair start <= end with the highest sum of logits inside the context."""
    first, last = context
    sums = start[first : last + 1, None] + end[None, first : last + 1]
    allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
    best = int(sums.masked_fill(~allowed, -torch.inf).argmax())
    return first + best // len(sums), first + best % len(sums)


def answer_span(row: Row, answer: object) -> Span:
    """First and last token of an answer given as text of the context or as a pair of token indices."""
    if isinstance(answer, tuple) and len(answer) == 2:
        first, last = (check_position(row, position) for position in answer)
        if first > last:
            raise ValueError(f"an answer goes from its first to its last token; found {answer}")
        return first, last
    if not isinstance(answer, str):
        raise TypeError(f"expected an answer as text or as (first token, last token), found {answer!r}")
    context = parts(row.text)[1]
    if not answer or answer not in context:
        raise ValueError(f"the answer {answer!r} is not in the context exactly as written")
    start = find_whole(context, answer)
    if start is None:
        raise ValueError(
            f"the answer {answer!r} is in the context only inside longer words: give whole words, or the tokens as "
            "(first token, last token)"
        )
    end = start + len(answer)
    inside = [
        i
        for i, (segment, (first, last)) in enumerate(zip(row.segments, row.spans, strict=True))
        if segment == 1 and first < end and last > start
    ]
    in_context = [span for segment, span in zip(row.segments, row.spans, strict=True) if segment == 1]
    kept = min(first for first, _ in in_context), max(last for _, last in in_context)  # characters of the context
    cut_off = row.truncated and (kept[0] > start or kept[1] < start + len(answer.rstrip()))
    if not inside or cut_off:
        raise ValueError(f"the answer {answer!r} is in a part of the context that did not fit into the model")
    return inside[0], inside[-1]


def answer_text(row: Row, span: Span) -> str:
    """The characters of the original text from the first to the last token of an answer."""
    first, last = span
    if row.segments[first] is None or row.segments[first] != row.segments[last]:
        return " ".join(row.tokens[first : last + 1])
    text = parts(row.text)[row.segments[first] or 0]
    return text[row.spans[first][0] : row.spans[last][1]]
