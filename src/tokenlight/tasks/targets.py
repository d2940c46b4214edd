"""Targets: what a person asks for, and the same for one text in indices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.target_functions import OutputFunction
from tokenlight.text.batch import Batch
from tokenlight.text.tokenized_text import TokenizedText, is_whole

if TYPE_CHECKING:
    from tokenlight.tasks.task import Task

Span = tuple[int, int]  # first and last token of an answer, both inside
GONE: Span = (-1, -1)  # an answer of which no token is left
Position = int | str  # a token's index, or a word of the text
Named = int | str  # a label or a token, by index or by name; an answer by its text
# What people may ask for: nothing (the prediction); a label, a token or an answer; an answer as (first token, last
# token); (position, label or token) where the model answers for every token; a function of the model's output; and
# where probabilities are measured, token ids that follow one another.
TargetSpec = Named | tuple[int, ...] | tuple[Position, Named | None] | OutputFunction | None
TargetSpecs = TargetSpec | Sequence[TargetSpec]  # one for all texts, or a list with one for each


@dataclass(frozen=True)
class ResolvedTarget:
    """What the caller asked for in one text, in indices. None stands for what the model predicts."""

    index: int | None = None  # label or token id
    foil: int | None = None
    position: int | None = None  # the token whose label or word is explained
    span: Span | None = None  # extractive answers
    foil_span: Span | None = None
    context: Span | None = None  # the tokens an answer may lie in
    answer: tuple[int, ...] = ()  # several tokens that follow the text
    foil_answer: tuple[int, ...] = ()
    each: bool = False  # the answer's tokens are explained one by one, not their sum
    parts: tuple[int, ...] = ()  # ... or part by part: for every token the number of its part, such as a sentence
    against_all: bool = False  # each logit of the answer minus the mean of all, weighted by their probabilities

    @property
    def foiled(self) -> bool:
        return self.foil is not None or self.foil_span is not None

    @property
    def measured_target(self) -> "MeasuredTarget | None":
        """None where the prediction decides."""
        if self.span is None and self.index is None and not self.answer:
            return None
        if self.foil_answer:
            raise RefusedValue("the probability of one continuation among two is not measured: leave the foil out")
        index = self.answer or (() if self.index is None else (self.index,))
        return MeasuredTarget(index, self.foil, self.position, self.span, self.foil_span)


@dataclass(frozen=True)
class MeasuredTarget:
    """Whose probability is measured in one text, in indices of the whole row.

    With a foil it is the probability among the two: the softmax over target and foil alone. An answer's is that of
    its first token as start times that of its last token as end, each among all tokens of the row; where these were
    deleted, its first and last token that are left stand in, and an answer that is gone altogether has probability 0.
    A continuation's is the product over its tokens.
    """

    index: tuple[int, ...] = ()  # a label, or token ids that follow one another
    foil: int | None = None
    position: int | None = None  # the token whose label or word is read; it is never taken away
    span: Span | None = None  # an answer
    foil_span: Span | None = None
    given: tuple[int, ...] = ()  # token ids that stand between the text and those of the index

    @property
    def protected(self) -> tuple[int, ...]:
        return () if self.position is None else (self.position,)

    @property
    def steps(self) -> int:
        """Tokens of a continuation; 1 for everything else."""
        return max(1, len(self.index))

    @property
    def target(self) -> TargetSpec:
        """As `explain` takes it."""
        if self.span is not None:
            return self.span
        return self.index[0] if self.position is None else (self.position, self.index[0])

    def move(self, kept: Sequence[int]) -> "MeasuredTarget":
        """The same goal where only these tokens are left."""
        position = None if self.position is None else kept.index(self.position)
        span, foil_span = (one and squeeze(one, kept) for one in (self.span, self.foil_span))
        return replace(self, position=position, span=span, foil_span=foil_span)


def squeeze(span: Span, kept: Sequence[int]) -> Span:
    inside = [new for new, old in enumerate(kept) if span[0] <= old <= span[1]]
    return (inside[0], inside[-1]) if inside else GONE


@dataclass(frozen=True)
class ChangedInput:
    """An input and what is read from it; equal questions have equal answers."""

    input_ids: tuple[int, ...]
    original_ids: tuple[int, ...]  # for each token what stood there before it was replaced: positions go by these
    token_type_ids: tuple[int, ...] | None
    measured_target: MeasuredTarget

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class Target:
    """What to explain in every text of a batch; `select` settles it once the model has answered."""

    task: "Task"
    resolved: tuple[ResolvedTarget, ...]
    function: OutputFunction | None = None

    @property
    def foiled(self) -> bool:
        return any(resolved.foiled for resolved in self.resolved)

    def select(self, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[OutputSelector, ...]:
        """The parts whose scores add up to what is explained."""
        return self.task.select(self, output, batch, model)

    def reads_at(self, batch: Batch) -> Tensor | None:
        """The tokens of each text whose logits count, as `Asked` has them."""
        return None if self.function is not None else self.task.reads_at(self.resolved, batch)


@dataclass(frozen=True)
class Candidate:
    """A label, token or answer: what can be explained."""

    name: str
    index: int | None = None
    probability: float | None = None
    value: float | None = None  # regression
    span: Span | None = None

    def to_dict(self) -> dict[str, Any]:
        always = {"name": self.name, "index": self.index}
        return always | {key: value for key, value in vars(self).items() if key not in always and value is not None}


def chosen_indices(selectors: Sequence[OutputSelector], i: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Target and foil of the i-th text as the model counts: a label, a token id, or an answer's first and last."""
    index = tuple(index for selector in selectors for index in selector.indices_of(i))
    return index, tuple(int(selector.foil[i]) for selector in selectors if selector.foil is not None)


