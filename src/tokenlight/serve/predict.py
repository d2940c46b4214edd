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


def read_question(session: Session, page_request: PageRequest) -> Reading:
    """The prediction for a question, from one forward pass or from the cache."""
    key = ("reading", page_request.question)
    cached = session.cache.get(key)
    if cached is None:
        cached = run_question(session, place(session, page_request))
        session.cache.put(key, cached)
    return cached


def run_question(session: Session, request: Request) -> Reading:
    explainer, target = session.explainer, request.target
    task, model_input = explainer.task, request.model_input
    if target.foil_continuation:
        raise Refused("the page compares single tokens: leave the foil out, or name one token each")
    plan = plan_passes(BatchTarget(task, (target,)), [])
    with borrowed_model(explainer.model) as instrumented:
        pass_output, _ = execute_plan(instrumented, explainer.collate([model_input], instrumented.device), plan)
    indices, foil = selected_indices(pass_output.selectors, 0)
    measured = task.measured_target(ResolvedTarget(indices, foil, position=target.position, given=target.given))
    prediction, probability = task.prediction(model_input, pass_output.output, target, 0)
    named = [] if target.continuation else [*target.indices, *target.foil]
    candidates = task.candidates(model_input, pass_output.output, target, named)
    return Reading(request, measured, prediction, probability, candidates)


def words_of(tokenized_text: TokenizedText) -> list[dict[str, Any]]:
    """The words as in an explanation, without scores."""
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


ATTENTION_SCALE = 10_000  # attention weights are cached as integers from 0 to this
MOST_ATTENTION_TOKENS = 1024  # attention maps of all heads on longer texts would take too much memory


@dataclass(frozen=True)
class ChangedPrediction:
    """The model's prediction for a changed text."""

    prediction: str
    probability: float | None
    target_probability: float
    choices: tuple[Candidate, ...]


def perturbation_of(session: Session, removal: Perturbed | None) -> Perturbation:
    """The removal that the request names, or the default for the model."""
    chosen = Perturbation(removal=removal)
    try:
        return chosen.fit(session.explainer.inner, session.explainer.tokenizer)
    except ValueError as error:
        raise Refused(str(error)) from error


def answer_remove(session: Session, page_request: RemoveRequest) -> dict[str, Any]:
    key = ("remove", page_request)
    cached = session.cache.get(key)
    if cached is None:
        cached = remove(session, page_request)
        session.cache.put(key, cached)
    return cached


def remove(session: Session, page_request: RemoveRequest) -> dict[str, Any]:
    perturbation = perturbation_of(session, page_request.perturbation)
    check_probabilities(session.explainer)
    reading = read_question(session, page_request)
    refuse_tokens(reading.request, page_request.gone)
    before = predict_without(session, reading.request, reading.target, (), perturbation)
    after = predict_without(session, reading.request, reading.target, page_request.gone, perturbation)
    return {
        "prediction": after.prediction,
        "probability": after.probability,
        "target_probability": after.target_probability,
        "before": before.target_probability,
        "choices": [choice.to_dict() for choice in after.choices],
    }


def refuse_tokens(request: Request, gone: tuple[int, ...]) -> None:
    """Refuse to remove special tokens and the token whose output is read."""
    tokenized_text = request.tokenized_text
    for token in gone:
        if token >= len(tokenized_text):
            raise Refused(f"there is no token {token}: the text has tokens 0 to {len(tokenized_text) - 1}")
        if tokenized_text.special[token] or token == request.target.position:
            raise Refused(
                f"token {token} ({tokenized_text.tokens[token]}) cannot be removed: "
                "it is a special token, or the target is read there"
            )


def predict_without(
    session: Session,
    request: Request,
    target: ResolvedTarget,
    gone: tuple[int, ...],
    perturbation: Perturbation,
) -> ChangedPrediction:
    """Run the model on the text without some of its tokens."""
    changed = remove_tokens(request.tokenized_text, gone, perturbation, 0.0)
    if not changed.input_ids:
        raise Refused("all tokens are removed: keep at least one, or replace tokens instead of deleting them")
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
    return ChangedPrediction(prediction, probability, float(target_probability), candidates)


