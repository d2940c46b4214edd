"""Answers to a question, as spans of a passage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.samples import SAMPLE
from tokenlight.tasks import register
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.targets import (
    GONE,
    Candidate,
    ChangedInput,
    MeasuredTarget,
    ResolvedTarget,
    Span,
    Target,
    TargetSpec,
    all_or_none,
    check_position,
    check_positions,
    refuse_equal,
)
from tokenlight.tasks.task import MOST, Task
from tokenlight.text.batch import Batch
from tokenlight.text.segmentation import find_whole
from tokenlight.text.tokenized_text import Text, TokenizedText, parts

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
    foil_has_own_query_position = True  # each answer is read where it stands
    reads_pairs = True
    names_spans = True
    score_word = "logits"
    trial_settings: ClassVar[Mapping[str, Any]] = {"num_labels": 2}

    def resolve_target(self, tokenized_text: TokenizedText, target: TargetSpec, foil: TargetSpec) -> ResolvedTarget:
        context = self.context(tokenized_text)
        span = None if target is None else answer_span(tokenized_text, target)
        other = None if foil is None else answer_span(tokenized_text, foil)
        refuse_equal(span, other, target)
        return ResolvedTarget(span=span, foil_span=other, context=context)

    def resolve_any_target(self, tokenized_text: TokenizedText) -> ResolvedTarget:
        return ResolvedTarget(context=self.context(tokenized_text))

    def context(self, tokenized_text: TokenizedText) -> Span:
        """The tokens that an answer may lie in."""
        if not isinstance(tokenized_text.text, tuple):
            raise RefusedValue("question answering explains a pair: explain((question, context))")
        inside = [i for i, segment in enumerate(tokenized_text.segments) if segment == 1]
        if not inside:
            raise RefusedValue("nothing of the context fits after the question: shorten the question")
        return inside[0], inside[-1]

    def resolve_target_ids(self, target: Any, foil: Any) -> ResolvedTarget:
        for span in (target, foil):
            if span is not None and not (isinstance(span, tuple) and len(span) == 2):
                raise RefusedValue(f"an answer is (first token, last token), found {span!r}")
            if span is not None and span[0] > span[1]:
                raise RefusedValue(f"an answer goes from its first to its last token; found {span}")
        refuse_equal(target, foil, target)
        return ResolvedTarget(span=target, foil_span=foil)

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
        raise RefusedType(f"an answer is a stretch of tokens and has no single index; found {name!r}")

    def name_of(self, index: int) -> str:
        return SIDES[index]

    def words(self, tokenized_text: TokenizedText, indices: Sequence[int]) -> str:
        return answer_text(tokenized_text, (indices[0], indices[-1]))

    def select(self, target: Target, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[OutputSelector, ...]:
        if target.function is not None:
            return super().select(target, output, batch, model)
        start, end = (output[side] for side in SIDES)
        spans = [
            resolved.span or best_span(start[i], end[i], resolved.context or (int(batch.first[i]), int(batch.last[i])))
            for i, resolved in enumerate(target.resolved)
        ]
        foils = [resolved.foil_span for resolved in target.resolved]
        for sides in zip(*spans, strict=True), zip(*foils, strict=True) if all_or_none(foils) else ():
            for positions in sides:
                check_positions(positions, batch)

        def part(field: str, side: int) -> OutputSelector:
            index = batch.input_ids.new_tensor([span[side] for span in spans])
            foil = None if None in foils else batch.input_ids.new_tensor([span[side] for span in foils if span])
            real = batch.attention_mask.bool()
            return OutputSelector(index, index, foil, field=field, of_tokens=True, foil_query_position=foil, among=real)

        return tuple(part(field, side) for side, field in enumerate(SIDES))

    def moved(
        self, resolved: ResolvedTarget, tokenized_text: TokenizedText, measured_target: MeasuredTarget
    ) -> ResolvedTarget:
        inside = [i for i, segment in enumerate(tokenized_text.segments) if segment == 1]
        if not inside:
            raise RefusedValue("nothing of the context is left to answer from")
        return replace(super().moved(resolved, tokenized_text, measured_target), context=(inside[0], inside[-1]))

    def measured_target(self, index: Sequence[int], foil: Sequence[int], position: int | None) -> MeasuredTarget:
        return MeasuredTarget(span=(index[0], index[1]), foil_span=(foil[0], foil[1]) if foil else None)

    def prediction(
        self, tokenized_text: TokenizedText, output: Any, resolved: ResolvedTarget, i: int
    ) -> tuple[str, float | None]:
        start, end = (output[side][i, : len(tokenized_text)].float() for side in SIDES)
        first, last = best_span(start, end, resolved.context or (0, len(tokenized_text) - 1))
        return answer_text(tokenized_text, (first, last)), float(start.softmax(0)[first] * end.softmax(0)[last])

    def candidates(
        self,
        tokenized_text: TokenizedText,
        output: Any,
        resolved: ResolvedTarget,
        asked: Sequence[int] = (),
        i: int = 0,
    ) -> tuple[Candidate, ...]:
        """Spans of the context by their probability as start times as end."""
        first, last = resolved.context or (0, len(tokenized_text) - 1)
        start, end = (output[side][i, : len(tokenized_text)].double().softmax(0) for side in SIDES)
        chances = start[first : last + 1, None] * end[None, first : last + 1]
        allowed = torch.ones_like(chances, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
        found = chances.masked_fill(~allowed, -1).flatten().topk(min(MOST, int(allowed.sum())))
        width = last + 1 - first
        spans = [(first + place // width, first + place % width) for place in found.indices.tolist()]
        return tuple(
            Candidate(answer_text(tokenized_text, span), probability=chance, span=span)
            for span, chance in zip(spans, found.values.tolist(), strict=True)
        )

    def log_probability(self, output: Any, question: ChangedInput, i: int) -> Tensor:
        """Of start and end together."""
        measured_target = question.measured_target
        found = torch.zeros((), dtype=torch.float64, device=output[SIDES[0]].device)
        if measured_target.span is None or measured_target.span == GONE:
            return found - torch.inf
        for side, field in enumerate(SIDES):
            row = output[field][i, : len(question)].double()
            place = measured_target.span[side]
            if measured_target.foil_span is None:
                found = found + row.log_softmax(0)[place]
            elif measured_target.foil_span != GONE:
                found = found + logsigmoid(row[place] - row[measured_target.foil_span[side]])
        return found

    @property
    def sample(self) -> tuple[Text, TargetSpec]:
        return ("Who is in the boat?", SAMPLE), None


@dataclass(frozen=True)
class LooseAnswers(ExtractiveAnswers):
    """Takes start and end of an answer as they come: each is the model's favorite, so an end may come first."""

    def resolve_target(self, tokenized_text: TokenizedText, target: Any, foil: Any) -> ResolvedTarget:
        return replace(super().resolve_target(tokenized_text, None, foil), span=target)


