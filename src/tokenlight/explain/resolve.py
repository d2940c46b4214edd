"""From targets as people name them to requests: for each text, target and foil in indices."""

from collections.abc import Sequence
from dataclasses import replace

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.option_values import Quantity
from tokenlight.explain.generate import AnswerLike, Generated
from tokenlight.tasks.request import Request
from tokenlight.tasks.targets import ResolvedTarget, TargetSpec, TargetSpecs, shared_function, spread
from tokenlight.tasks.task import Task
from tokenlight.text.tokenize import refuse_too_long
from tokenlight.text.tokenized_text import TokenizedText


def resolve_requests(
    task: Task, tokenized_texts: Sequence[TokenizedText], target: TargetSpecs, foil: TargetSpecs
) -> list[Request]:
    """One request per text. `target` and `foil` are as `explain` takes them: for all texts, or a list for each."""
    targets, foils = spread(target, len(tokenized_texts), "target"), spread(foil, len(tokenized_texts), "foil")
    function = shared_function(targets, foils)
    requests: list[Request] = []
    for tokenized_text, text_target, text_foil in zip(tokenized_texts, targets, foils, strict=True):
        if function is None:
            resolved = task.resolve_target(tokenized_text, text_target, text_foil)
        else:
            resolved = task.resolve_function(tokenized_text, function)
        named = (text_target, text_foil) != (None, None)
        requests.append(make_request(task, tokenized_text, resolved, named))
    return requests


def make_request(task: Task, tokenized_text: TokenizedText, resolved: ResolvedTarget, named: bool) -> Request:
    return Request(tokenized_text, resolved, named, task.append_continuation(tokenized_text, resolved))


def answer_request(task: Task, tokenized_text: TokenizedText, answer: AnswerLike, quantity: Quantity) -> Request:
    """All tokens of an answer, explained one by one."""
    if not task.generates:
        raise RefusedValue(f"only language models write answers; this is a {task.name} model")
    ids = answer_ids(task, tokenized_text, answer)
    resolved = ResolvedTarget(ids, kind="continuation", parts=tuple(range(len(ids))), quantity=quantity)
    return make_request(task, tokenized_text, resolved, named=True)


def answer_part_request(
    task: Task,
    tokenized_text: TokenizedText,
    ids: Sequence[int],
    part: tuple[int, int],
    target: TargetSpec = None,
    foil: TargetSpec = None,
) -> Request:
    """The tokens [start, end) of an answer together, or another target in their place, given the tokens before."""
    start, end = part
    if not 0 <= start < end <= len(ids):
        raise RefusedValue(f"the answer has the tokens 0 to {len(ids) - 1}: there is no part from {start} up to {end}")
    given = tuple(ids[:start])
    if target is None:
        target = ids[start] if end == start + 1 else tuple(ids[start:end])
    resolved = task.resolve_target(tokenized_text, target, foil)
    if resolved.kind == "index" and foil is None:  # a single token of an answer is explained as several are
        resolved = task.resolve_target(tokenized_text, resolved.indices, None)
    if given and resolved.foil_continuation:
        raise RefusedValue("two continuations can be compared only right after the prompt: name one token each")
    return make_request(task, tokenized_text, replace(resolved, given=given), named=True)


def answer_ids(task: Task, tokenized_text: TokenizedText, answer: AnswerLike) -> tuple[int, ...]:
    """The token ids of an answer; one that does not fit into the model is refused."""
    if isinstance(answer, Generated):
        answer = answer.ids
    if isinstance(answer, str):
        answer = tuple(task.tokenizer.encode(answer, add_special_tokens=False))
    if not isinstance(answer, Sequence):
        found = type(answer).__name__
        raise RefusedType(f"an answer is a text, what generate() returned, or a tuple of token ids; found {found}")
    ids = tuple(task.index(i) for i in answer)
    if not ids:
        raise RefusedValue("expected an answer, found an empty one")
    refuse_too_long(tokenized_text, ids, task.max_length)
    return ids
