"""What a recorded pass gives to a method, at once or block by block. Axes: layer batch head query key token dim.

A method that reads block by block is a generator. Each `yield` returns the next block (a tuple if the method reads
several passes), from the last block of the model to the first, and then None:

    row = trace.first_row()
    while block := (yield):
        row = row + row @ block.attention.value.mean(1)
    return row[:, 0]

With low memory, each block is computed when it is read and then released; a method that returns early saves the rest.
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
        """The gradient, which must have been recorded."""
        assert self.grad is not None, "recorded without a backward pass"
        return self.grad

    @property
    def relevance(self) -> Tensor:
        """Value times gradient: under a rule table, this is the relevance."""
        return self.value * self.gradient

    def to(self, device: torch.device) -> "Signal":
        """The signal on another device."""
        return Signal(self.value.to(device), None if self.grad is None else self.grad.to(device))


BY_BLOCK = ("hidden", "attention", "values", "context", "gated", "projected", "second_norm")
SignalGroups = dict[str, tuple[Signal, ...]]  # by the names of Trace's fields


def flat(signals: Mapping[str, list[Tensor]], names: Collection[str]) -> list[Tensor]:
    """All tensors of the groups with these names, as one list."""
    return [tensor for name, group in signals.items() if name in names for tensor in group]


def with_gradients(
    signals: Mapping[str, list[Tensor]], graded: Collection[str], gradients: Iterable[Tensor]
) -> SignalGroups:
    """The values, with gradients for the groups in `graded`; `gradients` are in the order of `flat`."""
    remaining = iter(gradients)
    return {
        name: tuple(Signal(value.detach(), next(remaining) if name in graded else None) for value in group)
        for name, group in signals.items()
    }


@dataclass(frozen=True)
class Block:
    """The requested signals of one block."""

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
        """[batch, head, query, dim], the same after the head gates: its relevance is what arrives at the gates."""
        return self._find("gated")

    @property
    def projected(self) -> Signal:
        """[batch, token, head * dim], the input of the attention's output projection, if a gate precedes it"""
        return self._find("projected")

    @property
    def second_norm(self) -> Signal:
        """[batch, token, dim], the input of a post-norm block's last norm"""
        return self._find("second_norm")

    def _find(self, name: str) -> Signal:
        if name not in self.signals:
            raise RefusedValue(
                f'the signal "{name}" was not recorded: add it to the needs of the method, and read it before the next '
                "`yield`"
            )
        return self.signals[name]

    def release(self) -> None:
        """Release all signals, after the methods have read them."""
        self.signals.clear()


@dataclass(frozen=True)
class Trace:
    """A forward pass and a backward pass from `score`, with the requested signals."""

    batch: Batch
    score: Tensor  # [batch] the explained score
    query_weights: Tensor | None  # [batch, token] of the query positions of [query, key] maps; None: not requested
    sign: int  # -1 for the trace of a foil
    model: PreTrainedModel  # the instrumented model, whose weights may be read but not changed
    ledger: Ledger  # relevance that did not reach the input, under a rule table
    first_block: int = 0  # the first block with signals: 0, or the last block if only that is read
    embeddings: Signal | None = None  # [batch, token, dim] output of get_input_embeddings()
    hidden: tuple[Signal, ...] = ()  # the input of every block, then the last block's output; [batch, token, dim]
    attention: tuple[Signal, ...] = ()  # for each layer: [batch, head, query, key], after the softmax
    values: tuple[Signal, ...] = ()  # for each layer: [batch, head, key, dim], key/value heads already repeated
    context: tuple[Signal, ...] = ()  # for each layer: [batch, head, query, dim], the heads' outputs before projection
    gated: tuple[Signal, ...] = ()  # the same after the head gates: its relevance is what arrives at the gates
    projected: tuple[Signal, ...] = ()  # for each layer with gated head outputs: the input of the output projection
    second_norm: tuple[
        Signal, ...
    ] = ()  # for each layer: [batch, token, dim], the input of a post-norm block's last norm

    def with_signals(self, signals: SignalGroups, ledger: Ledger) -> "Trace":
        """The same pass with its kept signals and the ledger."""
        device = self.mask.device  # blocks may run on several devices (device_map): move all signals to one
        groups = {name: tuple(signal.to(device) for signal in group) for name, group in signals.items()}
        embeddings = next(iter(groups.pop("embeddings", ())), None)
        return replace(self, ledger=ledger, embeddings=embeddings, **groups)

    @property
    def bias_share(self) -> Tensor | float:
        """[batch] relevance that biases absorbed"""
        return self._total("bias")

    @property
    def softmax_deficit(self) -> Tensor | float:
        """[batch] relevance that the softmax lost"""
        return self._total("softmax")

    @property
    def sink_share(self) -> Tensor | float:
        """[batch] relevance that attention sinks absorbed"""
        return self._total("sink")

    @property
    def masked_share(self) -> Tensor | float:
        """[batch] relevance that head gates stopped"""
        return self._total("heads")

    @property
    def branches(self) -> Tensor | None:
        """[batch, layer] relevance of branches that a rule table cut off"""
        shares = [entry.to(self.mask.device) for entry in reversed(self.ledger.sums("branch"))]
        return torch.stack(shares, 1) if shares else None

    def _total(self, account: str) -> Tensor | float:
        total = self.ledger.total(account)
        return total.to(self.mask.device) if isinstance(total, Tensor) else total

    def blocks_downwards(self) -> Iterator[Block]:
        """All blocks, from the last to the first."""
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
        """[batch, token] weights of the query positions whose outputs the explained score is read from.

        They sum to 1, usually at a single token; if the scores of several tokens are added, each of them has 1.
        """
        if self.query_weights is None:
            raise RefusedValue('query positions were not recorded: add "row" to the needs of the method')
        return self.query_weights

    def first_row(self) -> Tensor:
        """[batch, 1, token] the weights of query positions.

        Multiplied with the maps of all layers, from the last to the first, they become the row of the maps' product.
        """
        return self.rows[:, None].to(self.mask.device, self.score.dtype)

    def read_row(self, maps: Tensor) -> Tensor:
        """[batch, query, key] -> [batch, key]: the row at the query position, or the weighted sum of rows."""
        return (self.rows[:, None].to(maps) @ maps)[:, 0]


Result = TypeVar("Result")
Fold = Generator[None, Block, Result]  # a method that reads one pass; it finally receives None
PairFold = Generator[None, tuple[Block, Block], Result]  # a method that reads two passes


class Folding(Generic[Result]):
    """A running method that reads block by block."""

    result: Result
    done: bool = False

    def __init__(self, method: Generator[None, Any, Result]):
        self._method = method
        self._send(None)  # run it to its first `yield`

    def feed(self, blocks: Sequence[Block]) -> None:
        """Send the next block: the same one of every pass that the method reads."""
        if not self.done:
            self._send(blocks[0] if len(blocks) == 1 else tuple(blocks))

    def finish(self) -> Result:
        """Send None after the last block; return the result."""
        if not self.done:
            self._send(None)
        if not self.done:
            raise RuntimeError(
                "the method reads on after it received None: it must return after the model's first block"
            )
        return self.result

    def _send(self, blocks: Any) -> None:
        try:
            self._method.send(blocks)
        except StopIteration as end:
            self.result, self.done = end.value, True
