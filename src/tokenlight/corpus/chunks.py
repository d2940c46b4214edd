"""Explains one chunk of a corpus, with the same result in every engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.error_location import reason_to_skip
from tokenlight.corpus.answers import AnswerDraft, draft_answer, explain_answers
from tokenlight.corpus.plan import (
    ExplainedChunk,
    ExplainedText,
    ExplainingPlan,
    Failure,
    NumberedBadRow,
    in_batches,
    or_failure,
)
from tokenlight.corpus.windows import Window, cut, mean_logits, merge
from tokenlight.data.examples import BadRow, Chunk, Example
from tokenlight.explain.running import RunOptions
from tokenlight.model.capture import Capture
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.runs.engines import Tell
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.text.tokenize import encode, encode_each
from tokenlight.text.tokenized_text import Text, TokenizedText


@dataclass(frozen=True)
class TextDraft:
    """A text that the model can read, whole or in windows."""

    number: int
    example: Example
    whole: TokenizedText
    windows: list[Window]
    target: Any
    foil: Any


def explain_chunk(
    plan: ExplainingPlan, part: Chunk, tell: Tell = lambda rows: None, strict: bool = False
) -> ExplainedChunk:
    """Texts of similar length run together; all methods share their passes. `tell` hears how many rows are done.

    A row on which anything fails is set aside with the reason; with `strict`, unforeseen errors are raised.
    """
    drafts, bad = make_drafts(plan, part, strict)
    tell(len(bad))
    instrumented = InstrumentedModel(plan.explainer.model)
    plain = [draft for draft in drafts if isinstance(draft, TextDraft)]
    answered = [draft for draft in drafts if isinstance(draft, AnswerDraft)]
    found = [
        *explain_texts(plan, instrumented, plain, tell, strict),
        *explain_answers(plan, instrumented, answered, tell, strict),
    ]
    texts: list[ExplainedText] = []
    for draft, text in zip([*plain, *answered], found, strict=True):
        if isinstance(text, Failure):
            bad.append(set_aside(draft.number, draft.example, text.reason))
        else:
            texts.append(text)
    return ExplainedChunk(part.number, sorted(texts, key=lambda one: one.number), sorted(bad, key=lambda one: one[0]))


def explain_texts(
    plan: ExplainingPlan, instrumented: InstrumentedModel, drafts: Sequence[TextDraft], tell: Tell, strict: bool
) -> list[ExplainedText | Failure]:
    answers = ask_about_windows(plan, instrumented, drafts, strict)
    results = explain_windows(plan, instrumented, drafts, answers, tell, strict)
    return [
        or_failure(partial(put_together, plan, draft, answer, result), strict)
        for draft, answer, result in zip(drafts, answers, results, strict=True)
    ]


def make_drafts(
    plan: ExplainingPlan, part: Chunk, strict: bool
) -> tuple[list[TextDraft | AnswerDraft], list[NumberedBadRow]]:
    """The texts in tokens, and what cannot be read."""
    bad = [(number, row) for number, row in part.rows if isinstance(row, BadRow)]
    good = [(number, row) for number, row in part.rows if isinstance(row, Example)]
    drafts: list[TextDraft | AnswerDraft] = []
    encoded = encode_each(partial(encode_texts, plan), [example.text for _, example in good])
    for (number, example), tokenized_text in zip(good, encoded, strict=True):
        try:
            drafts.append(make_draft(plan, number, example, tokenized_text))
        except Exception as error:
            bad.append(set_aside(number, example, reason_to_skip(error, strict)))
    return drafts, bad


def encode_texts(plan: ExplainingPlan, texts: Sequence[Text]) -> list[TokenizedText]:
    """Cut off where they are too long, unless they are read in windows."""
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
    windows = cut(tokenized_text, settings.window or len(tokenized_text), settings.shared_tokens)
    return TextDraft(number, example, tokenized_text, windows, target, foil)


def set_aside(number: int, example: Example, reason: str) -> NumberedBadRow:
    return number, BadRow(example.where, reason)


def ask_about_windows(
    plan: ExplainingPlan, instrumented: InstrumentedModel, drafts: Sequence[TextDraft], strict: bool
) -> list[Tensor | Failure | None]:
    """[label] logits of the whole text where it is read in windows, so that all of them explain the same label."""
    owners = [d for d, draft in enumerate(drafts) if len(draft.windows) > 1 for _ in draft.windows]
    tokenized_texts = [one.tokenized_text for draft in drafts if len(draft.windows) > 1 for one in draft.windows]

    def run(places: list[int]) -> list[Tensor]:
        batch = plan.explainer.collate([tokenized_texts[i] for i in places], instrumented.device)
        with torch.inference_mode(), torch.autocast(instrumented.device.type, enabled=False):
            return list(instrumented.run(batch, Capture())["logits"].cpu())

    asked = in_batches(tokenized_texts, plan.tokens, plan.equal_lengths, run, strict=strict)
    by_draft: dict[int, list[Tensor | Failure]] = {}
    for owner, logits in zip(owners, asked, strict=True):
        by_draft.setdefault(owner, []).append(logits)
    return [average(by_draft[d]) if d in by_draft else None for d in range(len(drafts))]


def average(logits: Sequence[Tensor | Failure]) -> Tensor | Failure:
    failure = next((one for one in logits if isinstance(one, Failure)), None)
    return failure or mean_logits([one for one in logits if isinstance(one, Tensor)])


def explain_windows(
    plan: ExplainingPlan,
    instrumented: InstrumentedModel,
    drafts: Sequence[TextDraft],
    answers: Sequence[Tensor | Failure | None],
    tell: Tell,
    strict: bool,
) -> list[list[dict[str, Explanation] | Failure]]:
    """For every draft its windows' explanations."""
    units = [
        (d, one.tokenized_text, resolve_draft_target(draft, answer), draft.foil)
        for d, (draft, answer) in enumerate(zip(drafts, answers, strict=True))
        for one in draft.windows
    ]

    def run(places: list[int]) -> list[dict[str, Explanation]]:
        _, rows, targets, foils = zip(*(units[i] for i in places), strict=True)
        chosen = plan.settings
        running = RunOptions(
            len(places), chosen.low_memory, progress=False, fused=chosen.fused, instrumented=instrumented
        )
        found = plan.explainer.explain_rows(
            rows, plan.method_configs, target=list(targets), foil=list(foils), run_options=running
        )
        # Maps, which some options ask for, are not written; those of a whole part would not fit in memory.
        return [{label: replace(results[i], maps={}) for label, results in found.items()} for i in range(len(places))]

    def finished(places: list[int]) -> None:
        tell(sum(1 / len(drafts[units[i][0]].windows) for i in places))

    tokenized_texts = [tokenized_text for _, tokenized_text, _, _ in units]
    sorted_out: list[list[dict[str, Explanation] | Failure]] = [[] for _ in drafts]
    found = in_batches(tokenized_texts, plan.tokens, plan.equal_lengths, run, finished, strict)
    for (d, *_), result in zip(units, found, strict=True):
        sorted_out[d].append(result)
    return sorted_out


