"""What is explained: one number of the model's output per text, or the difference of two."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeGuard

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight import anatomy
from tokenlight.batch import Batch

MAX_ANSWER = 30  # tokens of a predicted answer, as in BERT's own SQuAD evaluation
Span = tuple[int, int]  # first and last token of an answer, both inside


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for in one text, in indices. None stands for what the model predicts."""

    index: int | None = None  # label or token id
    foil: int | None = None
    position: int | None = None  # the token whose label or word is explained
    span: Span | None = None  # extractive answers
    foil_span: Span | None = None
    context: Span | None = None  # the tokens an answer may lie in


@dataclass(frozen=True)
class Choice:
    """One output number per example, maybe minus another; fixed, so it can be read again on changed inputs."""

    row: Tensor  # [batch] query row of attention maps
    index: Tensor | None = None  # [batch]
    foil: Tensor | None = None  # [batch]
    position: Tensor | None = None  # [batch] token axis of the logits, where they have one
    field: str = "logits"
    function: Callable[[Any], Tensor] | None = None  # the caller's own
    sign: int = 1  # -1 for a foil on its own

    def split(self) -> "tuple[Choice, ...]":
        """Target and foil as choices of their own."""
        if self.foil is None:
            return (self,)
        row = self.row if self.field == "logits" else self.foil  # an answer's row is where it stands
        return replace(self, foil=None), replace(self, index=self.foil, row=row, foil=None, sign=-1)

    def score(self, output: Any) -> Tensor:
        """[batch]"""
        if self.function is not None:
            return check_score(self.function(output), len(self.row))
        logits = output[self.field]
        rows = torch.arange(len(logits), device=logits.device)
        if self.position is not None:
            logits = logits_at(logits, self.position)
        score = logits[rows, self.index]
        return score if self.foil is None else score - logits[rows, self.foil]

    def map(self, change: Callable[[Tensor], Tensor]) -> "Choice":
        return replace(self, **{n: change(t) for n, t in vars(self).items() if isinstance(t, Tensor)})


