"""A request: one tokenized text with its resolved target."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenlight.common.option_values import Quantity
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.text.tokenized_text import TokenizedText

if TYPE_CHECKING:
    from tokenlight.tasks.task import Task


@dataclass(frozen=True)
class Request:
    """One text and what is explained about it."""

    tokenized_text: TokenizedText
    target: ResolvedTarget
    named: bool  # whether the caller named a target or a foil
    model_input: TokenizedText  # the text, and the continuation that the model reads after it

    @property
    def kind(self) -> tuple[object, ...]:
        """Only requests of one kind share a batch. A target function must not see padding, so lengths are equal."""
        target = self.target
        length = 0 if target.function is None else len(self.model_input)
        return target.kind, target.has_foil, target.parts is not None, target.quantity, length

    @property
    def quantity(self) -> dict[str, Quantity]:
        """What is explained of each token of a continuation, as an option of the result."""
        return {"quantity": self.target.quantity} if self.target.continuation else {}

    def split_foil(self, task: "Task") -> "list[Request]":
        """Target and foil as requests of their own, if the model has to read each in a pass of its own."""
        foil = self.target.foil_continuation
        if not foil:
            return [self]
        targets = replace(self.target, foil=()), replace(self.target, indices=foil, foil=())
        return [
            replace(self, target=target, model_input=task.append_continuation(self.tokenized_text, target))
            for target in targets
        ]
