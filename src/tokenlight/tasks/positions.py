"""Tasks with an output for every token: targets name a position."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks.targets import ResolvedTarget, Span, check_position, check_positions, refuse_equal
from tokenlight.tasks.task import LogitsFor, Task
from tokenlight.text.batch import Batch
from tokenlight.text.tokenized_text import TokenizedText


@dataclass(frozen=True)
class Positioned(Task):
    """A task whose targets are (position, label or token)."""

    logits_for: ClassVar[LogitsFor] = "every token"

    def resolve_names(self, tokenized_text: TokenizedText, target: Any, foil: Any) -> ResolvedTarget:
        position, name = self.split_target(tokenized_text, target)
        return replace(super().resolve_names(tokenized_text, name, foil), position=position)

    def check_resolved(self, tokenized_text: TokenizedText, target: ResolvedTarget) -> None:
        super().check_resolved(tokenized_text, replace(target, position=None))
        check_position(tokenized_text, target.position)

    def split_target(self, tokenized_text: TokenizedText, target: Any) -> tuple[int, Any]:
        """The position, and the label or token that is explained there."""
        if not isinstance(target, tuple) or len(target) != 2:
            raise RefusedValue(
                f"this {self.name} model has an output for every token: target=(position, label), where position is a "
                f"token index or a word of the text and label may be None for the predicted one; found {target!r}"
            )
        position, name = target
        return (
            tokenized_text.token_of_word(position)
            if isinstance(position, str)
            else check_position(tokenized_text, position)
        ), name

    def resolve_target_ids(self, target: Any, foil: Any) -> ResolvedTarget:
        if not isinstance(target, tuple) or len(target) != 2:
            raise RefusedValue(
                f"this {self.name} model has an output for every token: target=(position, index); found {target!r}"
            )
        refuse_equal(target[1], foil, foil)
        return replace(super().resolve_target_ids(target[1], foil), position=target[0])

    def trial_target(self, last: int) -> Any:
        return last // 2, super().trial_target(last)

    def compose(self, target: Any, position: int | None = None, span: Span | None = None) -> Any:
        return (
            super().compose(target, None, span) if position is None else (position, super().compose(target, span=span))
        )

    def positions(self, targets: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        positions = [target.position for target in targets]
        check_positions(positions, batch)
        return None if None in positions else batch.input_ids.new_tensor(positions)

    def logits_of_text(self, output: Any, i: int, length: int, position: int | None, count: int = 1) -> Tensor | None:
        if position is None:
            return None
        logits = output["logits"][i]
        return logits[None] if logits.ndim == 1 else logits[position][None]
