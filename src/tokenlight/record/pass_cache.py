"""Passes over one text, kept for further questions under other head masks."""

from collections.abc import Set
from dataclasses import dataclass, field, replace

from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import changes_of
from tokenlight.record.pass_spec import Key, PassSpec
from tokenlight.record.recorder import OpenPass, Recording
from tokenlight.record.trace import Signal, Trace
from tokenlight.tasks.selectors import SelectableTarget
from tokenlight.text.batch import Batch


@dataclass
class PassMemory:
    """The passes of the last question, for one thread. Another question or model clears it.

    So does a change of weights that torch counts; weights that were written through `.data` are not seen.
    """

    limit: int = 64 * 2**20  # bytes that one pass may take
    graph_limit: int = 512 * 2**20  # ... and its graph, of which only the latest is kept
    _question: object = None
    _graph: tuple[Key, OpenPass] | None = None
    _passes: dict[Key, tuple[Set[str], Recording]] = field(default_factory=dict)

    def open(self, model: nn.Module, batch: Batch, target: SelectableTarget) -> None:
        """Say what is asked from now on."""
        weights = [(parameter.data_ptr(), changes_of(parameter)) for parameter in model.parameters()]
        rows = {name: tensor.tolist() for name, tensor in batch.inputs().items()}
        question = (weights, rows, target)
        if question != self._question:
            self._passes.clear()
            self._graph, self._question = None, question

    def recall(self, one: PassSpec, model: PreTrainedModel) -> Recording | None:
        """The same pass, if it was kept with all that is needed of it; with a model whose weights can be read."""
        held, recording = self._passes.get(one.key, (frozenset(), None))
        if recording is None or not one.all_needs <= held:
            return None
        return replace(recording, traces=tuple(replace(trace, model=model) for trace in recording.traces))

    def keep(self, one: PassSpec, recording: Recording) -> None:
        answer = sum(tensor.nbytes for tensor in recording.output.values())
        if sum(map(trace_bytes, recording.traces)) + answer <= self.limit:
            self._passes[one.key] = (one.all_needs, recording)

    def recall_graph(self, one: PassSpec) -> OpenPass | None:
        """A pass that differs in its head mask alone, with its graph."""
        key, opened = self._graph or ((), None)
        return opened if key == one.graph_key else None

    def keep_graph(self, one: PassSpec, opened: OpenPass) -> None:
        self._graph = (one.graph_key, opened)


def trace_bytes(trace: Trace) -> int:
    return sum(
        tensor.nbytes
        for group in vars(trace).values()
        for signal in (group if isinstance(group, tuple) else (group,))
        if isinstance(signal, Signal)
        for tensor in (signal.value, signal.grad)
        if isinstance(tensor, Tensor)
    )
