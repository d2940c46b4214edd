"""Records a forward pass and a backward pass for each part of the target. All of autograd is here and in blockwise."""

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
from tokenlight.tasks.selectors import OutputSelector, SelectableTarget
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class RecordOptions:
    """How passes save memory."""

    by_block: bool = False  # keep the graph of one block at a time; each block runs again in the backward pass
    last_logits: bool = False  # a causal language model's logits where the next token is read, and nowhere else
    fused: bool | None = None  # attention as one operation, which writes no weights out; None: in passes that allow it

    @property
    def may_fuse(self) -> bool:
        return self.fused is not False

    def cuts(self, one: PassSpec) -> bool:
        """Whether blocks of the pass run again: for gradients, or for those who read block by block."""
        return self.by_block and bool(one.graded or one.in_passing)

    def fuses(self, one: PassSpec) -> bool:
        """Whether attention is one operation, in a model that knows it."""
        return self.may_fuse and one.can_fuse

    def places(self, read: Tensor | None) -> Tensor | None:
        """Of the tokens that are read, [batch] or [batch, step], those whose logits alone are computed.

        Steps are read one after the other, so their logits always stand apart.
        """
        return read if self.last_logits or (read is not None and read.ndim == 2) else None


DEFAULT_RECORD_OPTIONS = RecordOptions()
PLAIN = PassSpec()


@dataclass(frozen=True)
class Answer:
    """What the model said, and what is explained of it."""

    selectors: tuple[OutputSelector, ...]
    output: dict[str, Tensor]
    score: Tensor  # [batch] what is explained


@dataclass(frozen=True)
class Recording:
    """A trace for each part of the target, and the model's answer."""

    traces: tuple[Trace, ...]
    selectors: tuple[OutputSelector, ...]
    output: dict[str, Tensor]
    fused: bool = False  # attention was one operation

    @property
    def answer(self) -> Answer:
        score = torch.stack([trace.sign * trace.score for trace in self.traces]).sum(0)
        return Answer(self.selectors, self.output, score)

    def parts(self) -> "Iterator[Part]":
        """As of a pass that is still open."""
        return (WholePart(trace) for trace in self.traces)


class Part(Protocol):
    """One of the numbers that make up a target, on its way from the output down to the input."""

    trace: Trace  # of a part that is read block by block: what is known before the first block
    blocks: Iterator[Block]  # from the last to the first

    def close(self) -> Trace:
        """What is kept, when the blocks have been read."""
        ...


class WholePart:
    """A part whose signals are all there."""

    trace: Trace
    blocks: Iterator[Block]

    def __init__(self, trace: Trace):
        self.trace, self.blocks = trace, trace.blocks_downwards()

    def close(self) -> Trace:
        return self.trace


class CutPart:
    """A part that is differentiated as its blocks are read; of each, only what somebody needs later is kept."""

    trace: Trace
    blocks: Iterator[Block]

    def __init__(self, trace: Trace, blockwise: Blockwise, score: Tensor, start: Tensor, last: bool):
        self.trace, self._blockwise = trace, blockwise
        self.blocks = blockwise.differentiate(score, start, last)

    def close(self) -> Trace:
        if self._blockwise.kept:
            for _ in self.blocks:
                pass
        return self.trace.with_signals(self._blockwise.found, self.trace.ledger.copy())


