"""Scores averaged over contexts: texts with removed units in which a token is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.explain.execute import run_once
from tokenlight.explain.plan import PassPlan
from tokenlight.methods import Attribution
from tokenlight.methods.perturbation import remove_tokens, replacement
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import NO_PADDING, classifies, fix_positions, padding_id
from tokenlight.model.hiding import sees_hidden
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import RecordOptions
from tokenlight.tasks.selectors import OutputSelector, repeat_selectors
from tokenlight.text.batch import Batch
from tokenlight.text.removal import Contexts, Removal

WHOLE = 1.0  # what the whole text weighs beside a pair of contexts
CONVERGED = 0.04  # the error's share of what scores vary by: about 0.98 is the correlation with what more contexts give


@dataclass(frozen=True)
class Changed:
    """Texts with gaps, and where their scores belong."""

    batch: Batch
    selectors: tuple[OutputSelector, ...]
    left: Tensor  # [batch, token] bool: those that are still there
    places: Tensor | None = None  # [batch, token] where each of them stands now; None: where it was

    def back(self, scores: Tensor) -> Tensor:
        """[batch, ..., token] in the order of the whole texts; 0 for what is gone."""
        parts = (-1, *(1,) * (scores.ndim - 2), self.left.shape[1])  # an axis for the parts of an answer
        left = self.left.view(parts)
        if self.places is not None:
            places = self.places.clamp_min(0).view(parts).expand(*scores.shape[:-1], -1)
            scores = scores.gather(-1, places)
        return torch.where(left, scores, 0.0)


def run_in_contexts(
    instrumented: InstrumentedModel,
    batch: Batch,
    plan: PassPlan,
    contexts: Contexts,
    selectors: tuple[OutputSelector, ...],
    whole: Sequence[Attribution],
    record_options: RecordOptions,
    each: bool,
) -> list[Attribution]:
    """What the jobs of a plan find in the mean; `whole` is what they find on the whole texts."""
    present = contexts_of(batch, contexts, selectors)  # [context, batch, token]
    removal = contexts.removal or removals_for(instrumented, batch)
    samples = [Samples.beside(one, present, batch.attention_mask.bool()) for one in whole]
    at_once = present.shape[1] if record_options.by_block else contexts.together(*present.shape[1:])
    rows = torch.arange(present.shape[1], device=present.device)
    for first in range(0, contexts.count, contexts.round):
        last = first + contexts.round
        for number, gap in enumerate(removal):
            of_gap = [c for c in range(first, last) if c // 2 % len(removal) == number]
            texts = torch.cartesian_prod(rows.new_tensor(of_gap), rows)  # [changed text, (context, row)]
            # Where a text is too short to lose anything, its scores are known.
            texts = texts[~present[texts[:, 0], texts[:, 1]].all(1)]
            together = 1 if gap == "delete" and reads_one_by_one(instrumented) else at_once
            for context, row in (some.unbind(1) for some in texts.split(together) if len(some)):
                changed = with_removed_units(instrumented, batch, selectors, row, ~present[context, row], gap)
                _, found = run_once(
                    instrumented,
                    changed.batch,
                    plan,
                    record_options=record_options,
                    each=each,
                    chosen=changed.selectors,
                )
                for own, one in zip(samples, found, strict=True):
                    own.note(context, row, changed.back(one.scores), one.extras)
        for own in samples:
            own.count(first, last, rows)
        rows = rows[~torch.stack([own.converged for own in samples]).all(0)[rows]]
        if not len(rows):
            break
    return [own.averaged(contexts.until_converged) for own in samples]


@dataclass
class Samples:
    """What a job finds in each context."""

    whole: Attribution
    present: Tensor  # [context, batch, token]
    real: Tensor  # [batch, token] bool: no padding
    scores: Tensor  # [context, batch, (part,) token]
    residuals: Tensor | None  # [context, batch, (part)]
    pairs: Tensor  # [pair, batch] bool: those that count
    converged: Tensor  # [batch] bool

    @classmethod
    def beside(cls, whole: Attribution, present: Tensor, real: Tensor) -> "Samples":
        residual, scores = whole.extras.get("residual"), whole.scores
        return cls(
            whole,
            present,
            real,
            scores.double().expand(len(present), *scores.shape).clone(),
            None if residual is None else residual.expand(len(present), *residual.shape).clone(),
            torch.zeros(len(present) // 2, len(scores), dtype=torch.bool, device=scores.device),
            torch.zeros(len(scores), dtype=torch.bool, device=scores.device),
        )

    def note(self, context: Tensor, row: Tensor, scores: Tensor, extras: Mapping[str, Tensor]) -> None:
        self.scores[context, row] = scores.to(self.scores)
        if self.residuals is not None:
            self.residuals[context, row] = extras["residual"].to(self.residuals)

    def count(self, first: int, last: int, rows: Tensor) -> None:
        """These contexts of these texts count, unless the scores had settled before: then others ask for more."""
        self.pairs[first // 2 : last // 2, rows[~self.converged[rows]]] = True
        mean, error = self._mean_and_error()
        free = ~self.present.all(0)  # [batch, token]
        for row in rows.tolist():
            scores, errors = mean[row][..., free[row]], error[row][..., free[row]]
            noise = float(errors.square().mean()) if errors.numel() else 0.0
            self.converged[row] |= noise <= CONVERGED * float(scores.var(correction=0) if scores.numel() else 0.0)

    def averaged(self, until_converged: bool) -> Attribution:
        """What is conserved is conserved in each context, so of all residuals the largest is the one to know."""
        mean, error = self._mean_and_error()
        like, pairs = self.whole.scores, self.pairs.sum(0)
        extras: dict[str, Tensor] = {}
        maps: dict[str, Tensor] = {}
        if self.residuals is not None:
            extras["residual"] = torch.cat([self.residuals, self.whole.extras["residual"][None]]).abs().amax(0)
        if int(pairs.min()) > 1:
            maps["standard_error"] = error.to(like)
            lengths = self.real.sum(1).view(-1, *(1,) * (error.ndim - 2))  # padding has no error
            extras["standard_error"] = (error.square().sum(-1) / lengths).sqrt().to(like)
        if until_converged:
            extras["contexts"] = (2 * pairs).to(like).view(-1, *(1,) * (like.ndim - 2)).expand(like.shape[:-1])
        return Attribution(mean.to(like), extras, maps, self.whole.fused)

    def _mean_and_error(self) -> tuple[Tensor, Tensor]:
        """[batch, (part,) token] the mean over pairs of contexts and the whole text, and its standard error.

        A pair gives a token the score that it has where it is there; where it is there in both, their mean. The whole
        text is no draw: it adds nothing to the error.
        """
        shape = (len(self.pairs), 2, *self.scores.shape[1:])
        there = self.present if self.scores.ndim == 3 else self.present[:, :, None]
        there = there.expand_as(self.scores).to(self.scores).view(shape)
        pairs = (self.scores.view(shape) * there).sum(1) / there.sum(1)  # [pair, batch, (part,) token]
        counts = self.pairs.to(pairs).view(*self.pairs.shape, *(1,) * (pairs.ndim - 2))
        number = counts.sum(0)
        total = (pairs * counts).sum(0)
        away = ((pairs - total / number) * counts).square().sum(0)
        mean = (total + WHOLE * self.whole.scores.to(pairs)) / (number + WHOLE)
        return mean, (away / (number - 1).clamp_min(1) * number).sqrt() / (number + WHOLE)


def contexts_of(batch: Batch, contexts: Contexts, selectors: Sequence[OutputSelector]) -> Tensor:
    """[context, batch, token] bool: what is there; padding counts as there."""
    units = units_to_take(batch, selectors)
    present = torch.ones(contexts.count, *units.shape, dtype=torch.bool)
    for row, (ids, real, numbers) in enumerate(zip(batch.input_ids, batch.attention_mask.bool(), units, strict=True)):
        present[:, row, real.cpu()] = contexts.present(ids[real], numbers[real])
    return present.to(units.device)


def units_to_take(batch: Batch, selectors: Sequence[OutputSelector]) -> Tensor:
    """[batch, token] the number of each token's unit; -1 for what stays: added tokens, and those that are read."""
    if "tokens" in batch.units:
        free = batch.units["tokens"] >= 0
    else:
        free = batch.attention_mask.bool() if batch.special is None else ~batch.special & batch.attention_mask.bool()
    read = torch.zeros_like(free)
    for selector in selectors:
        for places in (selector.row, selector.foil_query_position, selector.position, selector.reads_at):
            if places is not None:
                read.scatter_(1, places.reshape(len(read), -1).to(read.device), True)
    free = free & ~read
    return torch.where(free, free.cumsum(1) - 1, -1)


