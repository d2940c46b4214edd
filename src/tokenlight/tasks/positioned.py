"""Models that answer for every token: which of them is meant."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from tokenlight.tasks.targets import ResolvedTarget, Span, TargetSpec, check_position, check_positions, refuse_equal
from tokenlight.tasks.task import LogitsFor, Task
from tokenlight.text.batches import Batch
from tokenlight.text.rows import TokenizedText, parts
from tokenlight.text.words import number_words


@dataclass(frozen=True)
class Positioned(Task):
    """A task whose targets are (position, label or token)."""

    logits_for: ClassVar[LogitsFor] = "every token"
    names_position = True

    def resolve_target(self, tokenized_text: TokenizedText, target: TargetSpec, foil: TargetSpec) -> ResolvedTarget:
        position, name = self.place(tokenized_text, target)
        return replace(super().resolve_target(tokenized_text, name, foil), position=position)

    def place(self, tokenized_text: TokenizedText, target: Any) -> tuple[int, Any]:
        """The position, and what is asked about it."""
        if not isinstance(target, tuple) or len(target) != 2:
            raise ValueError(
                f"this {self.name} model answers for every token: target=(position, label), where position is a token "
                f"index or a word of the text and label may be None for the predicted one; found {target!r}"
            )
        position, name = target
        return (
            token_of_word(tokenized_text, position)
            if isinstance(position, str)
            else check_position(tokenized_text, position)
        ), name

    def resolve_target_ids(self, target: Any, foil: Any) -> ResolvedTarget:
        if not isinstance(target, tuple) or len(target) != 2:
            raise ValueError(
                f"this {self.name} model answers for every token: target=(position, index); found {target!r}"
            )
        refuse_equal(target[1], foil, foil)
        return ResolvedTarget(index=target[1], position=target[0], foil=foil)

    def trial_target(self, last: int) -> Any:
        return last // 2, super().trial_target(last)

    def compose(self, target: Any, position: int | None = None, span: Span | None = None) -> Any:
        return (
            super().compose(target, None, span) if position is None else (position, super().compose(target, span=span))
        )

    def positions(self, resolved: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        places = [one.position for one in resolved]
        check_positions(places, batch)
        return None if None in places else batch.input_ids.new_tensor(places)

    def answer_rows(self, output: Any, i: int, length: int, position: int | None, count: int = 1) -> Tensor | None:
        if position is None:
            return None
        logits = output["logits"][i]
        return logits[None] if logits.ndim == 1 else logits[position][None]


def token_of_word(tokenized_text: TokenizedText, word: str) -> int:
    """The first token of a word that stands in the text exactly once."""
    texts = parts(tokenized_text.text)
    places = [(s, k) for s, part in enumerate(texts) for k in range(len(part)) if part.startswith(word, k) and word]
    numbers = [[-1, *number_words(part), -1] for part in texts]
    whole = [
        (s, k)
        for s, k in places
        if numbers[s][k] != numbers[s][k + 1] and numbers[s][k + len(word)] != numbers[s][k + len(word) + 1]
    ]
    places = whole or places  # 'is' is not the end of 'this', if it also stands alone
    if len(places) != 1:
        raise ValueError(f"{word!r} occurs {len(places)} times in the text: give the index of its token instead")
    segment, start = places[0]
    for i, (s, (first, last)) in enumerate(zip(tokenized_text.segments, tokenized_text.spans, strict=True)):
        if s == segment and first <= start < last:
            return i
    raise ValueError(f"{word!r} is not among the tokens that fit into the model")
