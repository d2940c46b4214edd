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
from tokenlight.tasks.target_functions import OutputFunction
from tokenlight.tasks.targets import (
    REMOVED,
    Candidate,
    ChangedInput,
    ResolvedTarget,
    Span,
    TargetSpec,
    check_position,
    check_positions,
    foil_tensor,
    have_foils,
    refuse_equal,
    span_indices,
)
from tokenlight.tasks.task import MAX_CANDIDATES, Task
from tokenlight.text.batch import Batch
from tokenlight.text.segmentation import find_whole
from tokenlight.text.tokenized_text import Text, TokenizedText, is_whole, parts

SIDES = ("start_logits", "end_logits")
MAX_ANSWER = 30  # tokens of a predicted answer, as in BERT's own SQuAD evaluation


@register
@dataclass(frozen=True)
class ExtractiveAnswers(Task):
    """An answer as a span of the passage. The explained number is its start logit plus its end logit."""

    name = "question-answering"
    heads = ("ForQuestionAnswering",)
    auto_class = "AutoModelForQuestionAnswering"
    cut = "only_second"
    logits_for = "every token"
    target_kinds = ("span",)
    parts = 2
    foil_has_own_query_position = True
    reads_pairs = True
    names_spans = True
    score_word = "logits"
    trial_settings: ClassVar[Mapping[str, Any]] = {"num_labels": 2}

    def resolve_names(self, tokenized_text: TokenizedText, target: Any, foil: Any) -> ResolvedTarget:
        passage = self.passage(tokenized_text)
        span = None if target is None else answer_span(tokenized_text, target)
        foil_span = None if foil is None else answer_span(tokenized_text, foil)
        refuse_equal(span, foil_span, target)
        return ResolvedTarget(span_indices(span), span_indices(foil_span), "span", passage=passage)

    def check_resolved(self, tokenized_text: TokenizedText, target: ResolvedTarget) -> None:
        super().check_resolved(tokenized_text, replace(target, passage=None))
        for position in (*target.indices, *target.foil, *span_indices(target.passage)):
            check_position(tokenized_text, position)

    def resolve_function(self, tokenized_text: TokenizedText, function: OutputFunction) -> ResolvedTarget:
        return replace(super().resolve_function(tokenized_text, function), passage=self.passage(tokenized_text))

    def passage(self, tokenized_text: TokenizedText) -> Span:
        """The tokens that an answer may consist of."""
        if not isinstance(tokenized_text.text, tuple):
            raise RefusedValue("question answering explains a pair: explain((question, context))")
        inside = [i for i, segment in enumerate(tokenized_text.segments) if segment == 1]
        if not inside:
            raise RefusedValue("nothing of the context fits after the question: shorten the question")
        return inside[0], inside[-1] + 1

    def resolve_target_ids(self, target: Any, foil: Any) -> ResolvedTarget:
        for span in (target, foil):
            if span is not None and not (isinstance(span, tuple) and len(span) == 2 and all(map(is_whole, span))):
                raise RefusedValue(f"an answer is (first token, token after the last), found {span!r}")
            if span is not None:
                check_span(span)
        refuse_equal(target, foil, target)
        return ResolvedTarget(span_indices(target), span_indices(foil), "span")

    def trial_target(self, last: int) -> Any:
        return last // 2, last

    def compose(self, target: Any, position: int | None = None, span: Span | None = None) -> Any:
        return super().compose(target, position) if span is None else span

    def check_shared(self, target: Any) -> None:
        """Nothing to check here: whether a passage has the answer depends on the passage."""

    @property
    def outputs(self) -> int:
        return 2  # start and end

    def index(self, name: object) -> int:
        raise RefusedType(f"an answer is a span of tokens and has no single index; found {name!r}")

    def name_of(self, index: int) -> str:
        return SIDES[index]

    def words(self, tokenized_text: TokenizedText, indices: Sequence[int]) -> str:
        return answer_text(tokenized_text, (indices[0], indices[-1] + 1))

    def select(
        self, targets: Sequence[ResolvedTarget], output: Any, batch: Batch, model: PreTrainedModel
    ) -> tuple[OutputSelector, ...]:
        if targets[0].function is not None:
            return super().select(targets, output, batch, model)
        start, end = (output[side] for side in SIDES)
        ends = [
            target.indices
            or span_indices(
                best_span(start[i], end[i], target.passage or (int(batch.first[i]), int(batch.last[i]) + 1))
            )
            for i, target in enumerate(targets)
        ]
        foils = [target.foil for target in targets]
        has_foil = have_foils(foils)
        for positions in (*zip(*ends, strict=True), *(zip(*foils, strict=True) if has_foil else ())):
            check_positions(positions, batch)
        real = batch.attention_mask.bool()

        def select_side(side: int) -> OutputSelector:
            index = batch.input_ids.new_tensor([target[side] for target in ends])
            foil = foil_tensor(foils, side, batch.input_ids.device)
            return OutputSelector(
                index, index, foil, field=SIDES[side], of_tokens=True, foil_query_position=foil, among=real
            )

        return tuple(select_side(side) for side in range(len(SIDES)))

    def measured_target(self, selected: ResolvedTarget) -> ResolvedTarget:
        return ResolvedTarget(selected.indices, selected.foil, "span")

    def prediction_target(self, tokenized_text: TokenizedText, position: int | None) -> ResolvedTarget:
        if 1 not in tokenized_text.segments:
            raise RefusedValue("nothing of the context is left to answer from")
        return ResolvedTarget(kind="span", passage=self.passage(tokenized_text))

    def prediction(
        self, tokenized_text: TokenizedText, output: Any, target: ResolvedTarget, i: int
    ) -> tuple[str, float | None]:
        start, end = (output[side][i, : len(tokenized_text)].float() for side in SIDES)
        span = best_span(start, end, target.passage or (0, len(tokenized_text)))
        first, last = span_indices(span)
        return answer_text(tokenized_text, span), float(start.softmax(0)[first] * end.softmax(0)[last])

    def candidates(
        self,
        tokenized_text: TokenizedText,
        output: Any,
        target: ResolvedTarget,
        named: Sequence[int] = (),
        i: int = 0,
    ) -> tuple[Candidate, ...]:
        """Spans of the passage, by the probability of their start times that of their end."""
        first, stop = target.passage or (0, len(tokenized_text))
        start, end = (output[side][i, : len(tokenized_text)].double().softmax(0) for side in SIDES)
        probabilities = start[first:stop, None] * end[None, first:stop]
        allowed = torch.ones_like(probabilities, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
        best = probabilities.masked_fill(~allowed, -1).flatten().topk(min(MAX_CANDIDATES, int(allowed.sum())))
        width = stop - first
        spans = [(first + place // width, first + place % width + 1) for place in best.indices.tolist()]
        return tuple(
            Candidate(answer_text(tokenized_text, span), probability=probability, span=span)
            for span, probability in zip(spans, best.values.tolist(), strict=True)
        )

    def log_probability(self, output: Any, changed: ChangedInput, i: int) -> Tensor:
        """Of start and end together. An answer of which no token is left has probability 0."""
        target = changed.target
        total = torch.zeros((), dtype=torch.float64, device=output[SIDES[0]].device)
        if target.indices == REMOVED:
            return total - torch.inf
        for side, field in enumerate(SIDES):
            logits = output[field][i, : len(changed)].double()
            position = target.indices[side]
            if not target.foil:
                total = total + logits.log_softmax(0)[position]
            elif target.foil != REMOVED:
                total = total + logsigmoid(logits[position] - logits[target.foil[side]])
        return total

    @property
    def sample(self) -> tuple[Text, TargetSpec]:
        return ("Who is in the boat?", SAMPLE), None


def best_span(start: Tensor, end: Tensor, passage: Span) -> Span:
    """The span of the passage with the highest sum of its start logit and its end logit."""
    first, stop = passage
    sums = start[first:stop, None] + end[None, first:stop]
    allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
    best = int(sums.masked_fill(~allowed, -torch.inf).argmax())
    return first + best // len(sums), first + best % len(sums) + 1


def check_span(span: tuple[Any, Any]) -> None:
    if span[0] >= span[1]:
        raise RefusedValue(
            f"an answer is (first token, token after the last), so it ends after its first token; found {span}"
        )


def answer_span(tokenized_text: TokenizedText, answer: object) -> Span:
    """The tokens of an answer, given as a text that occurs in the passage or as a span of tokens."""
    if isinstance(answer, tuple) and len(answer) == 2:
        first, stop = answer
        first = check_position(tokenized_text, first)
        if not is_whole(stop) or not 0 < stop <= len(tokenized_text):
            raise RefusedValue(
                f"{stop!r} does not follow a token of this text, which has tokens 0 to {len(tokenized_text) - 1}"
            )
        check_span((first, stop))
        return first, int(stop)
    if not isinstance(answer, str):
        raise RefusedType(f"expected an answer as text or as (first token, token after the last), found {answer!r}")
    context = parts(tokenized_text.text)[1]
    if not answer or answer not in context:
        raise RefusedValue(f"the answer {answer!r} is not in the context exactly as written")
    start = find_whole(context, answer)
    if start is None:
        raise RefusedValue(
            f"the answer {answer!r} is in the context only inside longer words: give whole words, or the tokens as "
            "(first token, token after the last)"
        )
    end = start + len(answer)
    character_spans = {
        i: span
        for i, (segment, span) in enumerate(zip(tokenized_text.segments, tokenized_text.spans, strict=True))
        if segment == 1
    }
    inside = [i for i, (first, stop) in character_spans.items() if first < end and stop > start]
    kept = min(first for first, _ in character_spans.values()), max(stop for _, stop in character_spans.values())
    cut_off = tokenized_text.truncated and (kept[0] > start or kept[1] < start + len(answer.rstrip()))
    if not inside or cut_off:
        raise RefusedValue(f"the answer {answer!r} is in a part of the context that did not fit into the model")
    return inside[0], inside[-1] + 1


def answer_text(tokenized_text: TokenizedText, span: Span) -> str:
    """The characters of the original text from the first to the last token of an answer."""
    first, last = span_indices(span)
    segment = tokenized_text.segments[first]
    if segment is None or segment != tokenized_text.segments[last]:
        return " ".join(tokenized_text.tokens[first : last + 1])
    text = parts(tokenized_text.text)[segment]
    return text[tokenized_text.spans[first][0] : tokenized_text.spans[last][1]]
