"""Explanations for the page: those that read the same passes together, slow ones after them, one by one."""

import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from tokenlight.explain.contrast import explain_requests
from tokenlight.explain.inquiry import Request
from tokenlight.explain.jobs import MethodConfig
from tokenlight.explain.running import RunOptions
from tokenlight.foundation.progress import at_each_pass, at_each_step
from tokenlight.masks.head_mask import HeadMask
from tokenlight.methods import METHODS, Method
from tokenlight.results.explanation import Explanation
from tokenlight.serve.events import Failed, Progress, Result
from tokenlight.serve.masks import default_mask, lit_heads
from tokenlight.serve.questions import ExplainRequest, MethodsRequest
from tokenlight.serve.session import Session, documents_of, place
from tokenlight.serve.waiting_line import Say
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
        with counting(next(iter(method_configs.values())), request, say):
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


def counting(method_config: MethodConfig, request: Request, say: Say) -> AbstractContextManager[None]:
    """Speak about the progress of a slow method, not too often."""
    if method_config.method.slow:
        return at_each_step(Counter(method_config.method.name, None, say))
    if not method_config.method.asks_often:
        return nullcontext()
    total = 1 + method_config.method.asks.passes(
        method_config.full_options, len(request.tokenized_text)
    )  # what the model says comes first
    return at_each_pass(Counter(method_config.method.name, total, say))


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
