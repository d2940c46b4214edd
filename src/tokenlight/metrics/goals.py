"""Whose probability is measured: what an explanation explained, or what the caller names."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from tokenlight.explain.explainer import Explainer
from tokenlight.model.tape import Capture
from tokenlight.model.twin import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import MeasuredTarget, ResolvedTarget, Target, TargetSpec, chosen_indices
from tokenlight.tasks.task import Task
from tokenlight.text.rows import Text, TokenizedText

BATCH = 32  # texts that run together


def measured_targets_of(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    explanations: Sequence[Explanation],
    targets: Sequence[TargetSpec],
    foils: Sequence[TargetSpec],
) -> list[MeasuredTarget]:
    """For each explanation what the caller names, or else what it explained itself."""
    measured_targets: list[MeasuredTarget | None] = []
    open_questions: dict[int, ResolvedTarget] = {}  # those that the model's own prediction decides
    for i, (tokenized_text, explanation) in enumerate(zip(tokenized_texts, explanations, strict=True)):
        if targets[i] is None and foils[i] is not None:
            raise ValueError("a foil needs a target to be compared with")
        if targets[i] is None:
            measured_targets.append(explained_target(explainer.task, explanation))
        else:
            resolved = explainer.task.resolve_target(tokenized_text, targets[i], foils[i])
            measured_targets.append(resolved.measured_target)
            if measured_targets[-1] is None:  # a target such as (position, None) is the predicted one
                open_questions[i] = resolved
    for i, measured_target in predictions(explainer, instrumented, tokenized_texts, open_questions).items():
        measured_targets[i] = measured_target
    return [measured_target for measured_target in measured_targets if measured_target is not None]


def explained_target(task: Task, explanation: Explanation) -> MeasuredTarget:
    """What the explanation explained."""
    if not explanation.indices:
        raise ValueError(
            f"the target {explanation.target!r} was a function of the output: give target= as in explain()"
        )
    measured_target = task.measured_target(explanation.indices, explanation.foil_indices, explanation.position)
    return replace(measured_target, given=explanation.given)


def predictions(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    resolved: dict[int, ResolvedTarget],
) -> dict[int, MeasuredTarget]:
    """What the model says where nothing else decides; several methods' explanations of one text are one question."""
    asked = list({(tokenized_texts[i].text, one): i for i, one in resolved.items()}.values())
    foiled = [resolved[i].foiled for i in asked]
    measured_targets: dict[tuple[Text, ResolvedTarget], MeasuredTarget] = {}
    for places in explainer.batches([tokenized_texts[i] for i in asked], BATCH, foiled):
        some = [asked[place] for place in places]
        batch = explainer.collate([tokenized_texts[i] for i in some], instrumented.device)
        target = Target(explainer.task, tuple(resolved[i] for i in some))
        with torch.inference_mode(), torch.autocast(instrumented.device.type, enabled=False):
            selectors = target.select(instrumented.run(batch, Capture()), batch, instrumented.model)
        for place, i in enumerate(some):
            measured_targets[tokenized_texts[i].text, resolved[i]] = explainer.task.measured_target(
                *chosen_indices(selectors, place), resolved[i].position
            )
    return {i: measured_targets[tokenized_texts[i].text, one] for i, one in resolved.items()}
