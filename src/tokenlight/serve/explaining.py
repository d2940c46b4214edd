"""Explanations for the page: those that read the same passes together, slow ones after them, one by one."""

import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from tokenlight.explain.contrast import explain_inquiries
from tokenlight.explain.inquiry import Inquiry
from tokenlight.explain.jobs import Job
from tokenlight.explain.running import Running
from tokenlight.foundation.progress import at_each_pass, at_each_step
from tokenlight.masks.head_mask import HeadMask
from tokenlight.methods import METHODS, Method
from tokenlight.results.explanation import Explanation
from tokenlight.serve.events import Failed, Progress, Result
from tokenlight.serve.masks import default_mask, lit_heads
from tokenlight.serve.questions import ExplainAsked, MethodsAsked
from tokenlight.serve.session import Session, place, sources_of
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


def answer_explain(session: Session, asked: ExplainAsked, say: Say) -> None:
    for one in explain_methods(session, asked, place(session, asked), say, asked.layers):
        if one.explanation is None:
            say(Failed(one.method, one.error))
        else:
            say(Result(one.method, drawable(one.explanation), one.seconds, one.reused))


def explain_methods(
    session: Session, asked: MethodsAsked, inquiry: Inquiry, say: Say, layers: bool = False
) -> Iterator[Explained]:
    """Each method's result: what is known at once, what shares passes together, then what asks the model again."""
    heads = None if asked.heads is None else lit_heads(session, asked.heads)
    sources = sources_of(session, asked)
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
        for one in explain_group(session, inquiry, {name: chosen[name] for name in group}, say):
            if one.explanation is not None:
                explanation = replace(one.explanation, sources=sources)
                session.cache.put(result_key(asked, METHODS[one.method], layers), explanation)
                one = replace(one, explanation=explanation)
            yield one


def explain_group(
    session: Session, inquiry: Inquiry, group: Mapping[str, Mapping[str, Any]], say: Say
) -> Iterator[Explained]:
    """Methods with their options together; where that fails one by one, so that only those fail that have to."""
    jobs: dict[str, Job] = {}
    for name, chosen in group.items():
        try:
            jobs[name] = Job.for_model(METHODS[name], chosen, session.explainer.inner)
        except ERRORS as error:
            yield Explained(name, None, str(error))
    if not jobs:
        return
    began = time.perf_counter()
    try:
        with counting(next(iter(jobs.values())), inquiry, say):
            found = explain_inquiry(session, inquiry, jobs)
    except ERRORS as error:
        if len(jobs) == 1:
            yield Explained(next(iter(jobs)), None, str(error))
            return
    else:
        seconds = time.perf_counter() - began
        yield from (Explained(name, explanation, seconds=seconds) for name, explanation in found.items())
        return
    for name in jobs:
        yield from explain_group(session, inquiry, {name: group[name]}, say)


def explain_inquiry(session: Session, inquiry: Inquiry, jobs: Mapping[str, Job]) -> dict[str, Explanation]:
    running = Running(progress=False, memory=session.memory)
    found = explain_inquiries(session.explainer, [inquiry], jobs, running)
    return {name: explanation for name, (explanation,) in found.items()}


def options(
    session: Session, asked: MethodsAsked, method: Method, heads: HeadMask | None, layers: bool
) -> dict[str, Any]:
    mask = heads if is_masked(asked, method) else default_mask(session, method)
    chosen: dict[str, Any] = {} if mask is None else {"heads": mask}
    return chosen | ({"detail": "layers"} if layers and has_layers(method) else {})


def is_masked(asked: MethodsAsked, method: Method) -> bool:
    """Whether the lit heads of the page are for this method."""
    meant = asked.masked is None or method.name in asked.masked
    return asked.heads is not None and takes_heads(method) and meant


def takes_heads(method: Method) -> bool:
    return "heads" in method.options


def has_layers(method: Method) -> bool:
    return "detail" in method.options


def result_key(asked: MethodsAsked, method: Method, layers: bool) -> Hashable:
    """Equal keys, equal results: only what the method depends on."""
    heads = asked.heads if is_masked(asked, method) else None
    return (asked.question, method.name, heads, layers and has_layers(method))


def counting(job: Job, inquiry: Inquiry, say: Say) -> AbstractContextManager[None]:
    """Speak about the progress of a slow method, not too often."""
    if job.method.slow:
        return at_each_step(Counter(job.method.name, None, say))
    if not job.method.asks_often:
        return nullcontext()
    total = 1 + job.method.asks.passes(job.full_options, len(inquiry.row))  # what the model says comes first
    return at_each_pass(Counter(job.method.name, total, say))


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
