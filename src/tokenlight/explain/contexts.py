"""Scores averaged over contexts: texts with removed units in which a token is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.common.option_values import Removal
from tokenlight.explain.passes import run_passes
from tokenlight.explain.plan import PassPlan
from tokenlight.methods import Attribution
from tokenlight.methods.erasure import remove_tokens, replacement
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import NO_PADDING, classifies, fix_positions, padding_id
from tokenlight.model.hiding import hidden_tokens_affect_others
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import RecordOptions
from tokenlight.tasks.selectors import OutputSelector, repeat_selectors
from tokenlight.text.batch import Batch
from tokenlight.text.context_draws import Contexts

WHOLE_TEXT_WEIGHT = 1.0  # of the whole text in the mean, where a pair of contexts has weight 1
CONVERGED = 0.04  # of the variance of scores: then scores correlate by about 0.98 with those of more contexts


@dataclass(frozen=True)
class ChangedBatch:
    """Texts without some of their tokens, and the positions of the scores in the whole texts."""

    batch: Batch
    selectors: tuple[OutputSelector, ...]
    left: Tensor  # [batch, token] bool: tokens that are not removed
    positions: Tensor | None = None  # [batch, token] where each of them is in the changed text; None: unchanged

    def restore(self, scores: Tensor) -> Tensor:
        """Scores [batch, ..., token] in the order of the whole texts; 0 for removed tokens."""
        shape = (-1, *(1,) * (scores.ndim - 2), self.left.shape[1])  # with an axis for the parts of an answer
        left = self.left.view(shape)
        if self.positions is not None:
            scores = scores.gather(-1, self.positions.clamp_min(0).view(shape).expand(*scores.shape[:-1], -1))
        return torch.where(left, scores, 0.0)


def run_in_contexts(
    instrumented: InstrumentedModel,
    batch: Batch,
    plan: PassPlan,
    contexts: Contexts,
    whole: Sequence[Attribution],
    record_options: RecordOptions,
) -> list[Attribution]:
    """The mean attributions of a plan whose target has selectors; `whole` are those of the whole texts."""
    selectors = plan.target.selectors
    assert selectors is not None, "the target is fixed before its text changes"
    present = contexts_of(batch, contexts, selectors)  # [context, batch, token]
    removals = contexts.removal or removals_for(instrumented, batch)
    samples = [Samples.beside(attribution, present, batch.attention_mask.bool()) for attribution in whole]
    at_once = present.shape[1] if record_options.by_block else contexts.together(*present.shape[1:])
    rows = torch.arange(present.shape[1], device=present.device)
    for first in range(0, contexts.count, contexts.round):
        last = first + contexts.round
        for number, removal in enumerate(removals):
            of_removal = [c for c in range(first, last) if c // 2 % len(removals) == number]
            texts = torch.cartesian_prod(rows.new_tensor(of_removal), rows)  # [changed text, (context, row)]
            # Texts that are too short to lose a token have the scores of the whole text.
            texts = texts[~present[texts[:, 0], texts[:, 1]].all(1)]
            together = 1 if removal == "delete" and reads_one_by_one(instrumented) else at_once
            for context, row in (batch_texts.unbind(1) for batch_texts in texts.split(together) if len(batch_texts)):
                changed = with_removed_units(instrumented, batch, selectors, row, ~present[context, row], removal)
                _, attributions = run_passes(
                    instrumented,
                    changed.batch,
                    plan.with_selectors(changed.selectors),
                    record_options=record_options,
                )
                for method_samples, attribution in zip(samples, attributions, strict=True):
                    method_samples.add(context, row, changed.restore(attribution.scores), attribution.extras)
        for method_samples in samples:
            method_samples.count(first, last, rows)
        rows = rows[~torch.stack([method_samples.converged for method_samples in samples]).all(0)[rows]]
        if not len(rows):
            break
    return [method_samples.averaged(contexts.until_converged) for method_samples in samples]


@dataclass
class Samples:
    """The scores of a method in each context."""

    whole: Attribution
    present: Tensor  # [context, batch, token]
    real: Tensor  # [batch, token] bool: no padding
    scores: Tensor  # [context, batch, (part,) token]
    residuals: Tensor | None  # [context, batch, (part)]
    pairs: Tensor  # [pair, batch] bool: those that are averaged
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

    def add(self, context: Tensor, row: Tensor, scores: Tensor, extras: Mapping[str, Tensor]) -> None:
        self.scores[context, row] = scores.to(self.scores)
        if self.residuals is not None:
            self.residuals[context, row] = extras["residual"].to(self.residuals)

    def count(self, first: int, last: int, rows: Tensor) -> None:
        """Average these contexts for these texts, unless their scores had converged before another method's."""
        self.pairs[first // 2 : last // 2, rows[~self.converged[rows]]] = True
        mean, error = self._mean_and_error()
        free = ~self.present.all(0)  # [batch, token]
        for row in rows.tolist():
            scores, errors = mean[row][..., free[row]], error[row][..., free[row]]
            noise = float(errors.square().mean()) if errors.numel() else 0.0
            self.converged[row] |= noise <= CONVERGED * float(scores.var(correction=0) if scores.numel() else 0.0)

    def averaged(self, until_converged: bool) -> Attribution:
        """The mean attribution. Relevance is conserved in each context, so the largest residual is reported."""
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

        In a pair, a token has its score in the context that it is present in; if it is present in both, their mean.
        The whole text is not random and adds nothing to the error.
        """
        shape = (len(self.pairs), 2, *self.scores.shape[1:])
        present = self.present if self.scores.ndim == 3 else self.present[:, :, None]
        present = present.expand_as(self.scores).to(self.scores).view(shape)
        pairs = (self.scores.view(shape) * present).sum(1) / present.sum(1)  # [pair, batch, (part,) token]
        counts = self.pairs.to(pairs).view(*self.pairs.shape, *(1,) * (pairs.ndim - 2))
        number = counts.sum(0)
        total = (pairs * counts).sum(0)
        squares = ((pairs - total / number) * counts).square().sum(0)
        mean = (total + WHOLE_TEXT_WEIGHT * self.whole.scores.to(pairs)) / (number + WHOLE_TEXT_WEIGHT)
        return mean, (squares / (number - 1).clamp_min(1) * number).sqrt() / (number + WHOLE_TEXT_WEIGHT)


def contexts_of(batch: Batch, contexts: Contexts, selectors: Sequence[OutputSelector]) -> Tensor:
    """[context, batch, token] bool: the tokens that are present; padding counts as present."""
    units = unit_numbers(batch, selectors)
    present = torch.ones(contexts.count, *units.shape, dtype=torch.bool)
    for row, (ids, real, numbers) in enumerate(zip(batch.input_ids, batch.attention_mask.bool(), units, strict=True)):
        present[:, row, real.cpu()] = contexts.present(ids[real], numbers[real])
    return present.to(units.device)


def unit_numbers(batch: Batch, selectors: Sequence[OutputSelector]) -> Tensor:
    """[batch, token] the number of each token's unit; -1 for tokens that are never removed.

    Those are special tokens and tokens whose output is read.
    """
    if "tokens" in batch.units:
        free = batch.units["tokens"] >= 0
    else:
        free = batch.attention_mask.bool() if batch.special is None else ~batch.special & batch.attention_mask.bool()
    read = torch.zeros_like(free)
    for selector in selectors:
        for positions in (selector.row, selector.foil_query_position, selector.position, selector.reads_at):
            if positions is not None:
                read.scatter_(1, positions.reshape(len(read), -1).to(read.device), True)
    free = free & ~read
    return torch.where(free, free.cumsum(1) - 1, -1)


def removals_for(instrumented: InstrumentedModel, batch: Batch) -> tuple[Removal, ...]:
    """The default removals: by padding and mask tokens for encoders that have them, else by deletion."""
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
    removed: Tensor,
    removal: Removal,
) -> ChangedBatch:
    """These rows of the batch without the tokens `removed` [row, token]."""
    selectors = repeat_selectors(selectors, rows)
    left = batch.attention_mask[rows].bool() & ~removed
    if removal == "delete":
        if any(selector.function is not None for selector in selectors):
            raise RefusedValue(
                "a target that is a function of the output may count tokens: use another removal= than 'delete'"
            )
        known = padding_id(instrumented.model)  # some models find the end of a text by it, whatever the mask says
        padded = batch if known in (None, NO_PADDING) else replace(batch, pad_id=known)
        short, positions = padded.map(lambda tensor: tensor[rows]).without(removed)
        moved = tuple(selector.moved(positions) for selector in selectors)
        return ChangedBatch(fix_positions(instrumented.model, short), moved, left, positions)
    # The position ids of the whole text, so that replaced tokens do not move others.
    replaced = fix_positions(instrumented.model, batch).map(lambda tensor: tensor[rows])
    if removal == "hide" and hidden_tokens_affect_others(instrumented):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} reads tokens that attention_mask hides: use another removal= than "
            "'hide'"
        )
    if removal != "hide":
        token = replacement(batch, removal)
        if token is None:
            raise RefusedValue(
                f"removal={removal!r}: the vocabulary has no {removal} token here; take 'delete' or 'hide'"
            )
        if (
            token == padding_id(instrumented.model)
            and classifies(instrumented.model)
            and behavior_of(instrumented).reads_last
        ):
            raise RefusedValue("this classifier finds the end of a text by the padding token: take removal='delete'")
    return ChangedBatch(remove_tokens(instrumented, replaced, removed, removal), selectors, left)
