"""Explanations, explained answers and perturbation curves for the page."""

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tokenlight.common.progress import on_backward_pass, on_forward_pass, on_step
from tokenlight.explain.options import Resources, RunOptions
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import METHODS, Method
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.curves import aopc, log_odds
from tokenlight.metrics.evaluate import Curve, draw_curves
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.metrics.probability import EvaluationOptions, check_probabilities
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation
from tokenlight.serve.predict import perturbation_of
from tokenlight.serve.requests import CurvesRequest, ExplainRequest, MethodsRequest, Refused
from tokenlight.serve.session import (
    Session,
    default_mask,
    documents_of,
    lit_heads,
    place,
    read_answer,
    read_prompt,
    text_of,
)
from tokenlight.serve.worker import CurveDrawn, Failed, Progress, Result, SendEvent
from tokenlight.tasks.request import Request
from tokenlight.views.answer_page import drawable_answer
from tokenlight.views.interactive import drawable

PROGRESS_INTERVAL = 0.2  # seconds between two events of progress
ERRORS = (ValueError, TypeError, RuntimeError)  # errors of one method, which do not affect others


@dataclass(frozen=True)
class ExplanationResult:
    """The explanation or the error of one method."""

    method: str
    explanation: Explanation | None
    error: str = ""
    seconds: float = 0.0
    reused: bool = False


def send_explanations(session: Session, page_request: ExplainRequest, send_event: SendEvent) -> None:
    request = place(session, page_request)
    for result in explain_methods(session, page_request, request, send_event, page_request.layers):
        if result.explanation is None:
            send_event(Failed(result.method, result.error))
        else:
            send_event(Result(result.method, drawable(result.explanation), result.seconds, result.reused))


def explain_methods(
    session: Session, page_request: MethodsRequest, request: Request, send_event: SendEvent, layers: bool = False
) -> Iterator[ExplanationResult]:
    """The result of each method: first cached ones, then of methods that share passes, then of slow methods."""
    heads = None if page_request.heads is None else lit_heads(session, page_request.heads)
    documents = documents_of(session, page_request)
    fresh: list[Method] = []
    for name in page_request.methods:
        cached = session.cache.get(result_key(page_request, METHODS[name], layers))
        if cached is None:
            fresh.append(METHODS[name])
        else:
            yield ExplanationResult(name, cached, reused=True)
    options_by_method = {method.name: options_for(session, page_request, method, heads, layers) for method in fresh}
    fast = [name for name in options_by_method if not METHODS[name].is_slow]
    slow = [name for name in options_by_method if METHODS[name].is_slow]
    for group in (fast, *([name] for name in slow)):
        for result in explain_group(session, request, {name: options_by_method[name] for name in group}, send_event):
            if result.explanation is not None:
                explanation = replace(result.explanation, documents=documents)
                session.cache.put(result_key(page_request, METHODS[result.method], layers), explanation)
                result = replace(result, explanation=explanation)
            yield result


def explain_group(
    session: Session, request: Request, group: Mapping[str, Mapping[str, Any]], send_event: SendEvent
) -> Iterator[ExplanationResult]:
    """Results of methods that run together; after an error, each method runs alone, to isolate the error."""
    method_configs: dict[str, MethodConfig] = {}
    for name, method_options in group.items():
        try:
            method_configs[name] = MethodConfig.for_model(METHODS[name], method_options, session.explainer.inner)
        except ERRORS as error:
            yield ExplanationResult(name, None, str(error))
    if not method_configs:
        return
    start = time.perf_counter()
    try:
        with report_progress(next(iter(method_configs.values())), request, send_event):
            explanations = explain_request(session, request, method_configs)
    except ERRORS as error:
        if len(method_configs) == 1:
            yield ExplanationResult(next(iter(method_configs)), None, str(error))
            return
    else:
        seconds = time.perf_counter() - start
        yield from (ExplanationResult(name, explanation, seconds=seconds) for name, explanation in explanations.items())
        return
    for name in method_configs:
        yield from explain_group(session, request, {name: group[name]}, send_event)


