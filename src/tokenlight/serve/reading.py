"""What the model says about a question: its prediction, and what target and foil can be picked from."""

from dataclasses import dataclass, replace
from typing import Any

from tokenlight.explain.inquiry import Inquiry
from tokenlight.explain.passes import plan_passes
from tokenlight.explain.running import run_jobs
from tokenlight.model.kept_twins import borrowed_twin
from tokenlight.serve.checks import Refused
from tokenlight.serve.questions import Question
from tokenlight.serve.session import Session, place
from tokenlight.tasks.targets import Candidate, Goal, Target, chosen_indices
from tokenlight.text.rows import Row, parts
from tokenlight.text.words import group_tokens, readable


@dataclass(frozen=True)
class Reading:
    """The model's answer to one question."""

    inquiry: Inquiry
    goal: Goal  # target and foil in indices, also where the prediction decided
    prediction: str
    probability: float | None
    choices: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        row = self.inquiry.row
        return {
            "tokens": row.tokens,
            "words": words_of(row),
            "prediction": self.prediction,
            "probability": self.probability,
            "choices": [choice.to_dict() for choice in self.choices],
            "position": self.inquiry.wanted.position,
            "truncated": row.truncated,
        }


def read_question(session: Session, asked: Question) -> Reading:
    """One forward pass, or what is known from before."""
    key = ("reading", asked.question)
    known = session.cache.get(key)
    if known is None:
        known = run_question(session, place(session, asked))
        session.cache.put(key, known)
    return known


def run_question(session: Session, inquiry: Inquiry) -> Reading:
    explainer, wanted = session.explainer, inquiry.wanted
    task = explainer.task
    if wanted.foil_answer:
        raise Refused("the page compares single tokens: leave the foil out, or name one token each")
    plan = plan_passes(Target(task, (wanted,)), [])
    with borrowed_twin(explainer.model) as twin:
        answer, _ = run_jobs(twin, explainer.collate([inquiry.read], twin.device), plan)
    goal = replace(task.goal(*chosen_indices(answer.choices, 0), wanted.position), given=inquiry.given)
    prediction, probability = task.prediction(inquiry.read, answer.output, wanted, 0)
    asked = [i for i in (wanted.index, wanted.foil) if i is not None]
    return Reading(inquiry, goal, prediction, probability, task.candidates(inquiry.read, answer.output, wanted, asked))


def words_of(row: Row) -> list[dict[str, Any]]:
    """As in an explanation, without scores."""
    texts = parts(row.text)
    words = []
    for group in group_tokens(texts, row.segments, row.spans, row.special):
        first, last, special = group[0], group[-1], row.special[group[0]]
        span = (row.spans[first][0], row.spans[last][1])
        text = readable(row.tokens[first]).strip() if special else texts[row.segments[first] or 0][slice(*span)]
        facts = {"tokens": group, "special": special, "segment": row.segments[first], "span": list(span)}
        words.append({"text": text, "score": None, **facts, "rank": None})
    return words
