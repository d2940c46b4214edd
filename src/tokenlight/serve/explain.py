"""Explanations, explained answers and perturbation curves for the page."""

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tokenlight.common.progress import on_backward_pass, on_forward_pass, on_step
from tokenlight.explain.assemble import explain_requests
from tokenlight.explain.running import RunOptions
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
from tokenlight.serve.worker import CurveDrawn, Failed, Progress, Result, Say
from tokenlight.tasks.request import Request
from tokenlight.views.answer_page import drawable_answer
from tokenlight.views.interactive import drawable

SPEAK = 0.2  # seconds between two words about progress
ERRORS = (ValueError, TypeError, RuntimeError)  # of one method on one text; the others go on


@dataclass(frozen=True)
class Explained:
    """What came of one method."""

    method: str
    explanation: Explanation | None
    error: str = ""
    seconds: float = 0.0
    reused: bool = False


def answer_explain(session: Session, asked: ExplainRequest, say: Say) -> None:
    for one in explain_methods(session, asked, place(session, asked), say, asked.layers):
        if one.explanation is None:
            say(Failed(one.method, one.error))
        else:
            say(Result(one.method, drawable(one.explanation), one.seconds, one.reused))


def explain_methods(
    session: Session, asked: MethodsRequest, request: Request, say: Say, layers: bool = False
) -> Iterator[Explained]:
    """Each method's result: what is known at once, what shares passes together, then what asks the model again."""
    heads = None if asked.heads is None else lit_heads(session, asked.heads)
    documents = documents_of(session, asked)
    fresh: list[Method] = []
    for name in asked.methods:
        known = session.cache.get(result_key(asked, METHODS[name], layers))
        if known is None:
            fresh.append(METHODS[name])
        else:
            yield Explained(name, known, reused=True)
    chosen = {method.name: options(session, asked, method, heads, layers) for method in fresh}
    together = [name for name in chosen if not METHODS[name].takes_long]
    for group in (together, *([name] for name in chosen if METHODS[name].takes_long)):
        for one in explain_group(session, request, {name: chosen[name] for name in group}, say):
            if one.explanation is not None:
                explanation = replace(one.explanation, documents=documents)
                session.cache.put(result_key(asked, METHODS[one.method], layers), explanation)
                one = replace(one, explanation=explanation)
            yield one


def explain_group(
    session: Session, request: Request, group: Mapping[str, Mapping[str, Any]], say: Say
) -> Iterator[Explained]:
    """Methods with their options together; where that fails one by one, so that only those fail that have to."""
    method_configs: dict[str, MethodConfig] = {}
    for name, chosen in group.items():
        try:
            method_configs[name] = MethodConfig.for_model(METHODS[name], chosen, session.explainer.inner)
        except ERRORS as error:
            yield Explained(name, None, str(error))
    if not method_configs:
        return
    began = time.perf_counter()
    try:
        with report_progress(next(iter(method_configs.values())), request, say):
            found = explain_request(session, request, method_configs)
    except ERRORS as error:
        if len(method_configs) == 1:
            yield Explained(next(iter(method_configs)), None, str(error))
            return
    else:
        seconds = time.perf_counter() - began
        yield from (Explained(name, explanation, seconds=seconds) for name, explanation in found.items())
        return
    for name in method_configs:
        yield from explain_group(session, request, {name: group[name]}, say)


def explain_request(
    session: Session, request: Request, method_configs: Mapping[str, MethodConfig]
) -> dict[str, Explanation]:
    running = RunOptions(progress=False, memory=session.memory)
    found = explain_requests(session.explainer, [request], method_configs, running)
    return {name: explanation for name, (explanation,) in found.items()}


def options(
    session: Session, asked: MethodsRequest, method: Method, heads: HeadMask | None, layers: bool
) -> dict[str, Any]:
    mask = heads if is_masked(asked, method) else default_mask(session, method)
    chosen: dict[str, Any] = {} if mask is None else {"heads": mask}
    return chosen | ({"detail": "layers"} if layers and has_layers(method) else {})


def is_masked(asked: MethodsRequest, method: Method) -> bool:
    """Whether the lit heads of the page are for this method."""
    meant = asked.masked is None or method.name in asked.masked
    return asked.heads is not None and takes_heads(method) and meant


def takes_heads(method: Method) -> bool:
    return "heads" in method.options


def has_layers(method: Method) -> bool:
    return "detail" in method.options


def result_key(asked: MethodsRequest, method: Method, layers: bool) -> Hashable:
    """Equal keys, equal results: only what the method depends on."""
    heads = asked.heads if is_masked(asked, method) else None
    return (asked.question, method.name, heads, layers and has_layers(method))


def report_progress(method_config: MethodConfig, request: Request, say: Say) -> AbstractContextManager[None]:
    """Speak about the progress of a slow method, not too often."""
    if method_config.method.slow:
        return on_step(Counter(method_config.method.name, None, say))
    if not method_config.method.runs_often:
        return nullcontext()
    total = 1 + method_config.method.model_runs.passes(
        method_config.full_options, len(request.tokenized_text)
    )  # what the model says comes first
    return on_forward_pass(Counter(method_config.method.name, total, say))


