"""Explains one chunk of a corpus, with the same result in every engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

from torch import Tensor

from tokenlight.common.error_location import reason_to_skip
from tokenlight.corpus.answers import AnswerDraft, draft_answer, explain_answers
from tokenlight.corpus.plan import (
    ExplainedChunk,
    ExplainedText,
    ExplainingPlan,
    Failure,
    NumberedBadRow,
    or_failure,
    run_in_batches,
)
from tokenlight.corpus.windows import Window, mean_logits, merge_explanations, split_into_windows
from tokenlight.data.examples import BadRow, Chunk, Example
from tokenlight.explain.options import Resources, RunOptions
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.runs.engines import Advance
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.text.tokenize import encode, encode_each
from tokenlight.text.tokenized_text import Text, TokenizedText


@dataclass(frozen=True)
class TextDraft:
    """A tokenized text, whole or in windows, with its target."""

    number: int
    example: Example
    whole: TokenizedText
    windows: list[Window]
    target: Any
    foil: Any


def explain_chunk(
    plan: ExplainingPlan, chunk: Chunk, advance: Advance = lambda rows: None, strict: bool = False
) -> ExplainedChunk:
    """Explain a chunk: texts of similar length run together, and all methods share their passes.

    `advance` is called with the number of rows that are done. A row on which anything fails is set aside with the
    reason; with `strict`, unforeseen errors are raised.
    """
    drafts, bad = make_drafts(plan, chunk, strict)
    advance(len(bad))
    instrumented = InstrumentedModel(plan.explainer.model)
    text_drafts = [draft for draft in drafts if isinstance(draft, TextDraft)]
    answer_drafts = [draft for draft in drafts if isinstance(draft, AnswerDraft)]
    results = [
        *explain_texts(plan, instrumented, text_drafts, advance, strict),
        *explain_answers(plan, instrumented, answer_drafts, advance, strict),
    ]
    texts: list[ExplainedText] = []
    for draft, result in zip([*text_drafts, *answer_drafts], results, strict=True):
        if isinstance(result, Failure):
            bad.append(set_aside(draft.number, draft.example, result.reason))
        else:
            texts.append(result)
    return ExplainedChunk(chunk.number, sorted(texts, key=lambda text: text.number), sorted(bad, key=itemgetter(0)))


def explain_texts(
    plan: ExplainingPlan, instrumented: InstrumentedModel, drafts: Sequence[TextDraft], advance: Advance, strict: bool
) -> list[ExplainedText | Failure]:
    logits_of_drafts = run_windows(plan, instrumented, drafts, strict)
    results_of_drafts = explain_windows(plan, instrumented, drafts, logits_of_drafts, advance, strict)
    return [
        or_failure(partial(make_explained_text, plan, draft, logits, results), strict)
        for draft, logits, results in zip(drafts, logits_of_drafts, results_of_drafts, strict=True)
    ]


def make_drafts(
    plan: ExplainingPlan, chunk: Chunk, strict: bool
) -> tuple[list[TextDraft | AnswerDraft], list[NumberedBadRow]]:
    """The tokenized texts of a chunk, and the bad rows."""
    bad = [(number, row) for number, row in chunk.rows if isinstance(row, BadRow)]
    examples = [(number, row) for number, row in chunk.rows if isinstance(row, Example)]
    drafts: list[TextDraft | AnswerDraft] = []
    encoded = encode_each(partial(encode_texts, plan), [example.text for _, example in examples])
    for (number, example), tokenized_text in zip(examples, encoded, strict=True):
        try:
            drafts.append(make_draft(plan, number, example, tokenized_text))
        except Exception as error:
            bad.append(set_aside(number, example, reason_to_skip(error, strict)))
    return drafts, bad


def encode_texts(plan: ExplainingPlan, texts: Sequence[Text]) -> list[TokenizedText]:
    """Tokenize texts; too long ones are truncated, unless they are read in windows."""
    if plan.settings.window is None:
        return plan.explainer.encode(texts)
    return encode(plan.explainer.tokenizer, texts, None)


def make_draft(
    plan: ExplainingPlan, number: int, example: Example, tokenized_text: TokenizedText | Exception
) -> TextDraft | AnswerDraft:
    if isinstance(tokenized_text, Exception):
        raise tokenized_text
    if example.reply is not None:
        return draft_answer(plan, number, example, tokenized_text)
    settings = plan.settings
    task = plan.explainer.task
    target = settings.target if example.target is None else task.read_target(example.target)
    foil = settings.foil if example.foil is None else task.read_target(example.foil)
    task.resolve_target(tokenized_text, target, foil)
    windows = split_into_windows(tokenized_text, settings.window or len(tokenized_text), settings.shared_tokens)
    return TextDraft(number, example, tokenized_text, windows, target, foil)


def set_aside(number: int, example: Example, reason: str) -> NumberedBadRow:
    return number, BadRow(example.where, reason)


def run_windows(
    plan: ExplainingPlan, instrumented: InstrumentedModel, drafts: Sequence[TextDraft], strict: bool
) -> list[Tensor | Failure | None]:
    """For each draft its logits [label], averaged over its windows; None for texts that are not split."""
    windows = [
        (d, window.tokenized_text)
        for d, draft in enumerate(drafts)
        if len(draft.windows) > 1
        for window in draft.windows
    ]
    tokenized_texts = [tokenized_text for _, tokenized_text in windows]

    def run(indices: list[int]) -> list[Tensor]:
        batch = plan.explainer.collate([tokenized_texts[i] for i in indices], instrumented.device)
        return list(instrumented.predict(batch)["logits"].cpu())

    results = run_in_batches(tokenized_texts, plan.tokens, plan.equal_lengths, run, strict=strict)
    by_draft: dict[int, list[Tensor | Failure]] = {}
    for (d, _), result in zip(windows, results, strict=True):
        by_draft.setdefault(d, []).append(result)
    return [average(by_draft[d]) if d in by_draft else None for d in range(len(drafts))]


def average(logits: Sequence[Tensor | Failure]) -> Tensor | Failure:
    """The mean of the windows' logits, or the first failure."""
    failure = next((result for result in logits if isinstance(result, Failure)), None)
    return failure or mean_logits([result for result in logits if isinstance(result, Tensor)])