def best_span(start: Tensor, end: Tensor, context: Span) -> Span:
    """The pair start <= end with the highest sum of logits inside the context."""
    first, last = context
    sums = start[first : last + 1, None] + end[None, first : last + 1]
    allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
    best = int(sums.masked_fill(~allowed, -torch.inf).argmax())
    return first + best // len(sums), first + best % len(sums)


def answer_span(tokenized_text: TokenizedText, answer: object) -> Span:
    """First and last token of an answer given as text of the context or as a pair of token indices."""
    if isinstance(answer, tuple) and len(answer) == 2:
        first, last = (check_position(tokenized_text, position) for position in answer)
        if first > last:
            raise RefusedValue(f"an answer goes from its first to its last token; found {answer}")
        return first, last
    if not isinstance(answer, str):
        raise RefusedType(f"expected an answer as text or as (first token, last token), found {answer!r}")
    context = parts(tokenized_text.text)[1]
    if not answer or answer not in context:
        raise RefusedValue(f"the answer {answer!r} is not in the context exactly as written")
    start = find_whole(context, answer)
    if start is None:
        raise RefusedValue(
            f"the answer {answer!r} is in the context only inside longer words: give whole words, or the tokens as "
            "(first token, last token)"
        )
    end = start + len(answer)
    inside = [
        i
        for i, (segment, (first, last)) in enumerate(zip(tokenized_text.segments, tokenized_text.spans, strict=True))
        if segment == 1 and first < end and last > start
    ]
    in_context = [
        span for segment, span in zip(tokenized_text.segments, tokenized_text.spans, strict=True) if segment == 1
    ]
    kept = min(first for first, _ in in_context), max(last for _, last in in_context)  # characters of the context
    cut_off = tokenized_text.truncated and (kept[0] > start or kept[1] < start + len(answer.rstrip()))
    if not inside or cut_off:
        raise RefusedValue(f"the answer {answer!r} is in a part of the context that did not fit into the model")
    return inside[0], inside[-1]


def answer_text(tokenized_text: TokenizedText, span: Span) -> str:
    """The characters of the original text from the first to the last token of an answer."""
    first, last = span
    if tokenized_text.segments[first] is None or tokenized_text.segments[first] != tokenized_text.segments[last]:
        return " ".join(tokenized_text.tokens[first : last + 1])
    text = parts(tokenized_text.text)[tokenized_text.segments[first] or 0]
    return text[tokenized_text.spans[first][0] : tokenized_text.spans[last][1]]
