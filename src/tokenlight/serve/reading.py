"""What the model says about a question: its prediction, and what target and foil can be picked from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenlight.batch import Row
from tokenlight.metrics.probability import Goal
from tokenlight.naming import answer_text
from tokenlight.run import run_jobs
from tokenlight.serve.questions import Question
from tokenlight.serve.session import Placed, Session, place
from tokenlight.targets import MAX_ANSWER, Choice, Target, Wanted
from tokenlight.twin import Twin
from tokenlight.words import group_tokens

MOST = 10  # tokens or answers to pick from


@dataclass(frozen=True)
class Candidate:
    """A label, token or answer: what can be explained."""

    name: str
    index: int | None = None
    probability: float | None = None
    value: float | None = None  # regression
    span: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        always = {"name": self.name, "index": self.index}
        return always | {key: value for key, value in vars(self).items() if key not in always and value is not None}


@dataclass(frozen=True)
class Reading:
    """The model's answer to one question."""

    placed: Placed
    goal: Goal  # target and foil in indices, also where the prediction decided
    prediction: str
    probability: float | None
    choices: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        row = self.placed.row
        return {
            "tokens": row.tokens,
            "words": words_of(row),
            "prediction": self.prediction,
            "probability": self.probability,
            "choices": [choice.to_dict() for choice in self.choices],
            "position": self.placed.wanted.position,
            "truncated": row.truncated,
        }


def read_question(session: Session, asked: Question) -> Reading:
    """One forward pass, or what is known from before."""
    key = ("reading", asked.question)
    known = session.cache.get(key)
    if known is None:
        known = run_question(session, place(session, asked))
        session.cache.put(key, known, 1000 * len(known.placed.row))
    return known


def run_question(session: Session, placed: Placed) -> Reading:
    explainer = session.explainer
    twin = Twin(explainer.model)
    target = Target(explainer.task, (placed.wanted,))
    recording, _ = run_jobs(twin, explainer.collate([placed.row], twin.device), target, [])
    goal = goal_from(explainer.task, recording.choices, placed.wanted)
    prediction, probability = session.names.prediction(placed.row, recording.output, placed.wanted, 0)
    asked = [i for i in (placed.wanted.index, placed.wanted.foil) if i is not None]
    choices = candidates(session, placed.row, recording.output, placed.wanted, asked)
    return Reading(placed, goal, prediction, probability, choices)


def goal_from(task: str, choices: Sequence[Choice], wanted: Wanted) -> Goal:
    """Whose probability is meant."""
    index = [int(choice.index[0]) for choice in choices if choice.index is not None]
    foil = [int(choice.foil[0]) for choice in choices if choice.foil is not None]
    if task == "question-answering":
        return Goal(span=(index[0], index[1]), foil_span=(foil[0], foil[1]) if foil else None)
    return Goal((index[0],), foil[0] if foil else None, wanted.position)


def candidates(
    session: Session, row: Row, output: dict[str, Tensor], wanted: Wanted, asked: Sequence[int] = ()
) -> tuple[Candidate, ...]:
    """All labels, or the likeliest tokens and those that were asked for, or the likeliest answers."""
    task = session.explainer.task
    if task == "question-answering":
        return answers(row, output, wanted)
    logits = output["logits"][0].double()
    if task != "text-classification":
        logits = logits[len(row) - 1 if wanted.position is None else wanted.position]
    config = session.names.model.config
    several = config.problem_type == "multi_label_classification"
    if task == "text-classification" and len(logits) == 1 and not several:
        return (Candidate(session.names.name(0), 0, value=float(logits[0])),)
    chances = torch.sigmoid(logits) if several and task == "text-classification" else logits.softmax(0)
    indices = list(range(len(logits)))
    if task in ("fill-mask", "text-generation"):
        likeliest = chances.topk(min(MOST, len(logits))).indices.tolist()
        indices = list(dict.fromkeys([*likeliest, *asked]))
    return tuple(Candidate(session.names.name(i), i, float(chances[i])) for i in indices)


def answers(row: Row, output: dict[str, Tensor], wanted: Wanted) -> tuple[Candidate, ...]:
    """Spans of the context by their probability as start times as end."""
    first, last = wanted.context or (0, len(row) - 1)
    start, end = (output[name][0, : len(row)].double().softmax(0) for name in ("start_logits", "end_logits"))
    chances = start[first : last + 1, None] * end[None, first : last + 1]
    allowed = torch.ones_like(chances, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
    found = chances.masked_fill(~allowed, -1).flatten().topk(min(MOST, int(allowed.sum())))
    width = last + 1 - first
    spans = [(first + place // width, first + place % width) for place in found.indices.tolist()]
    return tuple(
        Candidate(answer_text(row, span), probability=chance, span=span)
        for span, chance in zip(spans, found.values.tolist(), strict=True)
    )


def words_of(row: Row) -> list[dict[str, Any]]:
    """As in an explanation, without scores."""
    texts = row.text if isinstance(row.text, tuple) else (row.text,)
    words = []
    for group in group_tokens(texts, row.segments, row.spans, row.special):
        first, last, special = group[0], group[-1], row.special[group[0]]
        span = (row.spans[first][0], row.spans[last][1])
        text = row.tokens[first] if special else texts[row.segments[first] or 0][slice(*span)]
        facts = {"tokens": group, "special": special, "segment": row.segments[first], "span": list(span)}
        words.append({"text": text, "score": None, **facts, "rank": None})
    return words
