"""Explains answers of a corpus, whole, by sentence or by token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.corpus.plan import (
    AnswerScores,
    ExplainedText,
    ExplainingPlan,
    Failure,
    ReadAnswer,
    in_batches,
    or_failure,
)
from tokenlight.corpus.settings import Each
from tokenlight.data.examples import Example
from tokenlight.explain.answers import answer_request, facts_of_answer, log_probabilities
from tokenlight.explain.assemble import assemble
from tokenlight.explain.in_batches import explain_in_batches
from tokenlight.explain.running import RunOptions
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import Answer
from tokenlight.results.explanation import Explanation, keep_precision
from tokenlight.results.units import Passage
from tokenlight.runs.engines import Tell
from tokenlight.tasks.request import Request
from tokenlight.text.documents import Document
from tokenlight.text.segmentation import Span, sentences
from tokenlight.text.tokenized_text import TokenizedText

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


@dataclass(frozen=True)
class AnswerDraft:
    """A prompt with its answer, as the model reads them."""

    number: int
    example: Example
    request: Request
    answer: ReadAnswer


def draft_answer(plan: ExplainingPlan, number: int, example: Example, prompt: TokenizedText) -> AnswerDraft:
    settings = plan.settings
    if (settings.target, settings.foil, example.target, example.foil) != (None, None, None, None):
        raise RefusedValue("an answer to a prompt is explained by itself: leave target and foil out")
    assert example.reply is not None, "only prompts with answers come here"
    prompt = replace(prompt, documents=example.documents)
    request = answer_request(plan.explainer.task, prompt, example.reply, settings.quantity == "log_probability")
    parts, cuts = cut_answer(request.read, len(prompt), settings.each)
    start, text = len(prompt), request.read.texts[-1]
    read = ReadAnswer(text, request.read.tokens[start:], request.read.spans[start:], cuts)
    return AnswerDraft(number, example, replace(request, resolved=replace(request.resolved, parts=parts)), read)


def cut_answer(read: TokenizedText, start: int, each: Each) -> tuple[tuple[int, ...], list[Span]]:
    """For every token from `start` on, those of the answer, the number of its part; and the parts' characters."""
    if each == "token":
        spans = read.spans[start:]
        return tuple(range(len(spans))), spans
    answer = len(read.texts) - 1
    cut = sentences if each == "sentence" else whole
    kept = [section for section in read.divide(cut, segments=[answer], keep_special=True) if section.tokens]
    numbers = {token: number for number, section in enumerate(kept) for token in section.tokens}
    return tuple(numbers[token] for token in range(start, len(read))), [section.span for section in kept]


def whole(text: str) -> list[Span]:
    return [(0, len(text))]


def explain_answers(
    plan: ExplainingPlan, instrumented: InstrumentedModel, drafts: Sequence[AnswerDraft], tell: Tell, strict: bool
) -> list[ExplainedText | Failure]:
    def run(places: list[int]) -> list[dict[str, tuple[Explanation, AnswerScores]]]:
        chosen = plan.settings
        running = RunOptions(
            len(places), chosen.low_memory, progress=False, fused=chosen.fused, instrumented=instrumented
        )
        asked = [drafts[i].request for i in places]
        found = explain_in_batches(plan.explainer, asked, plan.method_configs, running, assemble_parts)
        return [{label: results[i] for label, results in found.items()} for i in range(len(places))]

    tokenized_texts = [draft.request.read for draft in drafts]
    found = in_batches(tokenized_texts, plan.tokens, plan.equal_lengths, run, lambda places: tell(len(places)), strict)
    return [or_failure(partial(finish, plan, draft, one), strict) for draft, one in zip(drafts, found, strict=True)]


def finish(
    plan: ExplainingPlan, draft: AnswerDraft, found: dict[str, tuple[Explanation, AnswerScores]] | Failure
) -> ExplainedText | Failure:
    if isinstance(found, Failure):
        return found
    for label, (_, scores) in found.items():
        if reason := plan.refusal(label, scores.matrix):
            return Failure(reason)
    return ExplainedText(
        draft.number,
        draft.example,
        {label: whole for label, (whole, _) in found.items()},
        answer=draft.answer,
        by_part={
            label: replace(scores, by_document=by_document(whole, scores.matrix, draft.example.documents))
            for label, (whole, scores) in found.items()
        },
    )


def by_document(whole: Explanation, matrix: Tensor, documents: tuple[Document, ...]) -> list[list[Passage]]:
    """For each part of the answer the scores of the documents, and of everything else; none without documents."""
    length = len(whole.tokens)
    parts = [
        replace(whole, scores=row[:length], documents=documents, extras={"answer_share": float(row[length:].sum())})
        for row in matrix
    ]
    return [part.by_document() for part in parts] if documents else []


def assemble_parts(
    explainer: "Explainer",
    request: Request,
    method_config: MethodConfig,
    answer: Answer,
    attribution: Attribution,
    place: int,
) -> tuple[Explanation, AnswerScores]:
    """The prompt's explanation, added up over the answer's parts, and what there is to say of the parts."""
    tokenized_text, ids, parts = request.read, request.resolved.answer, torch.tensor(request.resolved.parts)
    numbers, logits = facts_of_answer(answer, place, len(ids))
    matrix = keep_precision(attribution.scores[place, : int(parts.max()) + 1, : len(tokenized_text)])
    whole = assemble(explainer, request, method_config, answer, added_up(attribution), place)
    scores = AnswerScores(
        log_probabilities=log_probabilities(logits, ids).cpu(),
        numbers=torch.zeros(len(matrix), dtype=torch.float64).index_add_(0, parts, numbers.cpu().double()),
        matrix=matrix,
    )
    return whole, scores


def added_up(attribution: Attribution) -> Attribution:
    """Over the parts of the target [batch, part, ...]; maps are not written."""
    extras = {name: values.sum(1) for name, values in attribution.extras.items()}
    return replace(attribution, scores=attribution.scores.sum(1), extras=extras, maps={})
