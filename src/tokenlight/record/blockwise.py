"""Gradients with the graph of one block in memory at a time: a block runs again when the backward pass reaches it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tokenlight.foundation.torch_internals import begin_signal
from tokenlight.model.own_errors import refusing_what_we_break
from tokenlight.model.tape import SIGNALS, Tape, without_graph
from tokenlight.model.twin import Twin
from tokenlight.record.trace import Block, Signal, SignalGroups, flat, with_gradients


@dataclass
class Blockwise:
    """A forward pass that kept what goes into each block, and how to run a block again."""

    twin: Twin
    tape: Tape  # of the forward pass
    wanted: frozenset[str]
    graded: frozenset[str]  # of these; nothing: blocks run again for their values alone
    kept: frozenset[str]  # of these
    rules: AbstractContextManager[Any] | None = None
    found: SignalGroups = field(default_factory=dict)  # what is kept, once all blocks have been read

    def differentiate(self, score: Tensor, start: Tensor, last: bool) -> Iterator[Block]:
        """Block after block from the last, with gradients exactly as one backward pass through the whole graph gives.

        Between blocks, gradients gather in the leaves: the blocks' outputs and the embeddings. `last` says that the
        graphs of the head and of the embeddings are not needed again.
        """
        leaves = [*self.tape.signals["embeddings"], *self.tape.block_outputs]
        for leaf in leaves:
            leaf.grad = None
        if self.graded:
            torch.autograd.backward(score, start, retain_graph=not last, inputs=leaves)
        kept: SignalGroups = dict.fromkeys(SIGNALS, ())
        for number in reversed(range(len(self.tape.block_calls))):
            with refusing_what_we_break(self.twin.model):
                below, groups = self._run_again(number)
            yield self._as_block(number, groups)
            kept = {name: groups[name] + kept[name] if name in self.kept else () for name in SIGNALS}
            del groups
            if below is not None:
                state = self.tape.block_calls[number].state
                torch.autograd.backward(state, below, retain_graph=not last, inputs=leaves)
        self.found = kept | self._embeddings()

    def all_signals(self, score: Tensor, start: Tensor, last: bool = True) -> SignalGroups:
        """What is kept, for those who do not read block by block."""
        for _ in self.differentiate(score, start, last):
            pass
        return self.found

    def _run_again(self, number: int) -> tuple[Tensor | None, SignalGroups]:
        """The gradient at the block's input where anything below needs it, and the block's own signals."""
        call, output = self.tape.block_calls[number], self.tape.block_outputs[number]
        arriving, output.grad = output.grad, None
        state, first = without_graph(call.state), self.tape
        if self.graded:
            begin_signal(state)
        settings = {"double": first.double, "gates": first.gates, "fused": first.fused, "shape": first.shape}
        tape = Tape(self.wanted, bool(self.graded), **settings)
        result = self.twin.run_block(number, call.with_state(state), tape, self.rules)
        passes_on = bool(self.graded) and (number > 0 or "embeddings" in self.graded)
        inputs = flat(tape.signals, self.graded) + [state] * passes_on
        if arriving is None:
            arriving = torch.zeros_like(result)
        gradients = list(torch.autograd.grad(result, inputs, arriving, materialize_grads=True)) if inputs else []
        below = gradients.pop() if passes_on else None
        return below, with_gradients(tape.signals, self.graded, gradients)

    def _as_block(self, number: int, groups: SignalGroups) -> Block:
        signals = {name: group[0] for name, group in groups.items() if group}
        signals["after"] = Signal(self.tape.block_outputs[number].detach())
        return Block(number, {name: signal.to(self.twin.device) for name, signal in signals.items()})

    def _embeddings(self) -> SignalGroups:
        values = self.tape.signals["embeddings"]
        gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in values]
        return with_gradients({"embeddings": values}, self.graded, gradients)