def changed_row(tokenized_text: TokenizedText, changed: PerturbedText) -> TokenizedText:
    """The remaining tokens, with their spans in the text."""
    types = None if changed.token_type_ids is None else list(changed.token_type_ids)
    left = tokenized_text.select(changed.kept)
    return replace(left, input_ids=list(changed.input_ids), token_type_ids=types)


def answer_attention(session: Session, page_request: AttentionRequest) -> dict[str, Any]:
    """One head's attention on the text, [query][key]."""
    layers, heads = session.shape
    for name, found, most in (("layer", page_request.layer, layers), ("head", page_request.head, heads)):
        if found >= most:
            raise Refused(f"there is no {name} {found}: the model has {name}s 0 to {most - 1}")
    request = place(session, page_request)
    if len(request.tokenized_text) > MOST_ATTENTION_TOKENS:
        found = f"the text has {len(request.tokenized_text):,} tokens"
        raise Refused(f"{found}: the attention of a head is drawn for at most {MOST_ATTENTION_TOKENS:,}")
    parts = attention_parts(session, request)[page_request.layer, page_request.head]
    return {
        "tokens": request.tokenized_text.tokens,
        "attention": [[n / ATTENTION_SCALE for n in row] for row in parts.tolist()],
    }


def attention_parts(session: Session, request: Request) -> Tensor:
    """[layer, head, query, key] of all heads, cached for requests about other heads."""
    key = ("attention", request.tokenized_text.text)
    cached = session.cache.get(key)
    if cached is None:
        capture = Capture(CaptureSpec(frozenset({"attention"})))
        with borrowed_model(session.explainer.model) as instrumented:
            batch = session.explainer.collate([request.tokenized_text], instrumented.device)
            instrumented.predict(batch, capture)
        blocks = [
            (block[0].float() * ATTENTION_SCALE).round().to(torch.int16).cpu() for block in capture.signals["attention"]
        ]
        cached = torch.stack(blocks)
        session.cache.put(key, cached)
    return cached


WRITE = "write"  # in events, in place of the name of a method


@dataclass
class EventStreamer:
    """A streamer for transformers' `generate`, which gets the tokens of the prompt first, then each new token."""

    tokenizer: Any
    send: SendEvent
    prompt_seen: bool = False
    ids: list[int] = field(default_factory=list)

    def put(self, value: Tensor) -> None:
        if not self.prompt_seen:
            self.prompt_seen = True
            return
        self.ids += value.flatten().tolist()
        text = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        self.send(Writing(text.rstrip(UNFINISHED), len(self.ids)))
        report_forward_pass()  # of the next token; raises if the job was cancelled

    def end(self) -> None:
        """Called by transformers after the last token."""


def answer_write(session: Session, page_request: WriteRequest, send: SendEvent) -> None:
    explainer = session.explainer
    if not explainer.task.generates:
        raise Refused(f"only language models write; this is a {explainer.task.name} model")
    tokenized_text = read_prompt(session, page_request)
    tokens = page_request.tokens
    if (most := explainer.task.max_length) is not None:
        tokens = min(tokens, most - len(tokenized_text) - tokenized_text.truncated)
        if tokens < 1:
            found = len(tokenized_text) + tokenized_text.truncated
            raise Refused(f"the prompt has {found} tokens, the model reads {most}: an answer does not fit")
    sampling: dict[str, Any] = {"do_sample": False}
    if page_request.temperature:
        sampling = {"do_sample": True, "temperature": page_request.temperature}
    streamer = EventStreamer(explainer.tokenizer, send)
    settings = {"max_new_tokens": tokens, "streamer": streamer, **sampling}
    ids = generate_ids(explainer.model, explainer.task, tokenized_text, page_request.seed, settings)
    text = explainer.tokenizer.decode(list(ids), skip_special_tokens=True)
    ended = ids[-1] in explainer.tokenizer.all_special_ids or len(ids) < tokens
    send(Wrote(WRITE, text, list(ids), ended))
