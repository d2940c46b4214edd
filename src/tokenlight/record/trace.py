"""What a recorded pass gives to a method, whole or block by block. Axes: layer batch head query key token dim.

Such a method is a generator. Each `yield` hands it the next block, one for each pass that it reads, and after the first
block of the model nothing:

    row = trace.first_row()
    while block := (yield):
        row = row + row @ block.attention.value.mean(1)
    return row[:, 0]

Where memory is short, blocks come one at a time and are forgotten; a method that returns early spares the rest.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.rules.ledger import Ledger
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class Signal:
    """A tensor of the forward pass and the gradient of the score with respect to it."""

    value: Tensor
    grad: Tensor | None = None

    @property
    def gradient(self) -> Tensor:
        """For those who asked for it."""
        assert self.grad is not None, "recorded without a backward pass"
        return self.grad

    @property
    def relevance(self) -> Tensor:
        """Value times gradient: under a rule table this *is* the relevance."""
        return self.value * self.gradient

    def to(self, device: torch.device) -> "Signal":
        """Itself, where it is there already."""
        return Signal(self.value.to(device), None if self.grad is None else self.grad.to(device))


BY_BLOCK = ("hidden", "attention", "values", "context", "gated", "projected", "second_norm")
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
class Block:
    """The signals of one block; only those that were asked for."""

    number: int
    signals: dict[str, Signal]

    @property
    def hidden(self) -> Signal:
        """Its input: [batch, token, dim]"""
        return self._find("hidden")

    @property
    def after(self) -> Signal:
        """Its output: [batch, token, dim]; comes with "hidden", and with "hidden.grad" has its gradient."""
        return self._find("after")

    @property
    def attention(self) -> Signal:
        """[batch, head, query, key], after the softmax"""
        return self._find("attention")

    @property
    def values(self) -> Signal:
        """[batch, head, key, dim], key/value heads already repeated"""
        return self._find("values")

    @property
    def context(self) -> Signal:
        """[batch, head, query, dim], the heads' outputs before projection"""
        return self._find("context")

    @property
    def gated(self) -> Signal:
        """The same behind the head gates, where relevance arrives before a gate stops it."""
        return self._find("gated")

    @property
    def projected(self) -> Signal:
        """[batch, token, head * dim], what the attention's output projection reads, where a gate lies before it"""
        return self._find("projected")

    @property
    def second_norm(self) -> Signal:
        """[batch, token, dim], the input of a post-norm block's last norm"""
        return self._find("second_norm")

    def _find(self, name: str) -> Signal:
        if name not in self.signals:
            raise RefusedValue(
                f'there is no "{name}" here: a method that reads it names it among its needs, and reads it before it '
                "asks for the next block"
            )
        return self.signals[name]

    def forget(self) -> None:
        """Its methods are done with it; whoever still holds it holds no memory."""
        self.signals.clear()


