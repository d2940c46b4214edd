"""What is explained: one number of the model's output per text, or the difference of two."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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

    def score(self, output: Any) -> Tensor:
        """[batch]"""
        if self.function is not None:
            return check_score(self.function(output), len(self.row))
        logits = output[self.field]
        rows = torch.arange(len(logits), device=logits.device)
        if self.position is not None:
            logits = logits[rows, self.position]
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
        logits = logits if position is None else logits[torch.arange(len(logits), device=logits.device), position]
        predicted = logits.argmax(-1).tolist()
        index = [p if w.index is None else w.index for p, w in zip(predicted, self.wanted, strict=True)]
        return (replace(choice, index=row.new_tensor(index), foil=self._foil(row)),)

    def _foil(self, like: Tensor) -> Tensor | None:
        foils = [wanted.foil for wanted in self.wanted]
        return None if None in foils else like.new_tensor(foils)

    def _position(self, batch: Batch) -> Tensor | None:
        if self.task == "text-generation":
            return batch.last
        positions = [wanted.position for wanted in self.wanted]
        return None if None in positions else batch.input_ids.new_tensor(positions)

    def _choose_span(self, output: Any, batch: Batch) -> tuple[Choice, Choice]:
        start, end = output["start_logits"], output["end_logits"]
        spans = [
            wanted.span or best_span(start[i], end[i], wanted.context or (0, int(batch.last[i])))
            for i, wanted in enumerate(self.wanted)
        ]
        foils = [wanted.foil_span for wanted in self.wanted]

        def part(field: str, side: int) -> Choice:
            index = batch.input_ids.new_tensor([span[side] for span in spans])
            foil = None if None in foils else batch.input_ids.new_tensor([span[side] for span in foils if span])
            return Choice(row=index, index=index, foil=foil, field=field)

        return part("start_logits", 0), part("end_logits", 1)


def best_span(start: Tensor, end: Tensor, context: Span) -> Span:
    """The pair start <= end with the highest sum of logits inside the context."""
    first, last = context
    sums = start[first : last + 1, None] + end[None, first : last + 1]
    allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
    best = int(sums.masked_fill(~allowed, -torch.inf).argmax())
    return first + best // len(sums), first + best % len(sums)


def check_score(score: Any, batch: int) -> Tensor:
    if not isinstance(score, Tensor) or score.shape != (batch,):
        found = tuple(score.shape) if isinstance(score, Tensor) else type(score).__name__
        raise ValueError(f"a target function must return one number per text, shape ({batch},); found {found}")
    return score


def repeat_choices(choices: Sequence[Choice], rows: Tensor) -> tuple[Choice, ...]:
    """The same choices for the batch rows `rows`, in that order."""
    return tuple(choice.map(lambda tensor: tensor[rows.to(tensor.device)]) for choice in choices)
