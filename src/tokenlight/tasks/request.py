"""A request: one tokenized text with its resolved target."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tokenlight.common.option_values import Quantity
from tokenlight.tasks.target_functions import OutputFunction
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.text.tokenized_text import TokenizedText

if TYPE_CHECKING:
    from tokenlight.tasks.task import Task


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

    def split_foil(self, task: "Task") -> "list[Request]":
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
