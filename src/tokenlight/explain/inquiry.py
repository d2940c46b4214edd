"""Resolves the targets of a call: for each text, target and foil in indices."""

from collections.abc import Sequence

from tokenlight.tasks.request import Request
from tokenlight.tasks.targets import TargetSpecs, shared_function, spread
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import TokenizedText


def resolve_requests(
    task: Task, tokenized_texts: Sequence[TokenizedText], target: TargetSpecs, foil: TargetSpecs
) -> list[Request]:
    """People's words for targets and foils, looked up in each text."""
    targets, foils = spread(target, len(tokenized_texts), "target"), spread(foil, len(tokenized_texts), "foil")
    function = shared_function(targets, foils)
    found: list[Request] = []
    for tokenized_text, one, other in zip(tokenized_texts, targets, foils, strict=True):
        resolved = (
            task.resolve_any_target(tokenized_text) if function else task.resolve_target(tokenized_text, one, other)
        )
        named = (one, other) != (None, None)
        found.append(Request(tokenized_text, resolved, named, function, read=task.read_on(tokenized_text, resolved)))
    return found
