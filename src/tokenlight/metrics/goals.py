"""Whose probability is measured: what an explanation explained, or what the caller names."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from tokenlight.explain.explainer import Explainer
from tokenlight.model.tape import Tape
from tokenlight.model.twin import Twin
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import Goal, Target, TargetLike, Wanted, chosen_indices
from tokenlight.tasks.task import Task
from tokenlight.text.rows import Row, Text

BATCH = 32  # texts that run together


def goals_of(
    explainer: Explainer,
    twin: Twin,
    rows: Sequence[Row],
    explanations: Sequence[Explanation],
    targets: Sequence[TargetLike],
    foils: Sequence[TargetLike],
) -> list[Goal]:
    """For each explanation what the caller names, or else what it explained itself."""
    goals: list[Goal | None] = []
    open_questions: dict[int, Wanted] = {}  # those that the model's own prediction decides
    for i, (row, explanation) in enumerate(zip(rows, explanations, strict=True)):
        if targets[i] is None and foils[i] is not None:
            raise ValueError("a foil needs a target to be compared with")
        if targets[i] is None:
            goals.append(explained_goal(explainer.task, explanation))
        else:
            wanted = explainer.task.want(row, targets[i], foils[i])
            goals.append(wanted.goal)
            if goals[-1] is None:  # a target such as (position, None) is the predicted one
                open_questions[i] = wanted
    for i, goal in predictions(explainer, twin, rows, open_questions).items():
        goals[i] = goal
    return [goal for goal in goals if goal is not None]


def explained_goal(task: Task, explanation: Explanation) -> Goal:
    """What the explanation explained."""
    if not explanation.indices:
        raise ValueError(
            f"the target {explanation.target!r} was a function of the output: give target= as in explain()"
        )
    goal = task.goal(explanation.indices, explanation.foil_indices, explanation.position)
    return replace(goal, given=explanation.given)


def predictions(explainer: Explainer, twin: Twin, rows: Sequence[Row], wanted: dict[int, Wanted]) -> dict[int, Goal]:
    """What the model says where nothing else decides; several methods' explanations of one text are one question."""
    asked = list({(rows[i].text, one): i for i, one in wanted.items()}.values())
    foiled = [wanted[i].foiled for i in asked]
    goals: dict[tuple[Text, Wanted], Goal] = {}
    for places in explainer.batches([rows[i] for i in asked], BATCH, foiled):
        some = [asked[place] for place in places]
        batch = explainer.collate([rows[i] for i in some], twin.device)
        target = Target(explainer.task, tuple(wanted[i] for i in some))
        with torch.inference_mode(), torch.autocast(twin.device.type, enabled=False):
            choices = target.choose(twin.run(batch, Tape()), batch, twin.model)
        for place, i in enumerate(some):
            goals[rows[i].text, wanted[i]] = explainer.task.goal(*chosen_indices(choices, place), wanted[i].position)
    return {i: goals[rows[i].text, one] for i, one in wanted.items()}
