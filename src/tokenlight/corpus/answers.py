"""Explains the answers of a corpus: as a whole, by sentence or by token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.corpus.plan import (
    AnswerScores,
    ExplainedText,
    ExplainingPlan,
    Failure,
    ReadAnswer,
    or_failure,
    run_in_batches,
)
from tokenlight.corpus.settings import Each
from tokenlight.data.examples import Example
from tokenlight.explain.assemble import assemble_explanation, continuation_numbers, log_probabilities
from tokenlight.explain.options import Resources, RunOptions
from tokenlight.explain.resolve import answer_request
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import PassOutput
from tokenlight.results.explanation import Explanation, keep_precision
from tokenlight.results.units import Passage
from tokenlight.runs.engines import Advance
from tokenlight.tasks.request import Request
from tokenlight.tasks.task import Task
from tokenlight.text.documents import Document
from tokenlight.text.segmentation import Span, sentences
from tokenlight.text.tokenized_text import TokenizedText


@dataclass(frozen=True)
class AnswerDraft:
    """A prompt with its answer, tokenized."""

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
    request = answer_request(plan.explainer.task, prompt, example.reply, settings.quantity)
    parts, part_spans = split_answer(request.model_input, len(prompt), settings.each)
    start, answer_text = len(prompt), request.model_input.texts[-1]
    answer = ReadAnswer(answer_text, request.model_input.tokens[start:], request.model_input.spans[start:], part_spans)
    return AnswerDraft(number, example, replace(request, target=replace(request.target, parts=parts)), answer)


def split_answer(read: TokenizedText, start: int, each: Each) -> tuple[tuple[int, ...], list[Span]]:
    """The number of the part for each token of the answer, which begins at `start`; and the characters of each part."""
    if each == "token":
        spans = read.spans[start:]
        return tuple(range(len(spans))), spans
    answer_segment = len(read.texts) - 1
    segment = sentences if each == "sentence" else whole_text
    divided = read.divide(segment, segments=[answer_segment], keep_special=True)
    sections = [section for section in divided if section.tokens]
    numbers = {token: number for number, section in enumerate(sections) for token in section.tokens}
    return tuple(numbers[token] for token in range(start, len(read))), [section.span for section in sections]


def whole_text(text: str) -> list[Span]:
    return [(0, len(text))]


def explain_answers(
    plan: ExplainingPlan, instrumented: InstrumentedModel, drafts: Sequence[AnswerDraft], advance: Advance, strict: bool
) -> list[ExplainedText | Failure]:
    def run(indices: list[int]) -> list[dict[str, tuple[Explanation, AnswerScores]]]:
        settings = plan.settings
        run_options = RunOptions(len(indices), settings.low_memory, settings.fused, progress=False)
        requests = [drafts[i].request for i in indices]
        by_label = plan.explainer.run_requests(
            requests, plan.method_configs, run_options, Resources(instrumented), assemble_parts
        )
        return [{label: results[i] for label, results in by_label.items()} for i in range(len(indices))]

    def on_batch_done(indices: list[int]) -> None:
        advance(len(indices))

    tokenized_texts = [draft.request.model_input for draft in drafts]
    results = run_in_batches(tokenized_texts, plan.tokens, plan.equal_lengths, run, on_batch_done, strict)
    return [
        or_failure(partial(make_explained_text, plan, draft, result), strict)
        for draft, result in zip(drafts, results, strict=True)
    ]


def make_explained_text(
    plan: ExplainingPlan, draft: AnswerDraft, results: dict[str, tuple[Explanation, AnswerScores]] | Failure
) -> ExplainedText | Failure:
    if isinstance(results, Failure):
        return results
    for label, (_, scores) in results.items():
        if reason := plan.refusal(label, scores.matrix):
            return Failure(reason)
    return ExplainedText(
        draft.number,
        draft.example,
        {label: explanation for label, (explanation, _) in results.items()},
        answer=draft.answer,
        by_part={
            label: replace(scores, by_document=by_document(explanation, scores.matrix, draft.example.documents))
            for label, (explanation, scores) in results.items()
        },
    )


def by_document(explanation: Explanation, matrix: Tensor, documents: tuple[Document, ...]) -> list[list[Passage]]:
    """For each part of the answer, the scores of the documents and of the rest; empty without documents."""
    length = len(explanation.tokens)
    parts = [
        replace(
            explanation,
            scores=scores[:length],
            documents=documents,
            extras={"answer_share": float(scores[length:].sum())},
        )
        for scores in matrix
    ]
    return [part.by_document() for part in parts] if documents else []


def assemble_parts(
    task: Task,
    request: Request,
    method_config: MethodConfig,
    pass_output: PassOutput,
    attribution: Attribution,
    index: int,
) -> tuple[Explanation, AnswerScores]:
    """The explanation of the prompt, summed over the parts of the answer, and the scores of the parts."""
    tokenized_text, ids, parts = request.model_input, request.target.continuation, torch.tensor(request.target.parts)
    explained, logits = continuation_numbers(pass_output, index, len(ids))
    matrix = keep_precision(attribution.scores[index, : int(parts.max()) + 1, : len(tokenized_text)])
    explanation = assemble_explanation(task, request, method_config, pass_output, sum_over_parts(attribution), index)
    scores = AnswerScores(
        log_probabilities=log_probabilities(logits, ids).cpu(),
        explained=torch.zeros(len(matrix), dtype=torch.float64).index_add_(0, parts, explained.cpu().double()),
        matrix=matrix,
    )
    return explanation, scores


def sum_over_parts(attribution: Attribution) -> Attribution:
    """Sum scores and extras [batch, part, ...] over the parts of the target, and drop the maps."""
    extras = {name: values.sum(1) for name, values in attribution.extras.items()}
    return replace(attribution, scores=attribution.scores.sum(1), extras=extras, maps={})