@dataclass(frozen=True)
class Target:
    """What to explain in every text of a batch; `choose` settles it once the model has answered."""

    task: str
    wanted: tuple[Wanted, ...]
    function: Callable[[Any], Tensor] | None = None

    def choose(self, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[Choice, ...]:
        """One choice, or two (start and end) for extractive answers; scores of the parts are added."""
        if self.task == "question-answering" and self.function is None:
            return self._choose_span(output, batch)
        position = self._position(batch)
        if self.task == "text-classification":
            row, position = anatomy.pooled_position(model, batch), None
        else:
            row = batch.last if position is None else position
        if self.function is not None:
            return (Choice(row=row, function=self.function),)
        choice = Choice(row=row, index=torch.zeros_like(row), position=position)
        logits = output["logits"]
        check_indices([w.index for w in self.wanted] + [w.foil for w in self.wanted], logits.shape[-1])
        logits = logits if position is None else logits_at(logits, position)
        predicted = logits.argmax(-1).tolist()
        index = [p if w.index is None else w.index for p, w in zip(predicted, self.wanted, strict=True)]
        return (replace(choice, index=row.new_tensor(index), foil=self._foil(row)),)

    def reads_at(self, batch: Batch) -> Tensor | None:
        """[batch] the one token of each text whose logits count, where that is known before the model has answered."""
        return batch.last if self.task == "text-generation" and self.function is None else None

    def _foil(self, like: Tensor) -> Tensor | None:
        foils = [wanted.foil for wanted in self.wanted]
        return like.new_tensor(foils) if all_or_none(foils) else None

    def _position(self, batch: Batch) -> Tensor | None:
        if self.task == "text-generation":
            return batch.last
        positions = [wanted.position for wanted in self.wanted]
        check_positions(positions, batch)
        return None if None in positions else batch.input_ids.new_tensor(positions)

    def _choose_span(self, output: Any, batch: Batch) -> tuple[Choice, Choice]:
        start, end = output["start_logits"], output["end_logits"]
        spans = [
            wanted.span or best_span(start[i], end[i], wanted.context or (int(batch.first[i]), int(batch.last[i])))
            for i, wanted in enumerate(self.wanted)
        ]
        foils = [wanted.foil_span for wanted in self.wanted]
        for sides in zip(*spans, strict=True), zip(*foils, strict=True) if all_or_none(foils) else ():
            for positions in sides:
                check_positions(positions, batch)

        def part(field: str, side: int) -> Choice:
            index = batch.input_ids.new_tensor([span[side] for span in spans])
            foil = None if None in foils else batch.input_ids.new_tensor([span[side] for span in foils if span])
            return Choice(row=index, index=index, foil=foil, field=field)

        return part("start_logits", 0), part("end_logits", 1)


@dataclass(frozen=True)
class Settled:
    """A target that was chosen before: the same numbers again, whatever the model says now."""

    choices: tuple[Choice, ...]

    def reads_at(self, batch: Batch) -> Tensor | None:
        return None if self.choices[0].function is not None else self.choices[0].position

    def choose(self, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[Choice, ...]:
        return self.choices


def logits_at(logits: Tensor, position: Tensor) -> Tensor:
    """[batch, token, index] -> [batch, index]; logits without a token axis were computed at the position alone."""
    return logits if logits.ndim == 2 else logits[torch.arange(len(logits), device=logits.device), position]


def best_span(start: Tensor, end: Tensor, context: Span) -> Span:
    """The pair start <= end with the highest sum of logits inside the context."""
    first, last = context
    sums = start[first : last + 1, None] + end[None, first : last + 1]
    allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
    best = int(sums.masked_fill(~allowed, -torch.inf).argmax())
    return first + best // len(sums), first + best % len(sums)


def all_or_none(foils: Sequence[Any]) -> bool:
    """Whether there are foils; a batch cannot have some."""
    if any(foil is None for foil in foils) and any(foil is not None for foil in foils):
        raise ValueError("some rows have a foil and others none: explain them in separate calls")
    return foils[0] is not None


def check_indices(indices: Sequence[Any], outputs: int) -> None:
    for index in indices:
        if index is not None and not (is_whole(index) and 0 <= index < outputs):
            raise ValueError(f"expected the index of one of the model's {outputs} outputs, found {index!r}")


def check_positions(positions: Sequence[Any], batch: Batch) -> None:
    width = batch.input_ids.shape[1]
    for row, position in enumerate(positions):
        if position is None:
            continue
        if not (is_whole(position) and 0 <= position < width):
            raise ValueError(f"there is no position {position!r} in rows of {width} tokens")
        if not batch.attention_mask[row, position]:
            raise ValueError(f"position {position} of row {row} is padding")


def is_whole(number: object) -> TypeGuard[int]:
    """An index of any integer type, also of numpy's; True and False are not meant as one."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def check_score(score: Any, batch: int) -> Tensor:
    if not isinstance(score, Tensor) or score.shape != (batch,):
        found = tuple(score.shape) if isinstance(score, Tensor) else type(score).__name__
        raise ValueError(f"a target function must return one number per text, shape ({batch},); found {found}")
    if torch.is_grad_enabled() and not score.requires_grad:
        raise ValueError("the target function's result has no gradient: compute it from the output, without detaching")
    return score


def repeat_choices(choices: Sequence[Choice], rows: Tensor) -> tuple[Choice, ...]:
    """The same choices for the batch rows `rows`, in that order."""
    return tuple(choice.map(lambda tensor: tensor[rows.to(tensor.device)]) for choice in choices)


def spread(value: Any, count: int, name: str) -> list[Any]:
    """One value for each text; a list has them already."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} is a list of {len(value)} for {count} texts")
    return value


def shared_function(targets: Sequence[Any], foils: Sequence[Any]) -> Any:
    """The caller's own target function, which must be the same for all texts."""
    functions = [target for target in targets if callable(target)]
    if not functions:
        return None
    if any(target is not functions[0] for target in targets) or any(foil is not None for foil in foils):
        raise ValueError("a target function is given for all texts at once, and takes the difference to a foil itself")
    return functions[0]
