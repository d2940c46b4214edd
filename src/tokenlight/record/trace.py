"""What one recorded pass leaves behind. Axis words: layer batch head query key token dim."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.text.batches import Batch


@dataclass(frozen=True)
class Signal:
    """A tensor of the forward pass and the gradient of the score with respect to it."""

    value: Tensor
    grad: Tensor | None = None

    @property
    def relevance(self) -> Tensor:
        """Value times gradient: under a rule table this *is* the relevance."""
        assert self.grad is not None, "recorded without a backward pass"
        return self.value * self.grad

    def to(self, device: torch.device) -> "Signal":
        """Itself, where it is there already."""
        return Signal(self.value.to(device), None if self.grad is None else self.grad.to(device))


SignalGroups = dict[str, tuple[Signal, ...]]  # by the names of Trace's fields


def flat(signals: Mapping[str, list[Tensor]], names: Collection[str]) -> list[Tensor]:
    """All tensors of the groups that `names` holds, one after the other."""
    return [tensor for name, group in signals.items() if name in names for tensor in group]


def with_gradients(
    signals: Mapping[str, list[Tensor]], graded: Collection[str], gradients: Iterable[Tensor]
) -> SignalGroups:
    """The values, and for the groups that `graded` holds their gradients, which come in the order of `flat`."""
    rest = iter(gradients)
    return {
        name: tuple(Signal(value.detach(), next(rest) if name in graded else None) for value in group)
        for name, group in signals.items()
    }


@dataclass(frozen=True)
class Trace:
    """One forward pass and one backward pass from `score`; only the signals that were asked for."""

    batch: Batch
    score: Tensor  # [batch] what is explained
    row_read: Tensor | None  # [batch] the query row that [query, key] maps are read at; None: nobody asked for it
    sign: int  # -1 for the trace of a foil
    embeddings: Signal | None  # [batch, token, dim] output of get_input_embeddings()
    hidden: tuple[Signal, ...]  # the input of every block, then the last block's output; [batch, token, dim]
    attention: tuple[Signal, ...]  # one a layer: [batch, head, query, key], after the softmax
    values: tuple[Signal, ...]  # one a layer: [batch, head, key, dim], key/value heads already repeated
    context: tuple[Signal, ...]  # one a layer: [batch, head, query, dim], the heads' outputs before projection
    gated: tuple[Signal, ...]  # the same behind the head gates, where relevance arrives before a gate stops it
    second_norm: tuple[Signal, ...]  # one a layer: [batch, token, dim], the input of a post-norm block's last norm
    model: PreTrainedModel  # the twin's: weights to read, never to change
    bias_share: Tensor | float = 0.0  # [batch] relevance that biases took, under a rule table
    softmax_deficit: Tensor | float = 0.0  # [batch] relevance that the softmax lost, under a rule table
    masked_share: Tensor | float = 0.0  # [batch] relevance that head gates stopped
    branches: Tensor | None = None  # [batch, layer] relevance of branches that a rule table cut off

    @property
    def mask(self) -> Tensor:
        """[batch, token] bool: the real tokens."""
        return self.batch.attention_mask.bool()

    @property
    def row(self) -> Tensor:
        """[batch] the token whose output is explained: the query row that [query, key] maps are read at."""
        if self.row_read is None:
            raise ValueError('the row was not asked for: a method that reads one names "row" among its needs')
        return self.row_read

    def read_row(self, maps: Tensor) -> Tensor:
        """[batch, query, key] -> [batch, key]: the row of the position whose output is explained."""
        return maps[torch.arange(len(maps), device=maps.device), self.row.to(maps.device)]
