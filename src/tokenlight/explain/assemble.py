"""Makes results from what a batch's passes return: explanations, explained answers, differences to foils."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from tokenlight.common.notes import Note
from tokenlight.common.versions import library_versions
from tokenlight.explain.notes import answer_notes, input_notes, merge_notes, result_notes
from tokenlight.heads.mask import model_name
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.record.recorder import PassOutput
from tokenlight.results.explained_answer import Alternative, ExplainedAnswer
from tokenlight.results.explanation import Explanation, keep_precision, trim_map
from tokenlight.tasks.request import Request
from tokenlight.tasks.selectors import ContinuationSelector
from tokenlight.tasks.targets import selected_indices
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import parts

Result = TypeVar("Result")
# Makes the result of one request; the last argument is its index in the batch of the pass.
Assemble = Callable[[Task, Request, MethodConfig, PassOutput, Attribution, int], Result]
ALTERNATIVES = 5  # likeliest tokens that are kept for each token of an answer


def assemble_explanation(
    task: Task, request: Request, method_config: MethodConfig, pass_output: PassOutput, attribution: Attribution, i: int
) -> Explanation:
    """The explanation of the i-th text of a batch."""
    tokenized_text, resolved = request.tokenized_text, request.target
    target, foil = task.describe(tokenized_text, pass_output.selectors, i)
    prediction, probability = task.prediction(tokenized_text, pass_output.output, resolved, i)
    scores = keep_precision(attribution.scores[i, : len(tokenized_text)])
    extras = {name: float(value[i]) for name, value in attribution.extras.items()}
    if resolved.continuation or resolved.given:  # later tokens of an answer also depend on its earlier ones
        extras["answer_share"] = float(attribution.scores[i, len(tokenized_text) :].sum())
    score = float(pass_output.score[i])
    notes = [
        *input_notes(task, tokenized_text, method_config, request.named),
        *result_notes(method_config, score, scores, extras, attribution.scores.dtype),
    ]
    indices, foil_indices = selected_indices(pass_output.selectors, i)
    if request.named and task.generates and indices:
        notes += merge_notes(task, tokenized_text, resolved.given + indices)
    if indices and indices == foil_indices:
        notes.append(Note("foil_predicted", "the model predicts the foil itself: the explained difference is 0"))
    return Explanation(
        text=tokenized_text.text,
        tokens=tokenized_text.tokens,
        scores=scores,
        special=torch.tensor(tokenized_text.special),
        segments=tokenized_text.segments,
        spans=tokenized_text.spans,
        score=score,
        target=target,
        foil=foil,
        prediction=prediction,
        probability=probability,
        method=method_config.method.name,
        options={**method_config.described_options, **request.quantity},
        task=task.name,
        model=model_name(task.model),
        signed=is_signed(method_config, task, foil),
        **presentation_of(task, method_config, probability, request.quantity.get("quantity")),
        position=resolved.position,
        indices=indices,
        foil_indices=foil_indices,
        documents=tokenized_text.documents,
        given=resolved.given,
        extras=extras,
        maps={name: trim_map(name, value[i], len(tokenized_text)) for name, value in attribution.maps.items()},
        notes=tuple(notes),
        fused=attribution.fused,
        versions=library_versions(),
    )


def assemble_answer(
    task: Task, request: Request, method_config: MethodConfig, pass_output: PassOutput, attribution: Attribution, i: int
) -> ExplainedAnswer:
    """The explained answer of the i-th prompt of a batch; each part of the attribution is a token of the answer."""
    model_input, ids = request.model_input, request.target.continuation
    numbers, logits = continuation_numbers(pass_output, i, len(ids))
    prompt, text = request.tokenized_text.text, parts(model_input.text)[-1]
    assert not isinstance(prompt, tuple), "a pair has no continuation"
    matrix = keep_precision(attribution.scores[i, : len(ids), : len(model_input)])
    extras = {name: value[i, : len(ids)].cpu().to(matrix.dtype) for name, value in attribution.extras.items()}
    notes = [
        *input_notes(task, request.tokenized_text, method_config, False),
        *merge_notes(task, request.tokenized_text, ids),
        *answer_notes(method_config, numbers.cpu(), matrix, extras, task.model.dtype),
    ]
    alternatives = likeliest_tokens(task, logits)
    probability, quantity = alternatives[0][0].probability, request.quantity.get("quantity")
    return ExplainedAnswer(
        prompt=prompt,
        answer=text,
        tokens=model_input.tokens,
        special=torch.tensor(model_input.special),
        segments=model_input.segments,
        spans=model_input.spans,
        ids=ids,
        documents=request.tokenized_text.documents,
        matrix=matrix,
        numbers=numbers.cpu().to(matrix.dtype),
        log_probabilities=log_probabilities(logits, ids).cpu().to(matrix.dtype),
        alternatives=alternatives,
        method=method_config.method.name,
        options={**method_config.described_options, **request.quantity},
        model=model_name(task.model),
        task=task.name,
        signed=is_signed(method_config, task, None),
        **presentation_of(task, method_config, probability, quantity),
        extras=extras,
        notes=tuple(notes),
        versions=library_versions(),
        fused=attribution.fused,
    )


def is_signed(method_config: MethodConfig, task: Task, foil: str | None) -> bool:
    """Whether scores can be negative: those of signed methods, and differences of two explanations."""
    is_difference = method_config.method.explains_separately(task, foil is not None)
    return is_difference or (method_config.method.signed and method_config.full_options.get("reduce", "sum") == "sum")


class Presentation(TypedDict):
    """The fields of a result that only views read: what method and explained number are called, and the caution."""

    method_title: str
    method_caution: str
    score_word: str


def presentation_of(
    task: Task, method_config: MethodConfig, probability: float | None, quantity: str | None
) -> Presentation:
    score_word = "output" if probability is None else task.score_word
    return Presentation(
        method_title=method_config.method.title,
        method_caution=method_config.method.caution,
        score_word="logits above the mean" if quantity == "log_probability" else score_word,
    )


def continuation_numbers(pass_output: PassOutput, i: int, count: int) -> tuple[Tensor, Tensor]:
    """For each token of the i-th text's continuation: the explained number [step], and logits [step, index]."""
    selector = pass_output.selectors[0]
    assert isinstance(selector, ContinuationSelector), "continuations have selectors of their own"
    output = {"logits": pass_output.output["logits"][i, None]}
    numbers = selector.map(lambda tensor: tensor[i, None]).numbers(output)[0, :count]
    return numbers, output["logits"][0, :count].double()


