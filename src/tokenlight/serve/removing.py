"""What the model says when some tokens are gone, and what it attends to while they are there."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.explain.inquiry import Request
from tokenlight.metrics.perturbation import Changed, Perturbation, change
from tokenlight.metrics.probability import ask, check_probabilities, make_batch
from tokenlight.model.kept_twins import borrowed_model
from tokenlight.model.tape import Capture
from tokenlight.serve.checks import Perturbed, Refused
from tokenlight.serve.questions import AttentionRequest, RemoveRequest
from tokenlight.serve.reading import read_question
from tokenlight.serve.session import Session, place
from tokenlight.tasks.targets import Candidate, MeasuredTarget
from tokenlight.text.answers import follow
from tokenlight.text.rows import TokenizedText

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


def answer_remove(session: Session, asked: RemoveRequest) -> dict[str, Any]:
    key = ("remove", asked)
    known = session.cache.get(key)
    if known is None:
        known = remove(session, asked)
        session.cache.put(key, known)
    return known


def remove(session: Session, asked: RemoveRequest) -> dict[str, Any]:
    perturbation = perturbation_of(session, asked.perturbation)
    check_probabilities(session.explainer)
    reading = read_question(session, asked)
    refuse_tokens(reading.request, asked.gone)
    before = say_about(session, reading.request, reading.measured_target, (), perturbation)
    after = say_about(session, reading.request, reading.measured_target, asked.gone, perturbation)
    return {
        "prediction": after.prediction,
        "probability": after.probability,
        "target_probability": after.target_probability,
        "before": before.target_probability,
        "choices": [choice.to_dict() for choice in after.choices],
    }


def refuse_tokens(request: Request, gone: tuple[int, ...]) -> None:
    """Only words can go, and never the one whose output is read."""
    tokenized_text = request.tokenized_text
    for token in gone:
        if token >= len(tokenized_text):
            raise Refused(f"there is no token {token}: the text has tokens 0 to {len(tokenized_text) - 1}")
        if tokenized_text.special[token] or token == request.resolved.position:
            raise Refused(
                f"token {token} ({tokenized_text.tokens[token]}) cannot go: it is special, or read by the target"
            )


def say_about(
    session: Session,
    request: Request,
    measured_target: MeasuredTarget,
    gone: tuple[int, ...],
    perturbation: Perturbation,
) -> Said:
    """Run the model on the text without some of its tokens."""
    changed = change(request.tokenized_text, gone, perturbation, 0.0)
    if not changed.input_ids:
        raise Refused("every token is gone: leave at least one, or replace instead of deleting")
    tokenized_text = changed_row(request.tokenized_text, changed)
    question = ask(session.explainer, changed, measured_target)
    resolved = session.explainer.task.moved(request.resolved, tokenized_text, question.measured_target)
    with (
        borrowed_model(session.explainer.model) as instrumented,
        torch.inference_mode(),
        torch.autocast(instrumented.device.type, enabled=False),
    ):
        output = instrumented.run(make_batch(session.explainer, instrumented, [question]), Capture())
        task = session.explainer.task
        tokenized_text = (
            follow(tokenized_text, measured_target.given, session.explainer.tokenizer)
            if measured_target.given
            else tokenized_text
        )
        prediction, probability = task.prediction(tokenized_text, output, resolved, 0)
        named = [*measured_target.index, *([] if measured_target.foil is None else [measured_target.foil])]
        choices = task.candidates(tokenized_text, output, resolved, named)
        # Of several tokens the geometric mean, as in the curves.
        chance = (task.log_probability(output, question, 0) / max(1, len(measured_target.index))).exp()
        return Said(prediction, probability, float(chance), choices)


def changed_row(tokenized_text: TokenizedText, changed: Changed) -> TokenizedText:
    """The tokens that are left, each with its place in the text."""
    kept = changed.kept
    parts = {
        name: [values[i] for i in kept] for name, values in vars(tokenized_text).items() if isinstance(values, list)
    }
    types = None if changed.token_type_ids is None else list(changed.token_type_ids)
    return replace(tokenized_text, **{**parts, "input_ids": list(changed.input_ids), "token_type_ids": types})


def answer_attention(session: Session, asked: AttentionRequest) -> dict[str, Any]:
    """One head's attention on the text, [query][key]."""
    layers, heads = session.shape
    for name, found, most in (("layer", asked.layer, layers), ("head", asked.head, heads)):
        if found >= most:
            raise Refused(f"there is no {name} {found}: the model has {name}s 0 to {most - 1}")
    request = place(session, asked)
    if len(request.tokenized_text) > ATTENDING:
        found = f"the text has {len(request.tokenized_text):,} tokens"
        raise Refused(f"{found}: the attention of a head is drawn for at most {ATTENDING:,}")
    parts = attention_parts(session, request)[asked.layer, asked.head]
    return {"tokens": request.tokenized_text.tokens, "attention": [[n / DIGITS for n in row] for row in parts.tolist()]}


def attention_parts(session: Session, request: Request) -> Tensor:
    """[layer, head, query, key] of every head at once, since the next question is about the next head."""
    key = ("attention", request.tokenized_text.text)
    known = session.cache.get(key)
    if known is None:
        capture = Capture(keep=frozenset({"attention"}))
        with (
            borrowed_model(session.explainer.model) as instrumented,
            torch.inference_mode(),
            torch.autocast(instrumented.device.type, enabled=False),
        ):
            instrumented.run(session.explainer.collate([request.tokenized_text], instrumented.device), capture)
            blocks = [
                (block[0].float() * DIGITS).round().to(torch.int16).cpu() for block in capture.signals["attention"]
            ]
        known = torch.stack(blocks)
        session.cache.put(key, known)
    return known
