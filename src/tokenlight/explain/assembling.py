"""What passes and methods leave behind becomes a result."""

from typing import TYPE_CHECKING

import torch

from tokenlight.explain.inquiry import Request
from tokenlight.explain.jobs import MethodConfig
from tokenlight.explain.remarks import input_notes, is_signed, merge_notes, result_notes
from tokenlight.foundation.versions import library_versions
from tokenlight.masks.choosing import model_name
from tokenlight.methods import Attribution
from tokenlight.record.recording import Answer
from tokenlight.results.explanation import Explanation, keep_precision, trim_map
from tokenlight.tasks.targets import chosen_indices

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


def assemble(
    explainer: "Explainer",
    request: Request,
    method_config: MethodConfig,
    answer: Answer,
    attribution: Attribution,
    place: int,
) -> Explanation:
    """The explanation of the text at this place of the batch."""
    task, tokenized_text = explainer.task, request.tokenized_text
    target, foil = task.describe(tokenized_text, answer.selectors, place)
    prediction, probability = task.prediction(tokenized_text, answer.output, request.resolved, place)
    scores = keep_precision(attribution.scores[place, : len(tokenized_text)])
    extras = {name: float(value[place]) for name, value in attribution.extras.items()}
    if request.resolved.answer or request.given:  # an answer's later tokens have their reasons in earlier ones, too
        extras["answer_share"] = float(attribution.scores[place, len(tokenized_text) :].sum())
    score = float(answer.score[place])
    found = result_notes(method_config, score, scores, extras, attribution.scores.dtype)
    notes = [*input_notes(task, tokenized_text, method_config, request.named), *found]
    indices, foil_indices = chosen_indices(answer.selectors, place)
    if request.named and task.reads_on and indices:
        notes += merge_notes(task, tokenized_text, request.given + indices)
    if indices and indices == foil_indices:
        notes.append("the model predicts the foil itself: the explained difference is 0")
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
        model=model_name(explainer.inner),
        signed=is_signed(method_config, task, foil),
        position=request.resolved.position,
        indices=indices,
        foil_indices=foil_indices,
        documents=tokenized_text.documents,
        given=request.given,
        extras=extras,
        maps={name: trim_map(name, value[place], len(tokenized_text)) for name, value in attribution.maps.items()},
        notes=tuple(notes),
        fused=attribution.fused,
        versions=library_versions(),
        explainer=explainer,
    )