@dataclass(frozen=True)
class Trace:
    """One forward pass and one backward pass from `score`; only the signals that were asked for."""

    batch: Batch
    score: Tensor  # [batch] what is explained
    query_weights: (
        Tensor | None
    )  # [batch, token] which query rows [query, key] maps are read at; None: nobody asked for it
    sign: int  # -1 for the trace of a foil
    model: PreTrainedModel  # the instrumented model's: weights to read, never to change
    ledger: Ledger  # where relevance went that did not reach the input, under a rule table
    first_block: int = 0  # whose signals are here: 0, or the number of the last block if nobody reads another
    embeddings: Signal | None = None  # [batch, token, dim] output of get_input_embeddings()
    hidden: tuple[Signal, ...] = ()  # the input of every block, then the last block's output; [batch, token, dim]
    attention: tuple[Signal, ...] = ()  # one a layer: [batch, head, query, key], after the softmax
    values: tuple[Signal, ...] = ()  # one a layer: [batch, head, key, dim], key/value heads already repeated
    context: tuple[Signal, ...] = ()  # one a layer: [batch, head, query, dim], the heads' outputs before projection
    gated: tuple[Signal, ...] = ()  # the same behind the head gates, where relevance arrives before a gate stops it
    projected: tuple[
        Signal, ...
    ] = ()  # one a layer, where a gate lies on the heads' outputs: what they are projected as
    second_norm: tuple[Signal, ...] = ()  # one a layer: [batch, token, dim], the input of a post-norm block's last norm

    def with_signals(self, signals: SignalGroups, ledger: Ledger) -> "Trace":
        """The same pass, with what was kept of it."""
        device = self.mask.device  # blocks may run on devices of their own (device_map): methods find all on one
        groups = {name: tuple(signal.to(device) for signal in group) for name, group in signals.items()}
        embeddings = next(iter(groups.pop("embeddings", ())), None)
        return replace(self, ledger=ledger, embeddings=embeddings, **groups)

    @property
    def bias_share(self) -> Tensor | float:
        """[batch] relevance that biases took"""
        return self._total("bias")

    @property
    def softmax_deficit(self) -> Tensor | float:
        """[batch] relevance that the softmax lost"""
        return self._total("softmax")

    @property
    def sink_share(self) -> Tensor | float:
        """[batch] relevance that attention sinks took"""
        return self._total("sink")

    @property
    def masked_share(self) -> Tensor | float:
        """[batch] relevance that head gates stopped"""
        return self._total("heads")

    @property
    def branches(self) -> Tensor | None:
        """[batch, layer] relevance of branches that a rule table cut off"""
        found = [entry.to(self.mask.device) for entry in reversed(self.ledger.sums("branch"))]
        return torch.stack(found, 1) if found else None

    def _total(self, account: str) -> Tensor | float:
        total = self.ledger.total(account)
        return total.to(self.mask.device) if isinstance(total, Tensor) else total

    def blocks_downwards(self) -> Iterator[Block]:
        """From the last block to the first."""
        groups = {name: getattr(self, name) for name in BY_BLOCK}
        groups |= {"hidden": self.hidden[:-1], "after": self.hidden[1:]}
        for number in reversed(range(max(map(len, groups.values())))):
            yield Block(self.first_block + number, {name: group[number] for name, group in groups.items() if group})

    @property
    def mask(self) -> Tensor:
        """[batch, token] bool: the real tokens."""
        return self.batch.attention_mask.bool()

    @property
    def rows(self) -> Tensor:
        """[batch, token] whose outputs the explained number is read from, as weights that sum to 1: the mix of query
        rows that [query, key] maps are read at. Mostly a single token has it all; where several numbers are added up,
        each has 1."""
        if self.query_weights is None:
            raise RefusedValue('the row was not asked for: a method that reads one names "row" among its needs')
        return self.query_weights

    def first_row(self) -> Tensor:
        """[batch, 1, token]: the weights. What comes out of them through all layers' maps, the last one first, is the
        row of their product."""
        return self.rows[:, None].to(self.mask.device, self.score.dtype)

    def read_row(self, maps: Tensor) -> Tensor:
        """[batch, query, key] -> [batch, key]: the row of what is explained, or its mix of rows."""
        return (self.rows[:, None].to(maps) @ maps)[:, 0]


Result = TypeVar("Result")
Fold = Generator[None, Block, Result]  # of a method with one pass; the last thing that it gets is None
PairFold = Generator[None, tuple[Block, Block], Result]  # with two


class Folding(Generic[Result]):
    """A method under way."""

    result: Result
    done: bool = False

    def __init__(self, method: Generator[None, Any, Result]):
        self._method = method
        self._send(None)  # up to the first block

    def feed(self, blocks: Sequence[Block]) -> None:
        """The same block of every pass that the method reads."""
        if not self.done:
            self._send(blocks[0] if len(blocks) == 1 else tuple(blocks))

    def finish(self) -> Result:
        """When there are no more blocks."""
        if not self.done:
            self._send(None)
        if not self.done:
            raise RuntimeError("the method asks for another block after the first of the model, where it got nothing")
        return self.result

    def _send(self, blocks: Any) -> None:
        try:
            self._method.send(blocks)
        except StopIteration as end:
            self.result, self.done = end.value, True
