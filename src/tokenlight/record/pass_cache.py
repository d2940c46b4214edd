"""A cache of the passes over one text, for requests that differ only in method or head mask."""

from collections.abc import Set
from dataclasses import dataclass, field, replace

from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import changes_of
from tokenlight.record.pass_spec import Key, PassSpec
from tokenlight.record.recorder import OpenPass, Recording
from tokenlight.record.trace import Signal, Trace
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch


@dataclass
class PassCache:
    """The passes of the last request, for one thread. A different request or model clears it.

    So does a change of weights that increments torch's version counter; writing through `.data` is not noticed.
    """

    limit: int = 64 * 2**20  # bytes that a pass may use
    graph_limit: int = 512 * 2**20  # ... and its graph; only the latest graph is kept
    _request: object = None
    _graph: tuple[Key, OpenPass] | None = None
    _passes: dict[Key, tuple[Set[str], Recording]] = field(default_factory=dict)

    def open(self, model: nn.Module, batch: Batch, target: BatchTarget) -> None:
        """Start a request; if it differs from the last one, the cache is cleared."""
        weights = [(parameter.data_ptr(), changes_of(parameter)) for parameter in model.parameters()]
        inputs = {name: tensor.tolist() for name, tensor in batch.inputs().items()}
        request = (weights, inputs, target)
        if request != self._request:
            self._passes.clear()
            self._graph, self._request = None, request

    def find(self, spec: PassSpec, model: PreTrainedModel) -> Recording | None:
        """The recording of a pass, if it was kept with all needed signals; its traces refer to `model`."""
        kept_needs, recording = self._passes.get(spec.key, (frozenset(), None))
        if recording is None or not spec.all_needs <= kept_needs:
            return None
        return replace(recording, traces=tuple(replace(trace, model=model) for trace in recording.traces))

    def keep(self, spec: PassSpec, recording: Recording) -> None:
        output_bytes = sum(tensor.nbytes for tensor in recording.output.values())
        if sum(map(trace_bytes, recording.traces)) + output_bytes <= self.limit:
            self._passes[spec.key] = (spec.all_needs, recording)

    def find_graph(self, spec: PassSpec) -> OpenPass | None:
        """The open pass that differs from this one at most in its head gates, with its graph; or None."""
        key, open_pass = self._graph or ((), None)
        return open_pass if key == spec.graph_key else None

    def keep_graph(self, spec: PassSpec, open_pass: OpenPass) -> None:
        self._graph = (spec.graph_key, open_pass)


def trace_bytes(trace: Trace) -> int:
    return sum(
        tensor.nbytes
        for group in vars(trace).values()
        for signal in (group if isinstance(group, tuple) else (group,))
        if isinstance(signal, Signal)
        for tensor in (signal.value, signal.grad)
        if isinstance(tensor, Tensor)
    )
