"""For methods that ask the model again: the same target, on changed inputs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.model.tape import Tape
from tokenlight.model.twin import Twin
from tokenlight.record.blockwise import Blockwise
from tokenlight.record.choices import Choice, Settled, repeat_choices
from tokenlight.record.recording import NO_SAVING, Saving, check_finite, differentiate
from tokenlight.text.batches import Batch


@dataclass(frozen=True)
class Probe:
    """What methods that ask the model again may ask: the same target, on changed inputs."""

    twin: Twin
    batch: Batch
    choices: tuple[Choice, ...]
    saving: Saving = NO_SAVING
    at_once: int | None = None  # texts that may run together; None: all
    known: Tensor | None = None  # [batch] the explained number, where the model has said it already

    @property
    def fused(self) -> bool:
        """Whether attention is one operation."""
        return self.twin.fuses(Tape(fused=self.saving.may_fuse))

    def rows(self, rows: Tensor) -> "Probe":
        """The same question for some rows of the batch, in any order, repeated at will."""
        known = None if self.known is None else self.known[rows.to(self.known.device)]
        choices = repeat_choices(self.choices, rows)
        return replace(self, batch=self.batch.map(lambda t: t[rows]), choices=choices, known=known)

    def of_each(self, output: Any) -> "list[Probe]":
        """For each part of the target a probe of its own; `output` is what the model says about the batch as it is."""
        return [replace(self, choices=(one,), known=one.outcome(output)) for one in self.choices]

    def score_as_it_is(self) -> Tensor:
        """[batch] the explained number."""
        return self.score(self.batch) if self.known is None else self.known

    def score(self, batch: Batch) -> Tensor:
        """[batch] the explained number on another batch of the same shape."""
        return torch.cat([part._score() for part, _ in replace(self, batch=batch)._parts()])

    def score_at(self, embeddings: Tensor) -> Tensor:
        """[batch] the explained number where the embeddings are these."""
        return torch.cat([part._score(embeddings[rows]) for part, rows in self._parts()])

    def gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Score [batch] and its gradient [batch, token, dim] where the embeddings are these."""
        found = [part._gradient(embeddings[rows]) for part, rows in self._parts()]
        return torch.cat([score for score, _ in found]), torch.cat([gradient for _, gradient in found])

    def _parts(self) -> "Iterator[tuple[Probe, slice | Tensor]]":
        """The question in parts that may run together, and the rows of each."""
        count = len(self.batch.input_ids)
        if self.at_once is None or count <= self.at_once:
            yield self, slice(None)
            return
        for rows in torch.arange(count, device=self.batch.input_ids.device).split(self.at_once):
            yield self.rows(rows), rows

    def _score(self, embeddings: Tensor | None = None) -> Tensor:
        tape = Tape(embeddings_instead=embeddings, fused=self.fused)
        return self._total(self.twin.run(self.batch, tape, read_at=self._read_at)).detach()

    def _gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        cut, only = self.saving.by_block, frozenset({"embeddings"})
        tape = Tape(keep=only, differentiable=True, embeddings_instead=embeddings, cut=cut, fused=self.fused)
        output = self.twin.run(self.batch, tape, read_at=self._read_at)
        with torch.enable_grad():
            score = self._total(output)
            start = torch.ones_like(score)
            if cut:
                signals = Blockwise(self.twin, tape, only, only, only).all_signals(score, start)
            else:
                signals = differentiate(score, start, tape, only, last=True, graph=False)
        (found,) = signals["embeddings"]
        return score.detach(), found.gradient

    @property
    def _read_at(self) -> Tensor | None:
        return self.saving.places(Settled(self.choices).reads_at(self.batch))

    def _total(self, output: Any) -> Tensor:
        total = torch.stack([choice.outcome(output) for choice in self.choices]).sum(0)
        check_finite(total)
        return total