def explain_request(
    session: Session, request: Request, method_configs: Mapping[str, MethodConfig]
) -> dict[str, Explanation]:
    resources = Resources(pass_cache=session.pass_cache)
    by_label = session.explainer.explain_requests([request], method_configs, RunOptions(progress=False), resources)
    return {name: explanation for name, (explanation,) in by_label.items()}


def options_for(
    session: Session, page_request: MethodsRequest, method: Method, heads: HeadMask | None, layers: bool
) -> dict[str, Any]:
    """The options of a method: its head mask, and the scores of layers if they are requested."""
    mask = heads if is_masked(page_request, method) else default_mask(session, method)
    mask_option: dict[str, Any] = {} if mask is None else {"heads": mask}
    return mask_option | ({"detail": "layers"} if layers and has_layers(method) else {})


def is_masked(page_request: MethodsRequest, method: Method) -> bool:
    """Whether the head strengths of the page apply to this method."""
    applies = page_request.masked is None or method.name in page_request.masked
    return page_request.heads is not None and takes_heads(method) and applies


def takes_heads(method: Method) -> bool:
    return "heads" in method.options


def has_layers(method: Method) -> bool:
    return "detail" in method.options


def result_key(page_request: MethodsRequest, method: Method, layers: bool) -> Hashable:
    """The cache key of a result: everything that the method depends on."""
    heads = page_request.heads if is_masked(page_request, method) else None
    return (page_request.question, method.name, heads, layers and has_layers(method))


def report_progress(
    method_config: MethodConfig, request: Request, send_event: SendEvent
) -> AbstractContextManager[None]:
    """Send events about the progress of a slow method."""
    if method_config.method.slow:
        return on_step(Counter(method_config.method.name, None, send_event))
    if not method_config.method.runs_on_changed_texts:
        return nullcontext()
    total = 1 + method_config.method.model_runs.passes(
        method_config.full_options, len(request.tokenized_text)
    )  # plus the pass for the prediction
    return on_forward_pass(Counter(method_config.method.name, total, send_event))


@dataclass
class Counter:
    """Counts passes or steps; sends an event at most every `PROGRESS_INTERVAL` seconds. Called before each pass."""

    method: str
    total: int | None
    send_event: SendEvent
    done: int = 0
    last_sent: float = field(default_factory=time.monotonic)

    def __call__(self) -> None:
        now = time.monotonic()
        if self.done and now - self.last_sent >= PROGRESS_INTERVAL:
            self.send_event(Progress(self.method, self.done, self.total))
            self.last_sent = now
        self.done += 1


ANSWER_TIME_FACTOR = 5  # of the time limit, since every token of an answer takes a backward pass


@dataclass(frozen=True)
class AnswerResult:
    """The explained answer or the error of one method."""

    method: str
    answer: ExplainedAnswer | None
    error: str = ""
    seconds: float = 0.0
    reused: bool = False


def send_answers(session: Session, page_request: MethodsRequest, send_event: SendEvent) -> None:
    for result in explain_answers(session, page_request, send_event):
        if result.answer is None:
            send_event(Failed(result.method, result.error))
        else:
            send_event(Result(result.method, drawable_answer(result.answer), result.seconds, result.reused))


def explain_answers(session: Session, page_request: MethodsRequest, send_event: SendEvent) -> Iterator[AnswerResult]:
    """The result of each method; errors of one method do not affect others."""
    if page_request.answer is None:
        raise Refused("missing answer: expected a text, or token ids")
    ids = read_answer(session, read_prompt(session, page_request), page_request.answer)
    heads = None if page_request.heads is None else lit_heads(session, page_request.heads)
    for name in page_request.methods:
        method = METHODS[name]
        key = answer_key(page_request, ids, method)
        if (cached := session.cache.get(key)) is not None:
            yield AnswerResult(name, cached, reused=True)
            continue
        start = time.perf_counter()
        try:
            method_options = options_for(session, page_request, method, heads, False)
            MethodConfig.for_model(method, method_options, session.explainer.inner)
            total = None if method.runs_model else len(ids)  # such methods run more passes for each token
            with on_backward_pass(Counter(name, total, send_event)):
                explained_answer = explain_answer(session, page_request, ids, name, method_options)
        except ERRORS as error:
            yield AnswerResult(name, None, str(error))
            continue
        session.cache.put(key, explained_answer)
        yield AnswerResult(name, explained_answer, seconds=time.perf_counter() - start)