@dataclass
class Counter:
    """Called before every pass or step."""

    method: str
    total: int | None
    say: Say
    done: int = 0
    spoken: float = field(default_factory=time.monotonic)

    def __call__(self) -> None:
        now = time.monotonic()
        if self.done and now - self.spoken >= SPEAK:
            self.say(Progress(self.method, self.done, self.total))
            self.spoken = now
        self.done += 1


PATIENCE = 5  # times as long as other requests: every token of an answer takes a backward pass


@dataclass(frozen=True)
class Found:
    """What came of one method."""

    method: str
    answer: ExplainedAnswer | None
    error: str = ""
    seconds: float = 0.0
    reused: bool = False


def answer_answer(session: Session, asked: MethodsRequest, say: Say) -> None:
    for one in explain_answers(session, asked, say):
        if one.answer is None:
            say(Failed(one.method, one.error))
        else:
            say(Result(one.method, drawable_answer(one.answer), one.seconds, one.reused))


def explain_answers(session: Session, asked: MethodsRequest, say: Say) -> Iterator[Found]:
    """Each method's result; one that fails leaves the others alone."""
    if asked.answer is None:
        raise Refused("missing answer: expected a text, or token ids")
    ids = read_answer(session, read_prompt(session, asked), asked.answer)
    heads = None if asked.heads is None else lit_heads(session, asked.heads)
    for name in asked.methods:
        method = METHODS[name]
        key = answer_key(asked, ids, method)
        if (known := session.cache.get(key)) is not None:
            yield Found(name, known, reused=True)
            continue
        began = time.perf_counter()
        try:
            chosen = options(session, asked, method, heads, False)
            MethodConfig.for_model(method, chosen, session.explainer.inner)
            total = None if method.runs_model else len(ids)  # those come back to every token again and again
            with on_backward_pass(Counter(name, total, say)):
                found = explain(session, asked, ids, name, chosen)
        except ERRORS as error:
            yield Found(name, None, str(error))
            continue
        session.cache.put(key, found)
        yield Found(name, found, seconds=time.perf_counter() - began)


def explain(
    session: Session, asked: MethodsRequest, ids: tuple[int, ...], method: str, chosen: dict[str, Any]
) -> ExplainedAnswer:
    prompt: Any = text_of(session, asked)
    found = session.explainer.explain_answer(prompt, ids, method, progress=False, **chosen)
    return replace(found, documents=documents_of(session, asked))


def answer_key(asked: MethodsRequest, ids: tuple[int, ...], method: Method) -> Hashable:
    """Equal keys, equal results."""
    heads = asked.heads if is_masked(asked, method) else None
    return ("answer", asked.text, asked.messages, asked.documents, ids, method.name, heads)


CHANCE, BEST = "random", "erasure"  # always drawn beside the others
DRAWS = 5  # random orders, whose mean is the curve of chance


def curve_names(asked: CurvesRequest) -> tuple[str, ...]:
    """What is drawn: the methods, and what they are compared with."""
    return tuple(dict.fromkeys([*asked.methods, CHANCE, BEST]))


def answer_curves(session: Session, asked: CurvesRequest, say: Say) -> None:
    """The curves that need no slow method first."""
    perturbation = perturbation_of(session, asked.perturbation)
    try:
        check_probabilities(session.explainer)
    except ValueError as error:
        raise Refused(str(error)) from error
    request = place(session, asked)
    names = [name for name in curve_names(asked) if name != CHANCE]
    quick = tuple(name for name in names if not METHODS[name].takes_long)
    draw(session, replace(asked, methods=quick), request, perturbation, say, chance_draws(session, request))
    for name in names:
        if name not in quick:
            draw(session, replace(asked, methods=(name,)), request, perturbation, say)


def draw(
    session: Session,
    asked: CurvesRequest,
    request: Request,
    perturbation: Perturbation,
    say: Say,
    draws: Sequence[Explanation] = (),
) -> None:
    """Explain, take away, and tell: the curves of a group share the model's answers."""
    explanations: list[Explanation] = list(draws)
    for one in explain_methods(session, asked, request, say):
        if one.explanation is None:
            say(Failed(one.method, one.error))
        else:
            explanations.append(one.explanation)
    if not explanations:
        return
    with on_forward_pass(Counter(asked.methods[0] if asked.methods else CHANCE, None, say)):
        options = EvaluationOptions(tokenized_texts=[request.tokenized_text] * len(explanations))
        found = draw_curves(session.explainer, explanations, perturbation, options=options)
    for explanation, curve in zip(explanations[len(draws) :], found[len(draws) :], strict=True):
        say(told(explanation.method, [curve]))
    if draws:
        say(told(CHANCE, found[: len(draws)]))


def told(method: str, curves: Sequence[Curve]) -> CurveDrawn:
    """The mean of curves over the same points."""
    probabilities = torch.stack([curve.probabilities for curve in curves])
    return CurveDrawn(
        method=method,
        shares=curves[0].shares.tolist(),
        probabilities=probabilities.mean(0).tolist(),
        aopc=sum(map(aopc, probabilities)) / len(curves),
        log_odds=sum(map(log_odds, probabilities)) / len(curves),
    )


def chance_draws(session: Session, request: Request) -> list[Explanation]:
    method_configs = {str(seed): MethodConfig(METHODS[CHANCE], {"seed": seed}) for seed in range(DRAWS)}
    return list(explain_request(session, request, method_configs).values())
