"""What the model says about a question: its prediction, and what target and foil can be picked from."""

from dataclasses import dataclass, replace
from typing import Any

from tokenlight.explain.inquiry import Request
from tokenlight.explain.passes import plan_passes
from tokenlight.explain.running import run_configs
from tokenlight.model.kept_twins import borrowed_model
from tokenlight.serve.checks import Refused
from tokenlight.serve.questions import PageRequest
from tokenlight.serve.session import Session, place
from tokenlight.tasks.targets import Candidate, MeasuredTarget, Target, chosen_indices
from tokenlight.text.rows import TokenizedText, parts
from tokenlight.text.words import group_tokens, readable


@dataclass(frozen=True)
class Reading:
    """The model's answer to one question."""

    request: Request
    measured_target: MeasuredTarget  # target and foil in indices, also where the prediction decided
    prediction: str
    probability: float | None
    choices: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        tokenized_text = self.request.tokenized_text
        return {
            "tokens": tokenized_text.tokens,
            "words": words_of(tokenized_text),
            "prediction": self.prediction,
            "probability": self.probability,
            "choices": [choice.to_dict() for choice in self.choices],
            "position": self.request.resolved.position,
            "truncated": tokenized_text.truncated,
        }


def read_question(session: Session, asked: PageRequest) -> Reading:
    """One forward pass, or what is known from before."""
    key = ("reading", asked.question)
    known = session.cache.get(key)
    if known is None:
        known = run_question(session, place(session, asked))
        session.cache.put(key, known)
    return known


def run_question(session: Session, request: Request) -> Reading:
    explainer, resolved = session.explainer, request.resolved
    task = explainer.task
    if resolved.foil_answer:
        raise Refused("the page compares single tokens: leave the foil out, or name one token each")
    plan = plan_passes(Target(task, (resolved,)), [])
    with borrowed_model(explainer.model) as instrumented:
        answer, _ = run_configs(instrumented, explainer.collate([request.read], instrumented.device), plan)
    measured_target = replace(
        task.measured_target(*chosen_indices(answer.selectors, 0), resolved.position), given=request.given
    )
    prediction, probability = task.prediction(request.read, answer.output, resolved, 0)
    asked = [i for i in (resolved.index, resolved.foil) if i is not None]
    return Reading(
        request, measured_target, prediction, probability, task.candidates(request.read, answer.output, resolved, asked)
    )


def words_of(tokenized_text: TokenizedText) -> list[dict[str, Any]]:
    """As in an explanation, without scores."""
    texts = parts(tokenized_text.text)
    words = []
    for group in group_tokens(texts, tokenized_text.segments, tokenized_text.spans, tokenized_text.special):
        first, last, special = group[0], group[-1], tokenized_text.special[group[0]]
        span = (tokenized_text.spans[first][0], tokenized_text.spans[last][1])
        text = (
            readable(tokenized_text.tokens[first]).strip()
            if special
            else texts[tokenized_text.segments[first] or 0][slice(*span)]
        )
        facts = {"tokens": group, "special": special, "segment": tokenized_text.segments[first], "span": list(span)}
        words.append({"text": text, "score": None, **facts, "rank": None})
    return words
