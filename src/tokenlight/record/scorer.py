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
from tokenlight.tasks.selectors import FixedTarget, OutputSelector, log_probabilities, repeat_selectors
from tokenlight.tasks.target_functions import check_score
from tokenlight.text.batch import Batch

Measure = Callable[[tuple[OutputSelector, ...], Any], Tensor]  # a part of a target, the model's output -> [batch]


@dataclass(frozen=True)
class Probe:
    """What methods that ask the model again may ask: the same target, on changed inputs.

    With `each`, the numbers of a target's parts are not added up. All of them are read from the same passes, so a
    method that asks for `scores` and `gradients` explains many parts for little more than one.
    """

    instrumented: InstrumentedModel
    batch: Batch
    selectors: tuple[OutputSelector, ...]
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS
    at_once: int | None = None  # texts that may run together; None: all
    known: Tensor | None = None  # [part, batch] the explained numbers, where the model has said them already
    known_at_baseline: Tensor | None = None  # [part, batch] the same for the baseline of the one method that asks
    output: Any = None  # of the model on the batch as it is, where it is known
    each: bool = False
    measure: Measure | None = None  # what is asked for in place of the explained number

    @property
    def fused(self) -> bool:
        """Whether attention is one operation."""
        return self.instrumented.fuses(Capture(CaptureSpec(fused=self.record_options.may_fuse)))

    @property
    def parts(self) -> tuple[tuple[OutputSelector, ...], ...]:
        """The choices whose numbers are added up."""
        return tuple((selector,) for selector in self.selectors) if self.each else (self.selectors,)

    def of_each(self) -> "list[Probe]":
        """For each part a probe of its own."""
        known = [None] * len(self.parts) if self.known is None else self.known.split(1)
        alone = replace(self, known_at_baseline=None, each=False)
        return [replace(alone, selectors=part, known=one) for part, one in zip(self.parts, known, strict=True)]

    def measuring(self, measure: Measure) -> "Probe":
        """The same question, where `scores` are this function of the output, such as a probability.

        A target without a probability (a regression, the caller's own function) keeps its explained number.
        """
        if not all(selector.has_probability for selector in self.selectors):
            return self
        changed = replace(self, measure=measure, known=None, known_at_baseline=None)
        return changed if self.output is None else replace(changed, known=changed.scores_in(self.output))

    def rows(self, rows: Tensor) -> "Probe":
        """The same question for some rows of the batch, in any order, repeated at will."""
        known = None if self.known is None else self.known[:, rows.to(self.known.device)]
        selectors = repeat_selectors(self.selectors, rows)
        batch = self.batch.map(lambda t: t[rows])
        return replace(self, batch=batch, selectors=selectors, known=known, known_at_baseline=None, output=None)

    # The number of a target as a whole

    def score_as_it_is(self) -> Tensor:
        """[batch] the explained number."""
        return self.scores_as_they_are()[0]

    def score(self, batch: Batch) -> Tensor:
        """[batch] the explained number on another batch of the same shape."""
        return self.scores(batch)[0]

    def score_at(self, embeddings: Tensor) -> Tensor:
        """[batch] the explained number where the embeddings are these."""
        return self.scores_at(embeddings)[0]

    def gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Score [batch] and its gradient [batch, token, dim] where the embeddings are these."""
        return next(self.gradients(embeddings))

    # The numbers of all parts

    def scores_as_they_are(self) -> Tensor:
        """[part, batch]"""
        return self.scores(self.batch) if self.known is None else self.known

    def scores(self, batch: Batch) -> Tensor:
        """[part, batch] on another batch of the same shape"""
        return torch.cat([some._scores() for some, _ in replace(self, batch=batch)._together()], 1)

    def scores_at(self, embeddings: Tensor) -> Tensor:
        """[part, batch] where the embeddings are these"""
        return torch.cat([some._scores(embeddings[rows]) for some, rows in self._together()], 1)

    def scores_at_baseline(self, embeddings: Tensor) -> Tensor:
        """[part, batch] where the embeddings are those of the method's baseline"""
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
        read = (gradient != 0).any(-1)  # [batch, token]
        return torch.where(read.any(1), read.int().argmax(1), self.batch.first)

    def log_probabilities(self) -> Tensor:
        """[batch, choice] of words of the vocabulary, on the batch as it is, whatever number is explained."""
        if self.output is not None:
            return log_probabilities(self.selectors, self.output)
        return torch.cat([log_probabilities(some.selectors, some._output()) for some, _ in self._together()])

    def gradients(self, embeddings: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each part its score [batch] and its gradient [batch, token, dim] where the embeddings are these."""
        if self.at_once is None or len(self.batch.input_ids) <= self.at_once:
            yield from self._gradients(embeddings)
            return
        for one in self.of_each():  # in turn, so that no graph waits while another is made
            found = [next(some._gradients(embeddings[rows])) for some, rows in one._together()]
            yield torch.cat([score for score, _ in found]), torch.cat([gradient for _, gradient in found])

    def _together(self) -> "Iterator[tuple[Probe, slice | Tensor]]":
        """The question for as many texts as may run together, and the rows of these."""
        count = len(self.batch.input_ids)
        if self.at_once is None or count <= self.at_once:
            yield self, slice(None)
            return
        for rows in torch.arange(count, device=self.batch.input_ids.device).split(self.at_once):
            yield self.rows(rows), rows

    def _scores(self, embeddings: Tensor | None = None) -> Tensor:
        return self.scores_in(self._output(embeddings))

    def scores_in(self, output: Any) -> Tensor:
        """[part, batch] of what the model has said"""
        measure = self.measure or total
        return torch.stack([measure(part, output) for part in self.parts]).detach()

    def _output(self, embeddings: Tensor | None = None) -> Any:
        capture = Capture(CaptureSpec(embeddings=embeddings, fused=self.fused))
        return self.instrumented.run(self.batch, capture, read_at=self._read_at)

    def _gradients(self, embeddings: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        cut, only = self.record_options.by_block, frozenset({"embeddings"})
        capture = Capture(CaptureSpec(only, True, embeddings=embeddings, by_block=cut, fused=self.fused))
        output = self.instrumented.run(self.batch, capture, read_at=self._read_at)
        for number, part in enumerate(self.parts):
            report_backward_pass()
            last = number + 1 == len(self.parts)
            with torch.enable_grad():
                score = total(part, output)
                check_differentiable(score)
                start = torch.ones_like(score)
                if cut:
                    signals = Blockwise(self.instrumented, capture, only, only, only).all_signals(score, start, last)
                else:
                    with refusing_instrumentation_errors(self.instrumented.model):
                        signals = differentiate(score, start, capture, only, last, graph=False)
            (found,) = signals["embeddings"]
            yield score.detach(), found.gradient

    @property
    def _read_at(self) -> Tensor | None:
        return self.record_options.places(FixedTarget(self.selectors).reads_at(self.batch))


def total(selectors: tuple[OutputSelector, ...], output: Any) -> Tensor:
    """[batch]"""
    found = torch.stack([selector.outcome(output) for selector in selectors]).sum(0)
    check_finite(found)
    return found
