"""Output selectors: which scalar of the model's output is explained, the same in every pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks.target_functions import OutputFunction, call_target_function
from tokenlight.text.batch import Batch

ALL = slice(None)
Distribution = Literal["softmax", "sigmoid", "none"]  # how logits become probabilities; none: they are plain numbers


@dataclass(frozen=True)
class OutputSelector:
    """One output number per example, maybe minus another; fixed, so it can be read again on changed inputs."""

    row: Tensor | None  # [batch] the token whose output is read; None: not known before the backward pass
    index: Tensor | None = None  # [batch]
    foil: Tensor | None = None  # [batch]
    position: Tensor | None = None  # [batch] token axis of the logits, where they have one
    field: str = "logits"
    of_tokens: bool = False  # index and foil are positions in the text
    foil_query_position: Tensor | None = None  # [batch] `row` of a foil on its own; None: the same as the target's
    function: OutputFunction | None = None  # the caller's own
    distribution: Distribution = "softmax"
    among: Tensor | None = None  # [batch, token] bool: the tokens that the softmax is over, where it is over tokens
    sign: int = 1  # -1: a foil on its own

    def split(self) -> "tuple[OutputSelector, ...]":
        """Target and foil as selectors of their own."""
        if self.foil is None:
            return (self,)
        row = self.row if self.foil_query_position is None else self.foil_query_position
        alone = replace(self, foil=None, foil_query_position=None)
        return alone, replace(alone, index=self.foil, row=row, sign=-1)

    def score(self, output: Any) -> Tensor:
        """[batch]"""
        if self.function is not None:
            return call_target_function(self.function, output)
        logits = output[self.field]
        rows = torch.arange(len(logits), device=logits.device)
        if self.position is not None:
            logits = logits_at(logits, self.position)
        score = logits[rows, self.index]
        return score if self.foil is None else score - logits[rows, self.foil]

    def outcome(self, output: Any) -> Tensor:
        """[batch] the number that is compared between inputs by methods that run the model again."""
        return self.score(output)

    @property
    def has_probability(self) -> bool:
        return self.function is None and self.distribution != "none"

    def log_probability(self, output: Any) -> Tensor:
        """[batch] of the target, among the two where there is a foil; in double precision."""
        if self.index is None:
            raise RefusedValue("a function of the output has no probability: name a target")
        logits = output[self.field].double()
        if self.position is not None:
            logits = logits_at(logits, self.position)
        rows = torch.arange(len(logits), device=logits.device)
        chosen = logits[rows, self.index]
        if self.foil is not None:
            return logsigmoid(chosen - logits[rows, self.foil])
        if self.distribution == "sigmoid":
            return logsigmoid(chosen)
        if self.among is not None:
            logits = logits.masked_fill(~self.among[:, : logits.shape[1]].to(logits.device), -torch.inf)
        return chosen - logits.logsumexp(-1)

    def moved(self, new_positions: Tensor) -> Self:
        """The same for a batch whose tokens have other positions: those of each old token, [batch, token]."""
        names = ("row", "position", "foil_query_position", *(("index", "foil") if self.of_tokens else ()))
        positions = {name: getattr(self, name) for name in names}
        return replace(self, **{n: look_up(new_positions, old) for n, old in positions.items() if old is not None})

    @property
    def tokens(self) -> Tensor | int:
        """The number of explained tokens of a continuation: [batch], or 1 for all texts."""
        return 1

    def indices_of(self, i: int) -> tuple[int, ...]:
        """What is explained in the i-th text, in indices; () for the caller's own function."""
        return () if self.index is None else (int(self.index[i]),)

    @property
    def reads_at(self) -> Tensor | None:
        """[batch] or [batch, step]: the tokens whose logits are read; None: all, or the logits have no token axis."""
        return None if self.function is not None else self.position

    @property
    def first_read(self) -> Tensor | None:
        """[batch] the first token that the number is read at; None: unknown, or the logits have no token axis."""
        positions = (self.index, self.foil) if self.of_tokens else (self.position,)
        known = [position for position in positions if position is not None]
        return torch.stack(known).amin(0) if known else None

    def query_weights(self, width: int) -> Tensor | None:
        """[batch, token] weights of the query positions at which [query, key] maps are read; None: not known."""
        if self.row is None or self.position is None:
            return None
        return one_hot(self.row, width).float()

    def mask_later_tokens(self, batch: Batch) -> Batch:
        """The batch with tokens masked that the explained score cannot depend on."""
        return batch

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, **{n: change(t) for n, t in vars(self).items() if isinstance(t, Tensor)})