class OpenPass:
    """A forward pass; from each part of its target, a backward pass can follow. One that is `repeatable` keeps its
    graph for further backward passes."""

    selectors: tuple[OutputSelector, ...]
    output: dict[str, Tensor]
    fused: bool  # attention was one operation

    def __init__(
        self,
        instrumented: InstrumentedModel,
        batch: Batch,
        target: SelectableTarget,
        one: PassSpec = PLAIN,
        *,
        graph: bool = False,
        record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
        repeatable: bool = False,
        rows: QueryWeights | None = None,  # of other passes over the batch, which agree on them
    ):
        if unknown := one.signals - set(SIGNALS):
            raise RefusedValue(f"unknown signals {sorted(unknown)}; there are {', '.join(SIGNALS)}")
        self._twin, self._batch, self._plan, self._graph, self._repeatable = instrumented, batch, one, graph, repeatable
        cut = record_options.cuts(one)
        if cut and graph:
            raise RefusedValue("gradients that can be differentiated need the whole graph: leave low_memory off")
        shows_rows = one.reads_query_position and one.rules is None  # rules bend the gradient that tells them
        spec = CaptureSpec(
            keep=one.signals & {"embeddings"} if cut else one.signals,
            differentiable=bool(one.graded) or shows_rows,
            head_only=shows_rows and not one.graded,
            double=one.double,
            gates=one.gates and GateApplier(one.gates),
            fused=record_options.fuses(one) and not graph,  # it has no second derivative
            by_block=cut,
            last_block=one.last_block and not cut and instrumented.layout.container is None,
        )
        self._capture = Capture(spec)
        self._ledger = Ledger(len(batch.input_ids), exact=one.split and one.double)
        # Down to the embeddings, the backward pass comes by every constant, and can say in the end what it met there.
        pending_shares: PendingShares | None = [] if "embeddings" in one.graded and not cut else None
        self._mode = None
        rules = one.rules
        if rules is not None:
            # Only rules for matrix products ask which buffers are weights.
            kept = saved_buffers(instrumented.model) if weight_product in rules else ()
            buffers = {storage_of(x) for x in kept if x.ndim > 1 and x.dtype != torch.bool}
            self._mode = RuleMode(rules, self._ledger, pending_shares, only_our_leaves=True, buffers=buffers)
        if "projected" in one.signals:
            capture_gated_projections(instrumented)
        read_at = record_options.places(target.reads_at(batch))
        self._answer = instrumented.run(batch, self._capture, self._mode, read_at=read_at)
        self.fused = check_fused(instrumented, self._capture, record_options)
        self.output = {name: part.detach() for name, part in self._answer.items() if isinstance(part, Tensor)}
        self.selectors = target.select(self._answer, batch, instrumented.model)
        self._rows = QueryWeights() if rows is None else rows
        if one.reads_query_position:
            shown = (self._answer, self._capture.last_output) if shows_rows else ()
            self._rows.find(instrumented, batch, self._parts, one.split, *shown)

    def again(self, instrumented: InstrumentedModel, one: PassSpec) -> "OpenPass":
        """The same for another pass with this graph, through other heads perhaps; `instrumented` has weights to be
        read."""
        self._twin, self._plan = instrumented, one
        if one.gates is not None and self._capture.spec.gates is not None:
            self._capture.spec.gates.gates = one.gates
        return self

    @property
    def _parts(self) -> tuple[OutputSelector, ...]:
        if not self._plan.split:
            return self.selectors
        return tuple(part for selector in self.selectors for part in selector.split())

    def parts(self) -> Iterator[Part]:
        """Each must be closed before the next."""
        one, capture, parts = self._plan, self._capture, self._parts
        pending_shares = None if self._mode is None else self._mode.pending_shares
        for i, part in enumerate(parts):
            report_backward_pass()
            with torch.set_grad_enabled(bool(one.graded)):
                score = part.score(self._answer)
            check_finite(score)
            if one.graded:
                check_differentiable(score)
            self._ledger.clear()
            # Relevance that starts from 1 is gradient x input divided by the score; an exact 0 has none to give.
            start = torch.where(score == 0, 0.0, 1 / score).detach() if one.unit else torch.ones_like(score)
            last = i + 1 == len(parts) and not self._repeatable
            row = self._rows.of(i, one.split) if one.reads_query_position else None
            first = len(capture.blocks) - 1 if capture.spec.last_block else 0
            trace = Trace(part.seen(self._batch), score.detach(), row, part.sign, self._twin.model, self._ledger, first)
            if capture.spec.by_block:
                blockwise = Blockwise(self._twin, capture, one.signals, one.graded, one.kept, self._mode)
                yield CutPart(trace, blockwise, score, start, last)
            else:
                with refusing_instrumentation_errors(self._twin.model):
                    signals = differentiate(score, start, capture, one.graded, last, self._graph, pending_shares)
                yield WholePart(trace.with_signals(signals, self._ledger.copy()))


def record(
    model: PreTrainedModel | InstrumentedModel,
    batch: Batch,
    target: SelectableTarget,
    one: PassSpec = PLAIN,
    *,
    graph: bool = False,
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
    rows: QueryWeights | None = None,
) -> Recording:
    """Run the model on a batch as the pass says, and keep the signals that it needs.

    With `graph`, gradients can themselves be differentiated for the gates. `record_options` says how memory is saved;
    the
    results are the same.
    """
    instrumented = model if isinstance(model, InstrumentedModel) else InstrumentedModel(model)
    opened = OpenPass(instrumented, batch, target, one, graph=graph, record_options=record_options, rows=rows)
    return Recording(tuple(part.close() for part in opened.parts()), opened.selectors, opened.output, opened.fused)


def differentiate(
    score: Tensor,
    start: Tensor,
    capture: Capture,
    graded: frozenset[str],
    last: bool,
    graph: bool,
    pending_shares: PendingShares | None = None,
) -> SignalGroups:
    """The signals, with the gradient of the summed scores (texts do not touch each other) where it is wanted.

    Constants that wait take their shares of it, in the order of the backward pass.
    """
    tensors = flat(capture.signals, graded)
    if not tensors:
        return with_gradients(capture.signals, graded, ())
    pending_shares = (pending_shares or [])[::-1]
    places = [*tensors, *(edge for edge, _ in pending_shares)]
    keep = {"retain_graph": graph or not last, "create_graph": graph}
    found = torch.autograd.grad(score, places, start, **keep, allow_unused=True)
    for (_, share), grad in zip(pending_shares, found[len(tensors) :], strict=True):
        if grad is not None:
            share.take(grad)
    gradients = [torch.zeros_like(x) if grad is None else grad for x, grad in zip(tensors, found, strict=False)]
    return with_gradients(capture.signals, graded, gradients)


def check_fused(instrumented: InstrumentedModel, capture: Capture, record_options: RecordOptions) -> bool:
    """Whether attention was one operation in a run with this capture; an error where that was asked for and was not."""
    fused = instrumented.fuses(capture)
    if record_options.fused and not fused:
        raise UnsupportedModelError(f"{type(instrumented.model).__name__} has no fused attention: leave fused=True out")
    return fused


def check_differentiable(score: Tensor) -> None:
    if not score.requires_grad:
        raise UnsupportedModelError(
            "the explained number has no gradient: the model's last layers or the target function call detach() or "
            "torch.no_grad(), or the rule table passes nothing on there. Choose a method that needs no gradient, such "
            "as erasure or rollout"
        )


def check_finite(score: Tensor) -> None:
    if not torch.isfinite(score).all():
        raise RefusedValue(
            f"the model's output is not finite ({score.tolist()}): its weights or its precision are at fault"
        )