def explain_answer(
    session: Session, page_request: MethodsRequest, ids: tuple[int, ...], method: str, options: dict[str, Any]
) -> ExplainedAnswer:
    prompt: Any = text_of(session, page_request)
    explained_answer = session.explainer.explain_answer(prompt, ids, method, progress=False, **options)
    return replace(explained_answer, documents=documents_of(session, page_request))


def answer_key(page_request: MethodsRequest, ids: tuple[int, ...], method: Method) -> Hashable:
    """The cache key of an explained answer."""
    heads = page_request.heads if is_masked(page_request, method) else None
    return ("answer", page_request.text, page_request.messages, page_request.documents, ids, method.name, heads)


CHANCE, BEST = "random", "erasure"  # curves for comparison, always drawn
DRAWS = 5  # random orders, whose mean curve is drawn


def curve_names(page_request: CurvesRequest) -> tuple[str, ...]:
    """The curves to draw: of the methods, and for comparison."""
    return tuple(dict.fromkeys([*page_request.methods, CHANCE, BEST]))


def send_curves(session: Session, page_request: CurvesRequest, send_event: SendEvent) -> None:
    """Send the curves of fast methods, then those of slow methods."""
    perturbation = perturbation_of(session, page_request.perturbation)
    try:
        check_probabilities(session.explainer)
    except ValueError as error:
        raise Refused(str(error)) from error
    request = place(session, page_request)
    names = [name for name in curve_names(page_request) if name != CHANCE]
    fast = tuple(name for name in names if not METHODS[name].is_slow)
    send_curves_of_group(
        session, replace(page_request, methods=fast), request, perturbation, send_event, random_orders(session, request)
    )
    for name in names:
        if name not in fast:
            send_curves_of_group(session, replace(page_request, methods=(name,)), request, perturbation, send_event)


def send_curves_of_group(
    session: Session,
    page_request: CurvesRequest,
    request: Request,
    perturbation: Perturbation,
    send_event: SendEvent,
    draws: Sequence[Explanation] = (),
) -> None:
    """Send the curves of a group of methods, and the mean curve of `draws`. Equal inputs of a group run once."""
    explanations: list[Explanation] = list(draws)
    for result in explain_methods(session, page_request, request, send_event):
        if result.explanation is None:
            send_event(Failed(result.method, result.error))
        else:
            explanations.append(result.explanation)
    if not explanations:
        return
    with on_forward_pass(Counter(page_request.methods[0] if page_request.methods else CHANCE, None, send_event)):
        options = EvaluationOptions(tokenized_texts=[request.tokenized_text] * len(explanations))
        curves = draw_curves(session.explainer, explanations, perturbation, options=options)
    for explanation, curve in zip(explanations[len(draws) :], curves[len(draws) :], strict=True):
        send_event(mean_curve(explanation.method, [curve]))
    if draws:
        send_event(mean_curve(CHANCE, curves[: len(draws)]))


def mean_curve(method: str, curves: Sequence[Curve]) -> CurveDrawn:
    """The mean of curves over the same points."""
    probabilities = torch.stack([curve.probabilities for curve in curves])
    return CurveDrawn(
        method=method,
        shares=curves[0].shares.tolist(),
        probabilities=probabilities.mean(0).tolist(),
        aopc=sum(map(aopc, probabilities)) / len(curves),
        log_odds=sum(map(log_odds, probabilities)) / len(curves),
    )


def random_orders(session: Session, request: Request) -> list[Explanation]:
    """Explanations with random scores."""
    method_configs = {str(seed): MethodConfig(METHODS[CHANCE], {"seed": seed}) for seed in range(DRAWS)}
    return list(explain_request(session, request, method_configs).values())
