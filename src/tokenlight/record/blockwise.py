"""Gradients with the graph of one block in memory at a time: a block runs again when the backward pass reaches it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenlight.model.tape import SIGNALS, Tape, without_graph
from tokenlight.model.twin import Twin
from tokenlight.record.trace import SignalGroups, flat, with_gradients


@dataclass(frozen=True)
class Blockwise:
    """A forward pass that kept what goes into each block, and how to run a block again."""

    twin: Twin
    tape: Tape  # of the forward pass
    wanted: frozenset[str]
    graded: frozenset[str]
    rules: AbstractContextManager[Any] | None

    def differentiate(self, score: Tensor, start: Tensor, last: bool) -> SignalGroups:
        """The signals with their gradients, exactly as one backward pass through the whole graph would give them.

        Between blocks, gradients gather in the leaves: the blocks' outputs and the embeddings. `last` says that the
        graphs of the head and of the embeddings are not needed again.
        """
        leaves = [*self.tape.signals["embeddings"], *self.tape.block_outputs]
        for leaf in leaves:
            leaf.grad = None
        torch.autograd.backward(score, start, retain_graph=not last, inputs=leaves)
        found: SignalGroups = dict.fromkeys(SIGNALS, ())
        for number in reversed(range(len(self.tape.block_calls))):
            below, groups = self._differentiate_block(number)
            found = {name: groups[name] + found[name] for name in SIGNALS}
            if below is not None:
                state = self.tape.block_calls[number].state
                torch.autograd.backward(state, below, retain_graph=not last, inputs=leaves)
        return found | self._embeddings()

    def _differentiate_block(self, number: int) -> tuple[Tensor | None, SignalGroups]:
        """The gradient at the block's input where anything below needs it, and the block's own signals."""
        call, output = self.tape.block_calls[number], self.tape.block_outputs[number]
        arriving, output.grad = output.grad, None
        state = without_graph(call.state).requires_grad_()
        first = self.tape
        tape = Tape(self.wanted, True, double=first.double, gates=first.gates, fused=first.fused)
        result = self.twin.run_block(number, call.with_state(state), tape, self.rules)
        passes_on = number > 0 or "embeddings" in self.graded
        inputs = flat(tape.signals, self.graded) + [state] * passes_on
        if arriving is None:
            arriving = torch.zeros_like(result)
        gradients = list(torch.autograd.grad(result, inputs, arriving, materialize_grads=True)) if inputs else []
        below = gradients.pop() if passes_on else None
        return below, with_gradients(tape.signals, self.graded, gradients)

    def _embeddings(self) -> SignalGroups:
        values = self.tape.signals["embeddings"]
        gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in values]
        return with_gradients({"embeddings": values}, self.graded, gradients)
