"""What passes and methods leave behind becomes a result."""

from typing import TYPE_CHECKING

import torch

from tokenlight.explain.inquiry import Inquiry
from tokenlight.explain.jobs import Job
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
    explainer: "Explainer", inquiry: Inquiry, job: Job, answer: Answer, attribution: Attribution, place: int
) -> Explanation:
    """The explanation of the text at this place of the batch."""
    task, row = explainer.task, inquiry.row
    target, foil = task.describe(row, answer.choices, place)
    prediction, probability = task.prediction(row, answer.output, inquiry.wanted, place)
    scores = keep_precision(attribution.scores[place, : len(row)])
    extras = {name: float(value[place]) for name, value in attribution.extras.items()}
    if inquiry.wanted.answer or inquiry.given:  # an answer's later tokens have their reasons in earlier ones, too
        extras["answer_share"] = float(attribution.scores[place, len(row) :].sum())
    score = float(answer.score[place])
    found = result_notes(job, score, scores, extras, attribution.scores.dtype)
    notes = [*input_notes(task, row, job, inquiry.named), *found]
    indices, foil_indices = chosen_indices(answer.choices, place)
    if inquiry.named and task.reads_on and indices:
        notes += merge_notes(task, row, inquiry.given + indices)
    if indices and indices == foil_indices:
        notes.append("the model predicts the foil itself: the explained difference is 0")
    return Explanation(
        text=row.text,
        tokens=row.tokens,
        scores=scores,
        special=torch.tensor(row.special),
        segments=row.segments,
        spans=row.spans,
        score=score,
        target=target,
        foil=foil,
        prediction=prediction,
        probability=probability,
        method=job.method.name,
        options={**job.described_options, **inquiry.number},
        task=task.name,
        model=model_name(explainer.inner),
        signed=is_signed(job, task, foil),
        position=inquiry.wanted.position,
        indices=indices,
        foil_indices=foil_indices,
        sources=row.sources,
        given=inquiry.given,
        extras=extras,
        maps={name: trim_map(name, value[place], len(row)) for name, value in attribution.maps.items()},
        notes=tuple(notes),
        fused=attribution.fused,
        versions=library_versions(),
        explainer=explainer,
    )
