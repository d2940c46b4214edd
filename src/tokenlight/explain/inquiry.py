"""What is asked about a text, once it is read: its tokens, and target and foil in indices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tokenlight.common.option_values import Quantity
from tokenlight.tasks.target_functions import OutputFunction
from tokenlight.tasks.targets import ResolvedTarget, TargetSpecs, shared_function, spread
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import TokenizedText


@dataclass(frozen=True)
class Request:
    """One text and what is asked about it, as the model counts: nothing has to be looked up again."""

    tokenized_text: TokenizedText
    resolved: ResolvedTarget
    named: bool = False  # somebody named a target or a foil
    function: OutputFunction | None = None  # the caller's own target, which all texts of a call share
    given: tuple[int, ...] = ()  # tokens between the text and what is asked about: the beginning of an answer
    read: TokenizedText = field(kw_only=True)  # what the model reads: the text, and an answer behind it

    @property
    def kind(self) -> tuple[int, ...]:
        """Those of one kind can share a batch. A function of the output must not see padding, which it may read."""
        length = 0 if self.function is None else len(self.read)
        return self.resolved.foiled, bool(self.resolved.answer), self.resolved.each, self.resolved.against_all, length

    @property
    def quantity(self) -> dict[str, Quantity]:
        """What is explained of each token that follows the text, as a result keeps it; nothing where there is none."""
        if not self.resolved.answer:
            return {}
        return {"quantity": "log_probability" if self.resolved.against_all else "logit"}

    def split_foil(self, task: Task) -> "list[Request]":
        """Target and foil as requests of their own, where the model has to read each for itself."""
        if not self.resolved.foil_answer:
            return [self]
        targets_apart = [
            replace(self.resolved, foil_answer=()),
            replace(self.resolved, answer=self.resolved.foil_answer, foil_answer=()),
        ]
        return [
            replace(self, resolved=target_apart, read=task.read_on(self.tokenized_text, target_apart))
            for target_apart in targets_apart
        ]


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
