"""Targets: what a person asks for, and the same in indices, for one text and for a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import Quantity
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.target_functions import OutputFunction
from tokenlight.text.batch import Batch
from tokenlight.text.tokenized_text import TokenizedText, is_whole

if TYPE_CHECKING:
    from tokenlight.tasks.task import Task

Span = tuple[int, int]  # first token, and the token after the last
Position = int | str  # the index of a token, or a word of the text
REMOVED = (-1, -1)  # first and last token of a span of which no token is left
Name = int | str  # a label or a token, by index or by name; an answer by its text
TargetKind = Literal["index", "span", "continuation", "function"]


@dataclass(frozen=True)
class ResolvedTarget:
    """What is explained about one text, in indices. Without indices it is what the model predicts.

    A target with a foil is a difference: of two logits, or of two probabilities among the two.
    """

    # A label or a token id; the positions whose start and end logits are read, for a span; the ids of a continuation.
    indices: tuple[int, ...] = ()
    foil: tuple[int, ...] = ()
    kind: TargetKind = "index"
    position: int | None = None  # the token whose label or word is explained
    passage: Span | None = None  # the tokens that a span may consist of
    given: tuple[int, ...] = ()  # token ids between the text and the target: the beginning of an answer
    parts: tuple[int, ...] | None = None  # of a continuation: the number of each token's part; None: no parts
    quantity: Quantity = "logit"  # what is explained of each token of a continuation
    function: OutputFunction | None = None  # the caller's own

    @property
    def index(self) -> int | None:
        """The label or token id; None stands for the prediction."""
        return self.indices[0] if self.indices else None

    @property
    def continuation(self) -> tuple[int, ...]:
        """The token ids that the model reads after the text; empty for other kinds of targets."""
        return self.indices if self.kind == "continuation" else ()

    @property
    def foil_continuation(self) -> tuple[int, ...]:
        return self.foil if self.kind == "continuation" else ()

    @property
    def has_foil(self) -> bool:
        """Whether one pass reads both target and foil. Two continuations are read in two passes."""
        return bool(self.foil) and self.kind != "continuation"

    @property
    def protected(self) -> tuple[int, ...]:
        """Tokens that must not be removed when the target's probability is measured."""
        return () if self.position is None else (self.position,)

    @property
    def steps(self) -> int:
        """The number of tokens of a continuation; 1 for all other targets."""
        return 1 if self.kind == "span" else max(1, len(self.indices))

    def keep_tokens(self, kept: Sequence[int]) -> "ResolvedTarget":
        """The same target where only these tokens of the text are left.

        Of a span whose first or last token is removed, the first or last one that is left is read instead.
        """
        if self.kind == "span":
            return replace(self, indices=clip_ends(self.indices, kept), foil=clip_ends(self.foil, kept))
        return self if self.position is None else replace(self, position=kept.index(self.position))


# What people may ask for: nothing (the prediction); a label, a token or an answer; an answer as a span of tokens;
# (position, label or token) for models with an output for every token; token ids that follow one another; a function of
# the model's output; or a target that is resolved already.
TargetSpec = Name | tuple[int, ...] | tuple[Position, Name | None] | OutputFunction | ResolvedTarget | None
TargetSpecs = TargetSpec | Sequence[TargetSpec]  # one for all texts, or a list with one for each


def span_indices(span: Span | None) -> tuple[int, ...]:
    """The positions whose start and end logits are read for a span: its first and its last token."""
    return () if span is None else (span[0], span[1] - 1)


def clip_ends(ends: tuple[int, ...], kept: Sequence[int]) -> tuple[int, ...]:
    """First and last token of a span among the tokens that are kept; `REMOVED` if none of them is left."""
    if not ends:
        return ()
    inside = [new for new, old in enumerate(kept) if ends[0] <= old <= ends[1]]
    return (inside[0], inside[-1]) if inside else REMOVED


@dataclass(frozen=True)
class ChangedInput:
    """An input after the removal of tokens, and the target whose probability is measured; equal ones run once."""

    input_ids: tuple[int, ...]
    original_ids: tuple[int, ...]  # before replacement: position ids are counted by these
    token_type_ids: tuple[int, ...] | None
    target: ResolvedTarget

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class BatchTarget:
    """What is explained in each text of a batch. With `selectors`, it is what an earlier pass has selected."""

    task: "Task"
    targets: tuple[ResolvedTarget, ...]
    selectors: tuple[OutputSelector, ...] | None = field(default=None, compare=False)

    @property
    def has_foil(self) -> bool:
        return any(target.has_foil for target in self.targets)

    @property
    def function(self) -> OutputFunction | None:
        return self.targets[0].function

    @property
    def continues(self) -> bool:
        """Whether the texts are followed by continuations."""
        return any(target.continuation for target in self.targets)

    @property
    def in_parts(self) -> bool:
        """Whether the parts of continuations are explained one by one: results have an axis more."""
        return self.targets[0].parts is not None

    def read_positions(self, batch: Batch) -> Tensor | None:
        """[batch] or [batch, step]: the tokens of each text whose logits are read; None: not known before the pass."""
        if self.selectors is not None:
            return self.selectors[0].reads_at
        return None if self.function is not None else self.task.read_positions(self.targets, batch)

    def select(self, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[OutputSelector, ...]:
        """The parts whose scores add up to what is explained; `model` computed the output."""
        if self.selectors is not None:
            return self.selectors
        return self.task.select(self.targets, output, batch, model)


@dataclass(frozen=True)
class Candidate:
    """A label, token or answer that can be explained."""

    name: str
    index: int | None = None
    probability: float | None = None
    value: float | None = None  # regression
    span: Span | None = None

    def to_dict(self) -> dict[str, Any]:
        always = {"name": self.name, "index": self.index}
        return always | {key: value for key, value in vars(self).items() if key not in always and value is not None}


def selected_indices(selectors: Sequence[OutputSelector], i: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Target and foil of the i-th text: a label, token ids, or the first and last token of a span."""
    indices = tuple(index for selector in selectors for index in selector.indices_of(i))
    return indices, tuple(int(selector.foil[i]) for selector in selectors if selector.foil is not None)


def foil_tensor(foils: Sequence[tuple[int, ...]], place: int, device: torch.device) -> Tensor | None:
    """[batch] the entry at this place of each foil; None if there are no foils."""
    return torch.tensor([foil[place] for foil in foils], device=device) if have_foils(foils) else None


def have_foils(foils: Sequence[tuple[int, ...]]) -> bool:
    """Whether the texts of a batch have foils: all of them, or none."""
    if any(foils) and not all(foils):
        raise RefusedValue("some rows have a foil and others none: explain them in separate calls")
    return bool(foils[0])


def check_indices(indices: Sequence[Any], outputs: int) -> None:
    for index in indices:
        if not (is_whole(index) and 0 <= index < outputs):
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


def refuse_wrong_count(target: ResolvedTarget) -> None:
    """An index is one number, a span two (its first and its last token), a continuation one or more."""
    allowed = {"index": (0, 1), "span": (0, 2)}
    for name, indices in (("indices", target.indices), ("foil", target.foil)):
        counts = allowed.get(target.kind, (len(indices),))
        if len(indices) not in counts or (target.kind == "continuation" and not target.indices):
            expected = " or ".join(map(str, counts)) if target.kind in allowed else "1 or more"
            raise RefusedValue(
                f"{name} of a resolved target of the kind {target.kind!r} holds {expected} numbers, found {indices}"
            )


def spread(value: Any, count: int, name: str) -> list[TargetSpec]:
    """The entry of `TargetSpecs` for each text: a list has one for each, any other sequence is a single target."""
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
