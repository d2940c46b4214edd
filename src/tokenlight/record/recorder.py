"""Records a forward pass, and a backward pass for each part of the target. Uses autograd, as does blockwise."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import saved_buffers, storage_of
from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.common.progress import report_backward_pass
from tokenlight.model.block_structure_discovery import capture_gated_projections
from tokenlight.model.capture import SIGNALS, Capture, CaptureSpec
from tokenlight.model.instrumented import InstrumentedModel, refusing_instrumentation_errors
from tokenlight.record.blockwise import Blockwise
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.query_positions import QueryWeights
from tokenlight.record.trace import Block, SignalGroups, Trace, flat, with_gradients
from tokenlight.rules.custom_ops import weight_product
from tokenlight.rules.head_gates import GateApplier
from tokenlight.rules.ledger import Ledger, PendingShares
from tokenlight.rules.mode import RuleMode
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class RecordOptions:
    """How passes save memory."""

    by_block: bool = False  # keep the graph of one block at a time; each block runs again in the backward pass
    last_logits: bool = False  # compute a causal language model's logits only where the next token is read
    fused: bool | None = None  # attention as one operation, without weights; None: in passes that allow it

    @property
    def may_fuse(self) -> bool:
        return self.fused is not False

    def cuts(self, spec: PassSpec) -> bool:
        """Whether the blocks of a pass run again, for gradients or for methods that read block by block."""
        return self.by_block and bool(spec.graded or spec.in_passing)

    def fuses(self, spec: PassSpec) -> bool:
        """Whether attention is one operation, if the model supports it."""
        return self.may_fuse and spec.can_fuse

    def logit_positions(self, read_at: Tensor | None) -> Tensor | None:
        """The positions, [batch] or [batch, step], whose logits alone are computed; None: those of all tokens.

        The logits of the steps of an answer are always computed separately.
        """
        return read_at if self.last_logits or (read_at is not None and read_at.ndim == 2) else None


DEFAULT_RECORD_OPTIONS = RecordOptions()
PLAIN = PassSpec()


@dataclass(frozen=True)
class PassOutput:
    """The model's output, and what is explained of it."""

    selectors: tuple[OutputSelector, ...]
    output: dict[str, Tensor]
    score: Tensor  # [batch] the explained score


@dataclass(frozen=True)
class Recording:
    """A trace for each part of the target, and the model's output."""

    traces: tuple[Trace, ...]
    selectors: tuple[OutputSelector, ...]
    output: dict[str, Tensor]
    fused: bool = False  # attention was one operation

    @property
    def pass_output(self) -> PassOutput:
        score = torch.stack([trace.sign * trace.score for trace in self.traces]).sum(0)
        return PassOutput(self.selectors, self.output, score)

    def parts(self) -> "Iterator[Part]":
        """The same parts as those of an open pass."""
        return (RecordedPart(trace) for trace in self.traces)


class Part(Protocol):
    """The backward pass of one part of a target, from the last block to the first."""

    trace: Trace  # if read block by block: what is known before the last block
    blocks: Iterator[Block]  # from the last to the first

    def close(self) -> Trace:
        """The trace with all kept signals, after the blocks have been read."""
        ...


class RecordedPart:
    """A part whose signals are all in memory."""

    trace: Trace
    blocks: Iterator[Block]

    def __init__(self, trace: Trace):
        self.trace, self.blocks = trace, trace.blocks_downwards()

    def close(self) -> Trace:
        return self.trace


class BlockwisePart:
    """A part that is differentiated while its blocks are read; only signals that are needed later are kept."""

    trace: Trace
    blocks: Iterator[Block]

    def __init__(self, trace: Trace, blockwise: Blockwise, score: Tensor, start: Tensor, last: bool):
        self.trace, self._blockwise = trace, blockwise
        self.blocks = blockwise.differentiate(score, start, last)

    def close(self) -> Trace:
        if self._blockwise.kept:
            for _ in self.blocks:
                pass
        return self.trace.with_signals(self._blockwise.kept_signals, self.trace.ledger.copy())