def explain_windows(
    plan: ExplainingPlan,
    instrumented: InstrumentedModel,
    drafts: Sequence[TextDraft],
    logits_of_drafts: Sequence[Tensor | Failure | None],
    advance: Advance,
    strict: bool,
) -> list[list[dict[str, Explanation] | Failure]]:
    """For each draft, the explanations of its windows."""
    windows = [
        (d, window.tokenized_text, resolve_draft_target(draft, logits), draft.foil)
        for d, (draft, logits) in enumerate(zip(drafts, logits_of_drafts, strict=True))
        for window in draft.windows
    ]

    def run(indices: list[int]) -> list[dict[str, Explanation]]:
        _, tokenized_texts, targets, foils = zip(*(windows[i] for i in indices), strict=True)
        settings = plan.settings
        by_label = plan.explainer.explain_tokenized(
            tokenized_texts,
            plan.method_configs,
            target=list(targets),
            foil=list(foils),
            run_options=RunOptions(len(indices), settings.low_memory, settings.fused, progress=False),
            resources=Resources(instrumented),
        )
        # Maps, which some options return, are not stored; those of a whole chunk would not fit in memory.
        return [
            {label: replace(explanations[i], maps={}) for label, explanations in by_label.items()}
            for i in range(len(indices))
        ]

    def on_batch_done(indices: list[int]) -> None:
        advance(sum(1 / len(drafts[windows[i][0]].windows) for i in indices))

    tokenized_texts = [tokenized_text for _, tokenized_text, _, _ in windows]
    results = run_in_batches(tokenized_texts, plan.tokens, plan.equal_lengths, run, on_batch_done, strict)
    by_draft: list[list[dict[str, Explanation] | Failure]] = [[] for _ in drafts]
    for (d, *_), result in zip(windows, results, strict=True):
        by_draft[d].append(result)
    return by_draft


def resolve_draft_target(draft: TextDraft, logits: Tensor | Failure | None) -> Any:
    """The target of a draft. Without one, several windows explain the prediction for the whole text."""
    return int(logits.argmax()) if draft.target is None and isinstance(logits, Tensor) else draft.target


def make_explained_text(
    plan: ExplainingPlan,
    draft: TextDraft,
    logits: Tensor | Failure | None,
    results: Sequence[dict[str, Explanation] | Failure],
) -> ExplainedText | Failure:
    """The text with the merged explanations of its windows; a failure if any of them failed."""
    failure = next((result for result in (logits, *results) if isinstance(result, Failure)), None)
    if failure is not None:
        return failure
    by_window = [result for result in results if not isinstance(result, Failure)]
    explanations = merge_windows(plan, draft, logits, by_window) if isinstance(logits, Tensor) else by_window[0]
    for label, explanation in explanations.items():
        if reason := plan.refusal(label, explanation.scores):
            return Failure(reason)
    truncated = draft.whole.truncated if len(by_window) == 1 else 0
    return ExplainedText(draft.number, draft.example, explanations, truncated, len(by_window))


def merge_windows(
    plan: ExplainingPlan, draft: TextDraft, logits: Tensor, by_window: Sequence[dict[str, Explanation]]
) -> dict[str, Explanation]:
    """Explanations of the whole text by label, with the prediction for the whole text."""
    output = {"logits": logits[None]}
    prediction, probability = plan.explainer.task.prediction(draft.whole, output, ResolvedTarget(), 0)
    merged = {
        label: merge_explanations(draft.whole, draft.windows, [explanations[label] for explanations in by_window])
        for label in by_window[0]
    }
    return {label: replace(e, prediction=prediction, probability=probability) for label, e in merged.items()}
