"""What the model says when some tokens are gone, and what it attends to while they are there."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.explain.inquiry import Inquiry
from tokenlight.metrics.perturbation import Changed, Perturbation, change
from tokenlight.metrics.probability import ask, check_probabilities, make_batch
from tokenlight.model.kept_twins import borrowed_twin
from tokenlight.model.tape import Tape
from tokenlight.serve.checks import Perturbed, Refused
from tokenlight.serve.questions import AttentionAsked, RemoveAsked
from tokenlight.serve.reading import read_question
from tokenlight.serve.session import Session, place
from tokenlight.tasks.targets import Candidate, Goal
from tokenlight.text.answers import follow
from tokenlight.text.rows import Row

DIGITS = 10_000  # attention is told in so many parts of 1
ATTENDING = 1024  # tokens: attention of every head on more would not fit into memory beside the model


@dataclass(frozen=True)
class Said:
    """The model's answer to a changed text."""

    prediction: str
    probability: float | None
    target_probability: float
    choices: tuple[Candidate, ...]


def perturbation_of(session: Session, asked: Perturbed | None) -> Perturbation:
    """How tokens go: as the page says, or as suits the model."""
    chosen = Perturbation() if asked is None else Perturbation().by(asked)
    try:
        return chosen.fit(session.explainer.inner, session.explainer.tokenizer)
    except ValueError as error:
        raise Refused(str(error)) from error


def answer_remove(session: Session, asked: RemoveAsked) -> dict[str, Any]:
    key = ("remove", asked)
    known = session.cache.get(key)
    if known is None:
        known = remove(session, asked)
        session.cache.put(key, known)
    return known


def remove(session: Session, asked: RemoveAsked) -> dict[str, Any]:
    perturbation = perturbation_of(session, asked.perturbation)
    check_probabilities(session.explainer)
    reading = read_question(session, asked)
    refuse_tokens(reading.inquiry, asked.gone)
    before = say_about(session, reading.inquiry, reading.goal, (), perturbation)
    after = say_about(session, reading.inquiry, reading.goal, asked.gone, perturbation)
    return {
        "prediction": after.prediction,
        "probability": after.probability,
        "target_probability": after.target_probability,
        "before": before.target_probability,
        "choices": [choice.to_dict() for choice in after.choices],
    }


def refuse_tokens(inquiry: Inquiry, gone: tuple[int, ...]) -> None:
    """Only words can go, and never the one whose output is read."""
    row = inquiry.row
    for token in gone:
        if token >= len(row):
            raise Refused(f"there is no token {token}: the text has tokens 0 to {len(row) - 1}")
        if row.special[token] or token == inquiry.wanted.position:
            raise Refused(f"token {token} ({row.tokens[token]}) cannot go: it is special, or read by the target")


def say_about(
    session: Session, inquiry: Inquiry, goal: Goal, gone: tuple[int, ...], perturbation: Perturbation
) -> Said:
    """Run the model on the text without some of its tokens."""
    changed = change(inquiry.row, gone, perturbation, 0.0)
    if not changed.input_ids:
        raise Refused("every token is gone: leave at least one, or replace instead of deleting")
    row = changed_row(inquiry.row, changed)
    question = ask(session.explainer, changed, goal)
    wanted = session.explainer.task.moved(inquiry.wanted, row, question.goal)
    with (
        borrowed_twin(session.explainer.model) as twin,
        torch.inference_mode(),
        torch.autocast(twin.device.type, enabled=False),
    ):
        output = twin.run(make_batch(session.explainer, twin, [question]), Tape())
        task = session.explainer.task
        row = follow(row, goal.given, session.explainer.tokenizer) if goal.given else row
        prediction, probability = task.prediction(row, output, wanted, 0)
        named = [*goal.index, *([] if goal.foil is None else [goal.foil])]
        choices = task.candidates(row, output, wanted, named)
        # Of several tokens the geometric mean, as in the curves.
        chance = (task.log_probability(output, question, 0) / max(1, len(goal.index))).exp()
        return Said(prediction, probability, float(chance), choices)


def changed_row(row: Row, changed: Changed) -> Row:
    """The tokens that are left, each with its place in the text."""
    kept = changed.kept
    parts = {name: [values[i] for i in kept] for name, values in vars(row).items() if isinstance(values, list)}
    types = None if changed.token_type_ids is None else list(changed.token_type_ids)
    return replace(row, **{**parts, "input_ids": list(changed.input_ids), "token_type_ids": types})


def answer_attention(session: Session, asked: AttentionAsked) -> dict[str, Any]:
    """One head's attention on the text, [query][key]."""
    layers, heads = session.shape
    for name, found, most in (("layer", asked.layer, layers), ("head", asked.head, heads)):
        if found >= most:
            raise Refused(f"there is no {name} {found}: the model has {name}s 0 to {most - 1}")
    inquiry = place(session, asked)
    if len(inquiry.row) > ATTENDING:
        found = f"the text has {len(inquiry.row):,} tokens"
        raise Refused(f"{found}: the attention of a head is drawn for at most {ATTENDING:,}")
    parts = attention_parts(session, inquiry)[asked.layer, asked.head]
    return {"tokens": inquiry.row.tokens, "attention": [[n / DIGITS for n in row] for row in parts.tolist()]}


def attention_parts(session: Session, inquiry: Inquiry) -> Tensor:
    """[layer, head, query, key] of every head at once, since the next question is about the next head."""
    key = ("attention", inquiry.row.text)
    known = session.cache.get(key)
    if known is None:
        tape = Tape(keep=frozenset({"attention"}))
        with (
            borrowed_twin(session.explainer.model) as twin,
            torch.inference_mode(),
            torch.autocast(twin.device.type, enabled=False),
        ):
            twin.run(session.explainer.collate([inquiry.row], twin.device), tape)
            blocks = [(block[0].float() * DIGITS).round().to(torch.int16).cpu() for block in tape.signals["attention"]]
        known = torch.stack(blocks)
        session.cache.put(key, known)
    return known