class OpenPass:
    """A forward pass, from which the parts of the target are differentiated.

    If `repeatable`, it keeps its graph for further backward passes.
    """

    selectors: tuple[OutputSelector, ...]
    output: dict[str, Tensor]
    fused: bool  # attention was one operation

    def __init__(
        self,
        instrumented: InstrumentedModel,
        batch: Batch,
        target: BatchTarget,
        spec: PassSpec = PLAIN,
        *,
        graph: bool = False,
        record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
        repeatable: bool = False,
        query_weights: QueryWeights | None = None,  # shared by all passes over the batch
    ):
        if unknown := spec.signals - set(SIGNALS):
            raise RefusedValue(f"unknown signals {sorted(unknown)}; there are {', '.join(SIGNALS)}")
        self._instrumented, self._batch, self._spec = instrumented, batch, spec
        self._graph, self._repeatable = graph, repeatable
        by_block = record_options.cuts(spec)
        if by_block and graph:
            raise RefusedValue("gradients that can be differentiated need the whole graph: leave low_memory off")
        # Rules modify the gradient that determines query positions.
        finds_query_positions = spec.reads_query_position and spec.rules is None
        capture_spec = CaptureSpec(
            keep=spec.signals & {"embeddings"} if by_block else spec.signals,
            differentiable=bool(spec.graded) or finds_query_positions,
            head_only=finds_query_positions and not spec.graded,
            double=spec.double,
            gates=spec.gates and GateApplier(spec.gates),
            fused=record_options.fuses(spec) and not graph,  # fused attention has no second derivative
            by_block=by_block,
            last_block=spec.last_block and not by_block and instrumented.layout.container is None,
        )
        self._capture = Capture(capture_spec)
        self._ledger = Ledger(len(batch.input_ids), exact=spec.split and spec.double)
        # A backward pass down to the embeddings gives the gradients at all constants, so their shares can be computed
        # afterwards.
        pending_shares: PendingShares | None = [] if "embeddings" in spec.graded and not by_block else None
        self._mode = None
        rules = spec.rules
        if rules is not None:
            # Only rules for matrix products need to know which buffers are weights.
            weight_buffers = saved_buffers(instrumented.model) if weight_product in rules else ()
            buffers = {storage_of(x) for x in weight_buffers if x.ndim > 1 and x.dtype != torch.bool}
            self._mode = RuleMode(rules, self._ledger, pending_shares, only_our_leaves=True, buffers=buffers)
        if "projected" in spec.signals:
            capture_gated_projections(instrumented)
        read_at = record_options.logit_positions(target.read_positions(batch))
        self._output = instrumented.run(batch, self._capture, self._mode, read_at=read_at)
        self.fused = check_fused(instrumented, self._capture, record_options)
        self.output = {name: value.detach() for name, value in self._output.items() if isinstance(value, Tensor)}
        self.selectors = target.select(self._output, batch, instrumented.model)
        self._query_weights = QueryWeights() if query_weights is None else query_weights
        if spec.reads_query_position:
            head_results = (self._output, self._capture.last_output) if finds_query_positions else ()
            self._query_weights.find(instrumented, batch, self._parts, spec.split, *head_results)

    def again(self, instrumented: InstrumentedModel, spec: PassSpec) -> "OpenPass":
        """Reuse the graph for a pass with other head gates; traces refer to the weights of `instrumented`."""
        self._instrumented, self._spec = instrumented, spec
        if spec.gates is not None and self._capture.spec.gates is not None:
            self._capture.spec.gates.gates = spec.gates
        return self

    @property
    def _parts(self) -> tuple[OutputSelector, ...]:
        if not self._spec.split:
            return self.selectors
        return tuple(part for selector in self.selectors for part in selector.split())

    def parts(self) -> Iterator[Part]:
        """Yield the parts; each must be closed before the next."""
        spec, capture, parts = self._spec, self._capture, self._parts
        pending_shares = None if self._mode is None else self._mode.pending_shares
        for i, part in enumerate(parts):
            report_backward_pass()
            with torch.set_grad_enabled(bool(spec.graded)):
                score = part.score(self._output)
            check_finite(score)
            if spec.graded:
                check_differentiable(score)
            self._ledger.clear()
            # Relevance that starts from 1 is gradient x input divided by the score; for a score of 0, it is 0.
            start = torch.where(score == 0, 0.0, 1 / score).detach() if spec.unit else torch.ones_like(score)
            last = i + 1 == len(parts) and not self._repeatable
            query_weights = self._query_weights.of(i, spec.split) if spec.reads_query_position else None
            first_block = len(capture.blocks) - 1 if capture.spec.last_block else 0
            model = self._instrumented.model
            trace = Trace(
                part.mask_later_tokens(self._batch),
                score.detach(),
                query_weights,
                part.sign,
                model,
                self._ledger,
                first_block,
            )
            if capture.spec.by_block:
                blockwise = Blockwise(self._instrumented, capture, spec.signals, spec.graded, spec.kept, self._mode)
                yield BlockwisePart(trace, blockwise, score, start, last)
            else:
                with refusing_instrumentation_errors(self._instrumented.model):
                    signals = differentiate(score, start, capture, spec.graded, last, self._graph, pending_shares)
                yield RecordedPart(trace.with_signals(signals, self._ledger.copy()))