def log_probabilities(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """[step] from logits [step, index]"""
    return logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]


def likeliest_tokens(task: Task, logits: Tensor) -> list[list[Alternative]]:
    """For each step the likeliest tokens, from logits [step, index]."""
    top = logits.softmax(-1).topk(min(ALTERNATIVES, logits.shape[-1]))
    return [
        [Alternative(task.name_of(i), i, probability) for i, probability in zip(indices, probabilities, strict=True)]
        for indices, probabilities in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def subtract_foils(explanations: Sequence[Explanation], counts: Iterable[int]) -> list[Explanation]:
    """One explanation per text; where `counts` says that a text has two, the target's minus the foil's."""
    remaining = iter(explanations)
    groups = [[next(remaining) for _ in range(count)] for count in counts]
    return [group[0] if len(group) == 1 else subtract(*group) for group in groups]


def subtract(target: Explanation, foil: Explanation) -> Explanation:
    """The target's explanation with differences as scores and as all numbers about them."""
    return replace(
        target,
        scores=target.scores - foil.scores,
        score=target.score - foil.score,
        foil=foil.target,
        foil_indices=foil.indices,
        signed=True,
        extras=differences(target.extras, foil.extras),
        maps=differences(target.maps, foil.maps),
        notes=tuple(dict.fromkeys((*target.notes, *foil.notes))),
    )


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value - second[name] for name, value in first.items()}