def new_foils(foils: Sequence[int | None], like: Tensor) -> Tensor | None:
    """[batch], or None where there are none."""
    return like.new_tensor(foils) if all_or_none(foils) else None


def all_or_none(foils: Sequence[Any]) -> bool:
    """Whether there are foils; a batch cannot have some."""
    if any(foil is None for foil in foils) and any(foil is not None for foil in foils):
        raise RefusedValue("some rows have a foil and others none: explain them in separate calls")
    return foils[0] is not None


def check_indices(indices: Sequence[Any], outputs: int) -> None:
    for index in indices:
        if index is not None and not (is_whole(index) and 0 <= index < outputs):
            raise RefusedValue(f"expected the index of one of the model's {outputs} outputs, found {index!r}")


def check_positions(positions: Sequence[Any], batch: Batch) -> None:
    width = batch.input_ids.shape[1]
    for row, position in enumerate(positions):
        if position is None:
            continue
        if not (is_whole(position) and 0 <= position < width):
            raise RefusedValue(f"there is no position {position!r} in rows of {width} tokens")
        if not batch.attention_mask[row, position]:
            raise RefusedValue(f"position {position} of row {row} is padding")


def check_position(tokenized_text: TokenizedText, position: object) -> int:
    if not is_whole(position) or not 0 <= position < len(tokenized_text):
        raise RefusedValue(
            f"position {position!r} is not a token of this text, which has tokens 0 to {len(tokenized_text) - 1}"
        )
    return int(position)


def refuse_equal(target: object, foil: object, name: object) -> None:
    if target is not None and target == foil:
        raise RefusedValue(f"target and foil are both {name!r}: there is nothing to compare")


def spread(value: Any, count: int, name: str) -> list[TargetSpec]:
    """One of these `TargetSpecs` for each text; a list has them already, any other sequence is a single target."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise RefusedValue(f"{name} is a list of {len(value)} for {count} texts")
    return value


def shared_function(targets: Sequence[TargetSpec], foils: Sequence[TargetSpec]) -> OutputFunction | None:
    """The caller's own target function, which must be the same for all texts."""
    functions = [target for target in targets if callable(target)]
    if not functions:
        return None
    if any(target is not functions[0] for target in targets) or any(foil is not None for foil in foils):
        raise RefusedValue(
            "a target function is given for all texts at once, and takes the difference to a foil itself"
        )
    return functions[0]
