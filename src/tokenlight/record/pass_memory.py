"""Plain passes over one text, kept for those who ask about it again and again with other masks or rules."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from tokenlight.foundation.torch_internals import changes_of
from tokenlight.record.choices import Asked
from tokenlight.record.recording import Recording
from tokenlight.record.trace import Signal, Trace
from tokenlight.text.batches import Batch


@dataclass
class PassMemory:
    """The passes of the last question, for one thread. Another question or model clears it.

    So does a change of weights that torch counts; weights that were written through `.data` are not seen.
    """

    limit: int = 64 * 2**20  # bytes that one pass may take
    _question: Any = None
    _passes: dict[Any, tuple[frozenset[str], Recording]] = field(default_factory=dict)

    def open(self, model: nn.Module, batch: Batch, target: Asked) -> None:
        """Say what is asked from now on."""
        weights = [(parameter.data_ptr(), changes_of(parameter)) for parameter in model.parameters()]
        rows = {name: tensor.tolist() for name, tensor in batch.inputs().items()}
        question = (weights, rows, target)
        if question != self._question:
            self._passes.clear()
            self._question = question

    def recall(self, key: Any, needs: set[str]) -> Recording | None:
        """A pass with this key, if it holds all that is needed."""
        held, recording = self._passes.get(key, (frozenset(), None))
        return recording if needs <= held else None

    def keep(self, key: Any, needs: set[str], recording: Recording) -> None:
        answer = sum(tensor.nbytes for tensor in recording.output.values())
        if sum(map(trace_bytes, recording.traces)) + answer <= self.limit:
            self._passes[key] = (frozenset(needs), recording)


def trace_bytes(trace: Trace) -> int:
    return sum(
        tensor.nbytes
        for group in vars(trace).values()
        for signal in (group if isinstance(group, tuple) else (group,))
        if isinstance(signal, Signal)
        for tensor in (signal.value, signal.grad)
        if isinstance(tensor, Tensor)
    )