def resolve_draft_target(draft: TextDraft, answer: Tensor | Failure | None) -> Any:
    """Several windows explain what the model says about all of them."""
    return int(answer.argmax()) if draft.target is None and isinstance(answer, Tensor) else draft.target


def put_together(
    plan: ExplainingPlan,
    draft: TextDraft,
    answer: Tensor | Failure | None,
    results: Sequence[dict[str, Explanation] | Failure],
) -> ExplainedText | Failure:
    """The text's explanations from those of its windows; one that failed speaks for all."""
    failure = next((one for one in (answer, *results) if isinstance(one, Failure)), None)
    if failure is not None:
        return failure
    found = [one for one in results if not isinstance(one, Failure)]
    whole = found[0] if not isinstance(answer, Tensor) else merge_windows(plan, draft, answer, found)
    for label, explanation in whole.items():
        if reason := plan.refusal(label, explanation.scores):
            return Failure(reason)
    truncated = draft.whole.truncated if len(found) == 1 else 0
    return ExplainedText(draft.number, draft.example, whole, truncated, len(found))


def merge_windows(
    plan: ExplainingPlan, draft: TextDraft, logits: Tensor, found: Sequence[dict[str, Explanation]]
) -> dict[str, Explanation]:
    """By label, with what the model says about the whole text."""
    output = {"logits": logits[None]}
    prediction, probability = plan.explainer.task.prediction(draft.whole, output, ResolvedTarget(), 0)
    said = {"prediction": prediction, "probability": probability}
    return {
        label: replace(merge(draft.whole, draft.windows, [one[label] for one in found]), **said) for label in found[0]
    }