@dataclass(frozen=True)
class ContinuationSelector(OutputSelector):
    """A continuation: the sum over its tokens of their numbers, each read at the token before it.

    The logits are [batch, step, index], of the steps alone. Where a continuation is shorter than others of the batch,
    its last steps have weight 0.
    """

    row: Tensor  # [batch, step]
    ids: Tensor = field(kw_only=True)  # [batch, step]
    weight: Tensor = field(kw_only=True)  # [batch, step]: 1 for explained tokens, or 0
    against_all: bool = False  # each logit minus the mean of all, weighted by their probabilities

    def split(self) -> tuple[OutputSelector, ...]:
        return (self,)

    def apart(self, parts: Tensor) -> "tuple[ContinuationSelector, ...]":
        """A selector for each part; `parts` [batch, step] is the number of each token's part, from 0."""
        return tuple(
            replace(self, weight=self.weight * (parts == part).to(self.weight)) for part in range(int(parts.max()) + 1)
        )

    def numbers(self, output: Any, steps: slice = ALL) -> Tensor:
        """[batch, step]: of each token, whatever its weight"""
        logits = output[self.field][:, steps]
        numbers = logits.gather(-1, self.ids[:, steps, None].to(logits.device))[..., 0]
        if self.against_all:  # its gradient is that of the log-probability, and it is linear in the logits
            numbers = numbers - (logits.detach().softmax(-1) * logits).sum(-1)
        return numbers

    def score(self, output: Any) -> Tensor:
        """[batch]"""
        steps = self._weighted_steps
        numbers = self.numbers(output, steps)
        return (numbers * self.weight[:, steps].to(numbers)).sum(1)

    def outcome(self, output: Any) -> Tensor:
        """[batch] the log-probability where its gradient is explained: means of logits change with the input."""
        if not self.against_all:
            return self.score(output)
        steps = self._weighted_steps
        logits = output[self.field][:, steps]
        log_probability = logits.log_softmax(-1).gather(-1, self.ids[:, steps, None].to(logits.device))[..., 0]
        return (log_probability * self.weight[:, steps].to(log_probability)).sum(1)

    @property
    def _weighted_steps(self) -> slice:
        """The steps with a weight in any text. Others are not read, so that one step of many costs as one."""
        steps = (self.weight > 0).any(0).nonzero()[:, 0].tolist()
        return slice(steps[0], steps[-1] + 1) if steps else ALL

    def log_probability(self, output: Any) -> Tensor:
        """[batch] of the weighted tokens together; in double precision"""
        steps = self._weighted_steps
        log_probability = self.log_probabilities(output, steps)
        return (log_probability * self.weight[:, steps].to(log_probability)).sum(1)

    def log_probabilities(self, output: Any, steps: slice = ALL) -> Tensor:
        """[batch, step]: of each token, whatever its weight; in double precision"""
        logits = output[self.field][:, steps].double()
        return logits.gather(-1, self.ids[:, steps, None].to(logits.device))[..., 0] - logits.logsumexp(-1)

    @property
    def tokens(self) -> Tensor:
        return self.weight.sum(1).clamp_min(1)

    def indices_of(self, i: int) -> tuple[int, ...]:
        return tuple(self.ids[i][self.weight[i] > 0].tolist())

    @property
    def reads_at(self) -> Tensor:
        return self.row

    @property
    def first_read(self) -> Tensor:
        return torch.where(self.weight > 0, self.row, self.row.amax(1, keepdim=True)).amin(1)

    def query_weights(self, width: int) -> Tensor:
        """[batch, token] the weights of the steps, so that maps are added up as the numbers are."""
        return self.weight.new_zeros(len(self.row), width).scatter_add_(1, self.row, self.weight)

    def mask_later_tokens(self, batch: Batch) -> Batch:
        """Mask the tokens after the last one that is read, because some methods average over all tokens."""
        last = torch.where(self.weight > 0, self.row, self.row[:, :1]).amax(1, keepdim=True)
        positions = torch.arange(batch.input_ids.shape[1], device=last.device)
        return replace(batch, attention_mask=batch.attention_mask * (positions <= last))


def logits_at(logits: Tensor, position: Tensor) -> Tensor:
    """[batch, token, index] -> [batch, index]; logits without a token axis were computed at the position alone."""
    return logits if logits.ndim == 2 else logits[torch.arange(len(logits), device=logits.device), position]


def log_probabilities(selectors: Sequence[OutputSelector], output: Any) -> Tensor:
    """[batch, selector]; the log-probabilities of a continuation's tokens are computed once."""
    first = selectors[0]
    if not isinstance(first, ContinuationSelector):
        return torch.stack([selector.log_probability(output) for selector in selectors], 1)
    of_steps = first.log_probabilities(output)  # [batch, step]
    weights = [selector.weight for selector in selectors if isinstance(selector, ContinuationSelector)]
    return torch.stack([(of_steps * weight.to(of_steps)).sum(1) for weight in weights], 1)


def log_probability_apart(selectors: Sequence[OutputSelector], output: Any) -> tuple[Tensor, Tensor | None]:
    """[batch] the log-probability of the target, and that of the foil where there is one: start and end together."""
    sides = [selector.split() for selector in selectors]
    target = torch.stack([side[0].log_probability(output) for side in sides]).sum(0)
    foils = [side[1].log_probability(output) for side in sides if len(side) > 1]
    return target, torch.stack(foils).sum(0) if foils else None


def probability_minus_foil(selectors: Sequence[OutputSelector], output: Any) -> Tensor:
    """[batch] the probability of the target, minus that of the foil."""
    target, foil = log_probability_apart(selectors, output)
    return target.exp() if foil is None else target.exp() - foil.exp()


def log_probability_minus_foil(selectors: Sequence[OutputSelector], output: Any) -> Tensor:
    """[batch] the log-probability of the target, minus that of the foil."""
    target, foil = log_probability_apart(selectors, output)
    return target if foil is None else target - foil


def look_up(new_positions: Tensor, old: Tensor) -> Tensor:
    """[batch] or [batch, step], as `old` is."""
    return new_positions.to(old.device).gather(1, old.reshape(len(old), -1)).view_as(old)


def repeat_selectors(selectors: Sequence[OutputSelector], rows: Tensor) -> tuple[OutputSelector, ...]:
    """The selectors for the texts `rows` of the batch, in that order."""
    return tuple(selector.map(lambda tensor: tensor[rows.to(tensor.device)]) for selector in selectors)
