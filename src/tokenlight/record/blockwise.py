"""Backward passes with the graph of one block in memory at a time (low memory)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tokenlight._compat.torch_internals import begin_signal, is_callers_own, leaves_below
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.capture import SIGNALS, Capture, CaptureSpec, without_graph
from tokenlight.model.instrumented import InstrumentedModel, refusing_instrumentation_errors
from tokenlight.record.trace import Block, Signal, SignalGroups, flat, with_gradients


@dataclass
class Blockwise:
    """A forward pass that kept what goes into each block, and how to run a block again."""

    instrumented: InstrumentedModel
    capture: Capture  # of the forward pass
    wanted: frozenset[str]
    graded: frozenset[str]  # of these; nothing: blocks run again for their values alone
    kept: frozenset[str]  # of these
    rules: AbstractContextManager[Any] | None = None
    found: SignalGroups = field(default_factory=dict)  # what is kept, once all blocks have been read
    gathered: dict[int, Tensor] = field(
        default_factory=dict
    )  # gradients by the identity of the tensor that they are of

    def differentiate(self, score: Tensor, start: Tensor, last: bool) -> Iterator[Block]:
        """Block after block from the last, with gradients exactly as one backward pass through the whole graph gives.

        Between blocks, gradients gather where graphs begin: at the embeddings, the blocks' outputs and their inputs.
        `last` says that the graphs of the head and of the embeddings are not needed again.
        """
        self.gathered.clear()
        if self.graded:
            self._gather(score, start, free=last and self._reads_outputs_alone(score))
        kept: SignalGroups = dict.fromkeys(SIGNALS, ())
        for number in reversed(range(len(self.capture.block_calls))):
            with refusing_instrumentation_errors(self.instrumented.model):
                arriving, below, groups = self._run_again(number)
            yield self._as_block(number, groups, arriving)
            kept = {name: groups[name] + kept[name] if name in self.kept else () for name in SIGNALS}
            del groups
            if below is not None:
                self._gather(self.capture.block_calls[number].state, below, free=last and number == 0)
        self.found = kept | self._embeddings()

    def all_signals(self, score: Tensor, start: Tensor, last: bool = True) -> SignalGroups:
        """What is kept, for those who do not read block by block."""
        for _ in self.differentiate(score, start, last):
            pass
        return self.found

    def _gather(self, output: Tensor, start: Tensor, free: bool) -> None:
        """Add the gradients of `output` to those that were gathered; `free` releases its graph."""
        states = [call.state for call in self.capture.block_calls]
        tensors = [
            *self.capture.signals["embeddings"],
            *self.capture.block_outputs,
            *states,
            *self.capture.block_inputs,
        ]
        places = {id(tensor): tensor for tensor in tensors if tensor.requires_grad}
        found = torch.autograd.grad(output, list(places.values()), start, retain_graph=not free, allow_unused=True)
        gradients = {place: grad for place, grad in zip(places, found, strict=True) if grad is not None}
        for number, begun in enumerate(self.capture.block_inputs):
            grad = gradients.pop(id(begun), None)
            if grad is not None and grad.any():
                raise UnsupportedModelError(
                    f"low_memory: {type(self.instrumented.model).__name__} reads what block {number} "
                    "computes inside, or its "
                    "input, past the block's output (attention weights, stored states), so its blocks cannot be "
                    "differentiated one by one; leave it off"
                )
        for place, grad in gradients.items():
            self.gathered[place] = self.gathered[place] + grad if place in self.gathered else grad

    def _reads_outputs_alone(self, score: Tensor) -> bool:
        """Whether the graph of the score shares nothing with the graphs that lie between the blocks."""
        outputs = {id(output) for output in self.capture.block_outputs}
        chained = all(id(call.state) in outputs for call in self.capture.block_calls[1:])
        return chained and all(id(leaf) in outputs or is_callers_own(leaf) for leaf in leaves_below(score))

    def _run_again(self, number: int) -> tuple[Tensor, Tensor | None, SignalGroups]:
        """The gradients at the block's output, and at its input where anything below needs it; the block's signals."""
        call, output = self.capture.block_calls[number], self.capture.block_outputs[number]
        arriving = self.gathered.pop(id(output), None)
        state, first = without_graph(call.state), self.capture
        if self.graded:
            begin_signal(state)
        spec = CaptureSpec(
            self.wanted, bool(self.graded), double=first.spec.double, gates=first.spec.gates, fused=first.spec.fused
        )
        capture = Capture(spec, first.keys, shape=first.shape)
        result = self.instrumented.run_block(number, call.with_state(state), capture, self.rules)
        refuse_another_result(self.instrumented, number, output, result)
        passes_on = bool(self.graded) and (number > 0 or "embeddings" in self.graded)
        signals = flat(capture.signals, self.graded)
        inputs = signals + [state] * passes_on
        if arriving is None:
            arriving = torch.zeros_like(result)
        gradients = list(torch.autograd.grad(result, inputs, arriving, materialize_grads=True)) if inputs else []
        below = gradients.pop() if passes_on else None
        elsewhere = self.gathered.get(id(call.state))  # from those who read the block's input beside the block
        if elsewhere is not None:
            gradients = [
                grad + elsewhere if tensor is state else grad for tensor, grad in zip(signals, gradients, strict=True)
            ]
        return arriving, below, with_gradients(capture.signals, self.graded, gradients)

    def _as_block(self, number: int, groups: SignalGroups, arriving: Tensor) -> Block:
        signals = {name: group[0] for name, group in groups.items() if group}
        gradient = arriving if "hidden" in self.graded else None
        signals["after"] = Signal(self.capture.block_outputs[number].detach(), gradient)
        return Block(number, {name: signal.to(self.instrumented.device) for name, signal in signals.items()})

    def _embeddings(self) -> SignalGroups:
        values = self.capture.signals["embeddings"]
        gradients = [
            self.gathered[id(value)] if id(value) in self.gathered else torch.zeros_like(value) for value in values
        ]
        return with_gradients({"embeddings": values}, self.graded, gradients)


def refuse_another_result(instrumented: InstrumentedModel, number: int, before: Tensor, again: Tensor) -> None:
    """A block that gives something else when it runs again, for example because it counts its calls."""
    before, again = before.detach(), again.detach()
    apart = torch.linalg.vector_norm(again - before) / torch.linalg.vector_norm(before)
    if apart > torch.finfo(before.dtype).eps ** 0.5:
        raise UnsupportedModelError(
            f"low_memory: block {number} of {type(instrumented.model).__name__} gives another result "
            "when it runs a second "
            f"time (by {float(apart):.0%}); leave it off"
        )
