"""Predictions for the page: for a text, for a text without some tokens, and generated answers."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.progress import report_forward_pass
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.generate import generate_ids
from tokenlight.explain.plan import plan_passes
from tokenlight.metrics.perturbation import Perturbation, PerturbedText, remove_tokens
from tokenlight.metrics.probability import check_probabilities, make_batch, make_changed_input
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.serve.requests import AttentionRequest, PageRequest, Perturbed, Refused, RemoveRequest, WriteRequest
from tokenlight.serve.session import Session, place, read_prompt
from tokenlight.serve.worker import SendEvent, Writing, Wrote
from tokenlight.tasks.request import Request
from tokenlight.tasks.targets import BatchTarget, Candidate, ResolvedTarget, selected_indices
from tokenlight.text.tokenize import UNFINISHED, follow
from tokenlight.text.tokenized_text import TokenizedText


@dataclass(frozen=True)
class Reading:
    """The model's answer to one question."""

    request: Request
    target: ResolvedTarget  # with indices, also where it is the prediction
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
            "position": self.request.target.position,
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
    explainer, target = session.explainer, request.target
    task, model_input = explainer.task, request.model_input
    if target.foil_continuation:
        raise Refused("the page compares single tokens: leave the foil out, or name one token each")
    plan = plan_passes(BatchTarget(task, (target,)), [])
    with borrowed_model(explainer.model) as instrumented:
        answer, _ = execute_plan(instrumented, explainer.collate([model_input], instrumented.device), plan)
    measured = task.measured_target(*selected_indices(answer.selectors, 0), target.position, target.given)
    prediction, probability = task.prediction(model_input, answer.output, target, 0)
    named = [] if target.continuation else [*target.indices, *target.foil]
    candidates = task.candidates(model_input, answer.output, target, named)
    return Reading(request, measured, prediction, probability, candidates)


def words_of(tokenized_text: TokenizedText) -> list[dict[str, Any]]:
    """As in an explanation, without scores."""
    return [
        {
            "text": tokenized_text.text_of(group),
            "score": None,
            "tokens": group,
            "special": tokenized_text.special[group[0]],
            "segment": tokenized_text.segments[group[0]],
            "span": list(tokenized_text.span_of(group)),
            "rank": None,
        }
        for group in tokenized_text.units("words", keep_special=True)
    ]


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
    chosen = Perturbation(removal=asked)
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
    before = say_about(session, reading.request, reading.target, (), perturbation)
    after = say_about(session, reading.request, reading.target, asked.gone, perturbation)
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
        if tokenized_text.special[token] or token == request.target.position:
            raise Refused(
                f"token {token} ({tokenized_text.tokens[token]}) cannot go: it is special, or read by the target"
            )


def say_about(
    session: Session,
    request: Request,
    target: ResolvedTarget,
    gone: tuple[int, ...],
    perturbation: Perturbation,
) -> Said:
    """Run the model on the text without some of its tokens."""
    changed = remove_tokens(request.tokenized_text, gone, perturbation, 0.0)
    if not changed.input_ids:
        raise Refused("every token is gone: leave at least one, or replace instead of deleting")
    tokenized_text = changed_row(request.tokenized_text, changed)
    task = session.explainer.task
    changed_input = make_changed_input(session.explainer, changed, target)
    predicted = task.prediction_target(tokenized_text, changed_input.target.position)
    with borrowed_model(session.explainer.model) as instrumented:
        output = instrumented.predict(make_batch(session.explainer, instrumented, [changed_input]))
    if target.given:
        tokenized_text = follow(tokenized_text, target.given, session.explainer.tokenizer)
    prediction, probability = task.prediction(tokenized_text, output, predicted, 0)
    candidates = task.candidates(tokenized_text, output, predicted, [*target.indices, *target.foil])
    # The geometric mean over the tokens of a continuation, as in the curves.
    target_probability = (task.log_probability(output, changed_input, 0) / target.steps).exp()
    return Said(prediction, probability, float(target_probability), candidates)


def changed_row(tokenized_text: TokenizedText, changed: PerturbedText) -> TokenizedText:
    """The tokens that are left, each with its place in the text."""
    types = None if changed.token_type_ids is None else list(changed.token_type_ids)
    left = tokenized_text.select(changed.kept)
    return replace(left, input_ids=list(changed.input_ids), token_type_ids=types)


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
        capture = Capture(CaptureSpec(frozenset({"attention"})))
        with borrowed_model(session.explainer.model) as instrumented:
            batch = session.explainer.collate([request.tokenized_text], instrumented.device)
            instrumented.predict(batch, capture)
        blocks = [(block[0].float() * DIGITS).round().to(torch.int16).cpu() for block in capture.signals["attention"]]
        known = torch.stack(blocks)
        session.cache.put(key, known)
    return known


WRITE = "write"  # what stands where other requests name a method


@dataclass
class Telling:
    """What transformers' `generate` hands its tokens to: first those of the prompt, then each new one."""

    tokenizer: Any
    say: SendEvent
    prompt_seen: bool = False
    ids: list[int] = field(default_factory=list)

    def put(self, value: Tensor) -> None:
        if not self.prompt_seen:
            self.prompt_seen = True
            return
        self.ids += value.flatten().tolist()
        text = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        self.say(Writing(text.rstrip(UNFINISHED), len(self.ids)))
        report_forward_pass()  # the next one, unless nobody waits for it any more

    def end(self) -> None:
        """All is told."""


def answer_write(session: Session, asked: WriteRequest, say: SendEvent) -> None:
    explainer = session.explainer
    if not explainer.task.generates:
        raise Refused(f"only language models write; this is a {explainer.task.name} model")
    tokenized_text = read_prompt(session, asked)
    tokens = asked.tokens
    if (most := explainer.task.max_length) is not None:
        tokens = min(tokens, most - len(tokenized_text) - tokenized_text.truncated)
        if tokens < 1:
            found = len(tokenized_text) + tokenized_text.truncated
            raise Refused(f"the prompt has {found} tokens, the model reads {most}: no room is left for an answer")
    drawing: dict[str, Any] = {"do_sample": False}
    if asked.temperature:
        drawing = {"do_sample": True, "temperature": asked.temperature}
    telling = Telling(explainer.tokenizer, say)
    settings = {"max_new_tokens": tokens, "streamer": telling, **drawing}
    ids = generate_ids(explainer.model, explainer.task, tokenized_text, asked.seed, settings)
    text = explainer.tokenizer.decode(list(ids), skip_special_tokens=True)
    ended = ids[-1] in explainer.tokenizer.all_special_ids or len(ids) < tokens
    say(Wrote(WRITE, text, list(ids), ended))
