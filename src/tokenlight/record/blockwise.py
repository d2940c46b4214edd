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
    """Backward passes after a forward pass that kept only the inputs of blocks: each block runs again."""

    instrumented: InstrumentedModel
    capture: Capture  # of the forward pass
    needed: frozenset[str]  # names of the signals that methods read
    graded: frozenset[str]  # of these, the signals with gradients; if empty, blocks run again for values only
    kept: frozenset[str]  # of these, the signals that are kept until all blocks have been read
    rules: AbstractContextManager[Any] | None = None
    kept_signals: SignalGroups = field(default_factory=dict)  # complete once all blocks have been read
    gradients: dict[int, Tensor] = field(default_factory=dict)  # accumulated, by the id() of their tensor

    def differentiate(self, score: Tensor, start: Tensor, last: bool) -> Iterator[Block]:
        """Yield blocks from the last to the first, with the same gradients as a single backward pass.

        Between blocks, gradients accumulate at the leaves of the blocks' graphs: embeddings, block outputs and inputs.
        With `last`, the graphs of the head and of the embeddings are released.
        """
        self.gradients.clear()
        if self.graded:
            self._accumulate(score, start, free=last and self._reads_outputs_alone(score))
        kept: SignalGroups = dict.fromkeys(SIGNALS, ())
        for number in reversed(range(len(self.capture.block_calls))):
            with refusing_instrumentation_errors(self.instrumented.model):
                output_grad, input_grad, groups = self._run_again(number)
            yield self._as_block(number, groups, output_grad)
            kept = {name: groups[name] + kept[name] if name in self.kept else () for name in SIGNALS}
            del groups
            if input_grad is not None:
                self._accumulate(self.capture.block_calls[number].state, input_grad, free=last and number == 0)
        self.kept_signals = kept | self._embeddings()

    def all_signals(self, score: Tensor, start: Tensor, last: bool = True) -> SignalGroups:
        """All kept signals, for methods that do not read block by block."""
        for _ in self.differentiate(score, start, last):
            pass
        return self.kept_signals

    def _accumulate(self, output: Tensor, start: Tensor, free: bool) -> None:
        """Accumulate the gradients of `output` at all leaves; `free` releases its graph."""
        states = [call.state for call in self.capture.block_calls]
        tensors = [
            *self.capture.signals["embeddings"],
            *self.capture.block_outputs,
            *states,
            *self.capture.block_inputs,
        ]
        tensors_by_id = {id(tensor): tensor for tensor in tensors if tensor.requires_grad}
        grads = torch.autograd.grad(
            output, list(tensors_by_id.values()), start, retain_graph=not free, allow_unused=True
        )
        gradients = {tensor_id: grad for tensor_id, grad in zip(tensors_by_id, grads, strict=True) if grad is not None}
        for block, block_input in enumerate(self.capture.block_inputs):
            grad = gradients.pop(id(block_input), None)
            if grad is not None and grad.any():
                raise UnsupportedModelError(
                    f"low_memory: {type(self.instrumented.model).__name__} reads what block {block} computes "
                    "inside, or its input, past the block's output (attention weights, stored states), so its blocks "
                    "cannot be differentiated one by one; leave it off"
                )
        for tensor_id, grad in gradients.items():
            self.gradients[tensor_id] = self.gradients[tensor_id] + grad if tensor_id in self.gradients else grad

    def _reads_outputs_alone(self, score: Tensor) -> bool:
        """Whether the graph of the score starts at block outputs, and so shares nothing with graphs between blocks."""
        outputs = {id(output) for output in self.capture.block_outputs}
        chained = all(id(call.state) in outputs for call in self.capture.block_calls[1:])
        return chained and all(id(leaf) in outputs or is_callers_own(leaf) for leaf in leaves_below(score))

    def _run_again(self, number: int) -> tuple[Tensor, Tensor | None, SignalGroups]:
        """The gradient at a block's output, that at its input (None if not needed), and the block's signals."""
        call, output = self.capture.block_calls[number], self.capture.block_outputs[number]
        output_grad = self.gradients.pop(id(output), None)
        state, recorded = without_graph(call.state), self.capture
        if self.graded:
            begin_signal(state)
        spec = CaptureSpec(
            self.needed,
            bool(self.graded),
            double=recorded.spec.double,
            gates=recorded.spec.gates,
            fused=recorded.spec.fused,
        )
        capture = Capture(spec, recorded.keys, shape=recorded.shape)
        result = self.instrumented.run_block(number, call.with_state(state), capture, self.rules)
        refuse_another_result(self.instrumented, number, output, result)
        needs_input_grad = bool(self.graded) and (number > 0 or "embeddings" in self.graded)
        signals = flat(capture.signals, self.graded)
        inputs = signals + [state] * needs_input_grad
        if output_grad is None:
            output_grad = torch.zeros_like(result)
        gradients = list(torch.autograd.grad(result, inputs, output_grad, materialize_grads=True)) if inputs else []
        input_grad = gradients.pop() if needs_input_grad else None
        direct_grad = self.gradients.get(id(call.state))  # from other readers of the block's input
        if direct_grad is not None:
            gradients = [
                grad + direct_grad if tensor is state else grad for tensor, grad in zip(signals, gradients, strict=True)
            ]
        return output_grad, input_grad, with_gradients(capture.signals, self.graded, gradients)

    def _as_block(self, number: int, groups: SignalGroups, output_grad: Tensor) -> Block:
        signals = {name: group[0] for name, group in groups.items() if group}
        gradient = output_grad if "hidden" in self.graded else None
        signals["after"] = Signal(self.capture.block_outputs[number].detach(), gradient)
        return Block(number, {name: signal.to(self.instrumented.device) for name, signal in signals.items()})

    def _embeddings(self) -> SignalGroups:
        values = self.capture.signals["embeddings"]
        gradients = [
            self.gradients[id(value)] if id(value) in self.gradients else torch.zeros_like(value) for value in values
        ]
        return with_gradients({"embeddings": values}, self.graded, gradients)


def refuse_another_result(instrumented: InstrumentedModel, number: int, first: Tensor, second: Tensor) -> None:
    """Refuse a block whose result differs when it runs again, for example because it counts its calls."""
    first, second = first.detach(), second.detach()
    difference = torch.linalg.vector_norm(second - first) / torch.linalg.vector_norm(first)
    if difference > torch.finfo(first.dtype).eps ** 0.5:
        raise UnsupportedModelError(
            f"low_memory: block {number} of {type(instrumented.model).__name__} gives another result when it runs a "
            f"second time (by {float(difference):.0%}); leave it off"
        )
