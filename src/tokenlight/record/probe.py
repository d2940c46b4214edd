"""Scores the same target on changed inputs, for methods that run the model again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.progress import report_backward_pass
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.instrumented import InstrumentedModel, refusing_instrumentation_errors
from tokenlight.record.blockwise import Blockwise
from tokenlight.record.recorder import (
    DEFAULT_RECORD_OPTIONS,
    RecordOptions,
    check_differentiable,
    check_finite,
    differentiate,
)
from tokenlight.tasks.selectors import OutputSelector, log_probabilities, repeat_selectors
from tokenlight.tasks.target_functions import check_score
from tokenlight.text.batch import Batch

Measure = Callable[[tuple[OutputSelector, ...], Any], Tensor]  # a part of a target, the model's output -> [batch]


@dataclass(frozen=True)
class Probe:
    """Computes the same target on changed inputs, for methods that run the model again.

    With `each`, the scores of a target's parts are not added. All are read from the same passes, so a method that uses
    `scores` and `gradients` explains many parts for little more than the cost of one.
    """

    instrumented: InstrumentedModel
    batch: Batch
    selectors: tuple[OutputSelector, ...]
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS
    at_once: int | None = None  # texts that may run together; None: all
    known: Tensor | None = None  # [part, batch] the explained scores, if already computed
    known_at_baseline: Tensor | None = None  # [part, batch] the scores at the method's baseline, if already computed
    output: Any = None  # of the model on the unchanged batch, if already computed
    each: bool = False
    measure: Measure | None = None  # computed instead of the explained score

    @property
    def fused(self) -> bool:
        """Whether attention is one operation."""
        return self.instrumented.fuses(Capture(CaptureSpec(fused=self.record_options.may_fuse)))

    @property
    def parts(self) -> tuple[tuple[OutputSelector, ...], ...]:
        """Groups of output selectors whose scores are added."""
        return tuple((selector,) for selector in self.selectors) if self.each else (self.selectors,)

    def by_part(self) -> "list[Probe]":
        """A probe for each part."""
        known_by_part = [None] * len(self.parts) if self.known is None else self.known.split(1)
        single_part = replace(self, known_at_baseline=None, each=False)
        return [
            replace(single_part, selectors=part, known=part_known)
            for part, part_known in zip(self.parts, known_by_part, strict=True)
        ]

    def measuring(self, measure: Measure) -> "Probe":
        """A probe whose `scores` are this function of the output, such as a probability.

        A target without a probability (a regression, the caller's own function) keeps its explained score.
        """
        if not all(selector.has_probability for selector in self.selectors):
            return self
        changed = replace(self, measure=measure, known=None, known_at_baseline=None)
        return changed if self.output is None else replace(changed, known=changed.scores_in(self.output))

    def rows(self, indices: Tensor) -> "Probe":
        """A probe for the texts of the batch with these indices, in any order and with repetitions."""
        known = None if self.known is None else self.known[:, indices.to(self.known.device)]
        selectors = repeat_selectors(self.selectors, indices)
        batch = self.batch.map(lambda t: t[indices])
        return replace(self, batch=batch, selectors=selectors, known=known, known_at_baseline=None, output=None)

    # The score of the whole target

    def score_as_it_is(self) -> Tensor:
        """[batch] the explained score on the unchanged batch."""
        return self.scores_as_they_are()[0]

    def score(self, batch: Batch) -> Tensor:
        """[batch] the explained score on another batch of the same shape."""
        return self.scores(batch)[0]

    def score_at(self, embeddings: Tensor) -> Tensor:
        """[batch] the explained score with these embeddings."""
        return self.scores_at(embeddings)[0]

    def gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Score [batch] and its gradient [batch, token, dim] with these embeddings."""
        return next(self.gradients(embeddings))

    # The scores of all parts

    def scores_as_they_are(self) -> Tensor:
        """[part, batch] on the unchanged batch."""
        return self.scores(self.batch) if self.known is None else self.known

    def scores(self, batch: Batch) -> Tensor:
        """[part, batch] on another batch of the same shape."""
        return torch.cat([probe._scores() for probe, _ in replace(self, batch=batch)._sub_batches()], 1)

    def scores_at(self, embeddings: Tensor) -> Tensor:
        """[part, batch] with these embeddings."""
        return torch.cat([probe._scores(embeddings[indices]) for probe, indices in self._sub_batches()], 1)

    def scores_at_baseline(self, embeddings: Tensor) -> Tensor:
        """[part, batch] with these embeddings, which are those of the method's baseline."""
        return self.scores_at(embeddings) if self.known_at_baseline is None else self.known_at_baseline

    def first_read_by_function(self, selector: OutputSelector) -> Tensor | None:
        """[batch] the first token whose logits the caller's own function reads; None: the logits have no token axis."""
        assert selector.function is not None
        output = self._output()
        if output["logits"].ndim != 3:
            return None
        logits = output["logits"] = output["logits"].detach().requires_grad_()
        with torch.enable_grad():
            score = check_score(selector.function(output), len(logits))
            (gradient,) = torch.autograd.grad(score.sum(), logits, materialize_grads=True)
        is_read = (gradient != 0).any(-1)  # [batch, token]
        return torch.where(is_read.any(1), is_read.int().argmax(1), self.batch.first)

    def log_probabilities(self) -> Tensor:
        """[batch, selector] log-probabilities of vocabulary tokens on the unchanged batch, whatever is explained."""
        if self.output is not None:
            return log_probabilities(self.selectors, self.output)
        return torch.cat([log_probabilities(probe.selectors, probe._output()) for probe, _ in self._sub_batches()])

    def gradients(self, embeddings: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield, for each part, its score [batch] and gradient [batch, token, dim] with these embeddings."""
        if self.at_once is None or len(self.batch.input_ids) <= self.at_once:
            yield from self._gradients(embeddings)
            return
        for part_probe in self.by_part():  # one part at a time, so that only one graph is in memory
            results = [next(probe._gradients(embeddings[indices])) for probe, indices in part_probe._sub_batches()]
            yield torch.cat([score for score, _ in results]), torch.cat([gradient for _, gradient in results])

    def _sub_batches(self) -> "Iterator[tuple[Probe, slice | Tensor]]":
        """Yield probes of at most `at_once` texts, with the indices of these texts."""
        count = len(self.batch.input_ids)
        if self.at_once is None or count <= self.at_once:
            yield self, slice(None)
            return
        for indices in torch.arange(count, device=self.batch.input_ids.device).split(self.at_once):
            yield self.rows(indices), indices

    def _scores(self, embeddings: Tensor | None = None) -> Tensor:
        return self.scores_in(self._output(embeddings))

    def scores_in(self, output: Any) -> Tensor:
        """[part, batch] computed from an output of the model."""
        measure = self.measure or total
        return torch.stack([measure(part, output) for part in self.parts]).detach()

    def _output(self, embeddings: Tensor | None = None) -> Any:
        capture = Capture(CaptureSpec(embeddings=embeddings, fused=self.fused))
        return self.instrumented.run(self.batch, capture, read_at=self._read_at)

    def _gradients(self, embeddings: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        by_block, embeddings_only = self.record_options.by_block, frozenset({"embeddings"})
        capture = Capture(
            CaptureSpec(embeddings_only, True, embeddings=embeddings, by_block=by_block, fused=self.fused)
        )
        output = self.instrumented.run(self.batch, capture, read_at=self._read_at)
        for number, part in enumerate(self.parts):
            report_backward_pass()
            last = number + 1 == len(self.parts)
            with torch.enable_grad():
                score = total(part, output)
                check_differentiable(score)
                start = torch.ones_like(score)
                if by_block:
                    signals = Blockwise(
                        self.instrumented, capture, embeddings_only, embeddings_only, embeddings_only
                    ).all_signals(score, start, last)
                else:
                    with refusing_instrumentation_errors(self.instrumented.model):
                        signals = differentiate(score, start, capture, embeddings_only, last, graph=False)
            (embeddings_signal,) = signals["embeddings"]
            yield score.detach(), embeddings_signal.gradient

    @property
    def _read_at(self) -> Tensor | None:
        return self.record_options.logit_positions(self.selectors[0].reads_at)


def total(selectors: tuple[OutputSelector, ...], output: Any) -> Tensor:
    """[batch] the sum of the selectors' scores."""
    scores = torch.stack([selector.outcome(output) for selector in selectors]).sum(0)
    check_finite(scores)
    return scores