def record(
    model: PreTrainedModel | InstrumentedModel,
    batch: Batch,
    target: BatchTarget,
    spec: PassSpec = PLAIN,
    *,
    graph: bool = False,
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
    query_weights: QueryWeights | None = None,
) -> Recording:
    """Run the model on a batch, and keep the signals that the pass needs.

    With `graph`, gradients can be differentiated again with respect to head gates. `record_options` save memory; they
    do not change the results.
    """
    instrumented = model if isinstance(model, InstrumentedModel) else InstrumentedModel(model)
    open_pass = OpenPass(
        instrumented, batch, target, spec, graph=graph, record_options=record_options, query_weights=query_weights
    )
    traces = tuple(part.close() for part in open_pass.parts())
    return Recording(traces, open_pass.selectors, open_pass.output, open_pass.fused)


def differentiate(
    score: Tensor,
    start: Tensor,
    capture: Capture,
    graded: frozenset[str],
    last: bool,
    graph: bool,
    pending_shares: PendingShares | None = None,
) -> SignalGroups:
    """The signals, those in `graded` with the gradient of the summed scores (texts are independent of each other).

    Pending shares of constants are entered into the ledger, in the order of the backward pass.
    """
    tensors = flat(capture.signals, graded)
    if not tensors:
        return with_gradients(capture.signals, graded, ())
    pending_shares = (pending_shares or [])[::-1]
    outputs = [*tensors, *(edge for edge, _ in pending_shares)]
    keep = {"retain_graph": graph or not last, "create_graph": graph}
    grads = torch.autograd.grad(score, outputs, start, **keep, allow_unused=True)
    for (_, share), grad in zip(pending_shares, grads[len(tensors) :], strict=True):
        if grad is not None:
            share.take(grad)
    gradients = [torch.zeros_like(x) if grad is None else grad for x, grad in zip(tensors, grads, strict=False)]
    return with_gradients(capture.signals, graded, gradients)


def check_fused(instrumented: InstrumentedModel, capture: Capture, record_options: RecordOptions) -> bool:
    """Whether attention was one operation in a run with this capture; an error if fused=True and it was not."""
    fused = instrumented.fuses(capture)
    if record_options.fused and not fused:
        raise UnsupportedModelError(f"{type(instrumented.model).__name__} has no fused attention: leave fused=True out")
    return fused


def check_differentiable(score: Tensor) -> None:
    if not score.requires_grad:
        raise UnsupportedModelError(
            "the explained score has no gradient: the model's last layers or the target function call detach() or "
            "torch.no_grad(), or the rule table passes no relevance there. Choose a method without gradients, such "
            "as erasure or rollout"
        )


def check_finite(score: Tensor) -> None:
    if not torch.isfinite(score).all():
        raise RefusedValue(
            f"the model's output is not finite ({score.tolist()}): check its weights, or use a higher precision"
        )
