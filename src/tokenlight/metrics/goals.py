"""Whose probability is measured: what an explanation explained, or what the caller names."""

from collections.abc import Sequence
from typing import Any

import torch

from tokenlight import anatomy
from tokenlight.batch import Row
from tokenlight.explainer import Explainer
from tokenlight.explanation import Explanation
from tokenlight.metrics.probability import Goal
from tokenlight.targets import Target, Wanted
from tokenlight.twin import Tape, Twin

BATCH = 32  # texts that run together


def goals_of(
    explainer: Explainer,
    twin: Twin,
    rows: Sequence[Row],
    explanations: Sequence[Explanation],
    targets: Sequence[Any],
    foils: Sequence[Any],
) -> list[Goal]:
    """For each explanation what the caller names, or else what it explained itself."""
    goals: list[Goal | None] = []
    open_questions: dict[int, Wanted] = {}  # those that the model's own prediction decides
    for i, (row, explanation) in enumerate(zip(rows, explanations, strict=True)):
        if targets[i] is None and foils[i] is not None:
            raise ValueError("a foil needs a target to be compared with")
        if targets[i] is None:
            goals.append(explained_goal(explainer.task, explanation))
        elif explainer.task == "text-generation" and (several := continuation(explainer, row, targets[i], foils[i])):
            goals.append(Goal(index=several))
        else:
            wanted = explainer._names.want(row, targets[i], foils[i])
            goals.append(goal_from(wanted))
            if goals[-1] is None:  # a target such as (position, None) is the predicted one
                open_questions[i] = wanted
    for i, goal in predictions(explainer, twin, rows, open_questions).items():
        goals[i] = goal
    return [goal for goal in goals if goal is not None]


def explained_goal(task: str, explanation: Explanation) -> Goal:
    """What the explanation explained."""
    found, foil = explanation.indices, explanation.foil_indices
    if not found:
        raise ValueError(
            f"the target {explanation.target!r} was a function of the output: give target= as in explain()"
        )
    if task == "question-answering":
        return Goal(span=(found[0], found[1]), foil_span=(foil[0], foil[1]) if foil else None)
    return Goal(found, foil[0] if foil else None, explanation.position)


def goal_from(wanted: Wanted) -> Goal | None:
    """None where the prediction decides."""
    if wanted.span is None and wanted.index is None:
        return None
    index = () if wanted.index is None else (wanted.index,)
    return Goal(index, wanted.foil, wanted.position, wanted.span, wanted.foil_span)


def predictions(explainer: Explainer, twin: Twin, rows: Sequence[Row], wanted: dict[int, Wanted]) -> dict[int, Goal]:
    """What the model says where nothing else decides; several methods' explanations of one text are one question."""
    asked = list({(rows[i].text, one): i for i, one in wanted.items()}.values())
    foiled = [wanted[i].foil is not None or wanted[i].foil_span is not None for i in asked]
    goals: dict[Any, Goal] = {}
    for places in explainer._batches([rows[i] for i in asked], BATCH, foiled):
        some = [asked[place] for place in places]
        batch = explainer.collate([rows[i] for i in some], twin.device)
        target = Target(explainer.task, tuple(wanted[i] for i in some))
        with torch.inference_mode(), torch.autocast(twin.device.type, enabled=False):
            choices = target.choose(twin.run(batch, Tape()), batch, twin.model)
        chosen = [choice.index.tolist() for choice in choices if choice.index is not None]
        for i, *found in zip(some, *chosen, strict=True):
            one = wanted[i]
            if explainer.task == "question-answering":
                goal = Goal(span=(found[0], found[1]), foil_span=one.foil_span)
            else:
                goal = Goal((found[0],), one.foil, one.position)
            goals[rows[i].text, one] = goal
    return {i: goals[rows[i].text, one] for i, one in wanted.items()}


def continuation(explainer: Explainer, row: Row, target: Any, foil: Any) -> tuple[int, ...]:
    """The tokens of a continuation of several, given as a text or as a tuple of ids; () for a single token."""
    try:
        explainer._names.index(target)
    except (ValueError, TypeError):
        pass
    else:
        return ()
    ids = target if isinstance(target, tuple) else ()
    if isinstance(target, str):
        ids = tuple(explainer.tokenizer.encode(target, add_special_tokens=False))
    if not ids or explainer.tokenizer.unk_token_id in ids:
        return ()  # the single token's own error says what is wrong
    ids = tuple(explainer._names.index(i) for i in ids)
    limit = anatomy.max_length(explainer._names.model, explainer.tokenizer.model_max_length)
    if foil is not None:
        raise ValueError("a continuation of several tokens has no foil: compare single tokens")
    if limit is not None and len(row) + len(ids) - 1 > limit:
        raise ValueError(
            f"the text and its continuation have {len(row) + len(ids) - 1} tokens, the model reads {limit}"
        )
    return ids
