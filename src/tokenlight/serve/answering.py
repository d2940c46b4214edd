"""Answers of language models, explained token by token: one method after the other, since each takes its time."""

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tokenlight.explain.jobs import MethodConfig
from tokenlight.foundation.progress import at_each_part
from tokenlight.methods import METHODS, Method
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.serve.checks import Refused
from tokenlight.serve.events import Failed, Result
from tokenlight.serve.explaining import ERRORS, Counter, is_masked, options
from tokenlight.serve.masks import lit_heads
from tokenlight.serve.questions import MethodsRequest
from tokenlight.serve.session import Session, documents_of, read_answer, read_prompt, text_of
from tokenlight.serve.waiting_line import Say
from tokenlight.views.drawable_answer import drawable_answer

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
            total = None if method.asks_model else len(ids)  # those come back to every token again and again
            with at_each_part(Counter(name, total, say)):
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