def removals_for(instrumented: InstrumentedModel, batch: Batch) -> tuple[Removal, ...]:
    """What suits the model: the tokens that an encoder's vocabulary has for nothing; else nothing at all."""
    reads_by_padding = classifies(instrumented.model) and behavior_of(instrumented).reads_last
    if reads_by_padding or batch.mask_id is None:
        return ("delete",)
    return ("mask",) if batch.pad_id is None else ("pad", "mask")


def reads_one_by_one(instrumented: InstrumentedModel) -> bool:
    """Whether texts of unequal lengths, as deletion leaves them, cannot share a batch."""
    behavior = behavior_of(instrumented)
    no_end = classifies(instrumented.model) and behavior.reads_last and padding_id(instrumented.model) == NO_PADDING
    return behavior.equal_lengths or no_end


def with_removed_units(
    instrumented: InstrumentedModel,
    batch: Batch,
    selectors: tuple[OutputSelector, ...],
    rows: Tensor,
    gone: Tensor,
    gap: Removal,
) -> Changed:
    """These rows of the batch without some of their tokens [row, token]."""
    selectors = repeat_selectors(selectors, rows)
    left = batch.attention_mask[rows].bool() & ~gone
    if gap == "delete":
        if any(selector.function is not None for selector in selectors):
            raise RefusedValue(
                "a target that is a function of the output may count tokens: use gaps other than 'delete'"
            )
        known = padding_id(instrumented.model)  # some models find the end of a text by it, whatever the mask says
        padded = batch if known in (None, NO_PADDING) else replace(batch, pad_id=known)
        short, places = padded.map(lambda tensor: tensor[rows]).without(gone)
        moved = tuple(selector.moved(places) for selector in selectors)
        return Changed(fix_positions(instrumented.model, short), moved, left, places)
    some = fix_positions(instrumented.model, batch).map(lambda tensor: tensor[rows])  # a gap must not move other tokens
    if gap == "hide" and sees_hidden(instrumented):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} reads tokens that attention_mask hides: use gaps other than 'hide'"
        )
    if gap != "hide":
        token = replacement(batch, gap)
        if token is None:
            raise RefusedValue(f"removal={gap!r}: the vocabulary has no {gap} token here; take 'delete' or 'hide'")
        if (
            token == padding_id(instrumented.model)
            and classifies(instrumented.model)
            and behavior_of(instrumented).reads_last
        ):
            raise RefusedValue("this classifier finds the end of a text by the padding token: take removal='delete'")
    return Changed(remove_tokens(instrumented, some, gone, gap), selectors, left)
