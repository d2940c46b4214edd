"""Recording: one forward pass, one backward pass for each part of the target, and a Trace. The only autograd."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.model.tape import SIGNALS, Tape
from tokenlight.model.twin import Twin
from tokenlight.record.blockwise import Blockwise
from tokenlight.record.choices import Asked, Choice
from tokenlight.record.planned_pass import PlannedPass
from tokenlight.record.rows import with_rows
from tokenlight.record.trace import SignalGroups, Trace, flat, with_gradients
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.primitives import Ledger
from tokenlight.text.batches import Batch


@dataclass(frozen=True)
class Saving:
    """How passes save memory."""

    by_block: bool = False  # keep the graph of one block at a time; each block runs again in the backward pass
    last_logits: bool = False  # a causal language model's logits where the next token is read, and nowhere else
    fused: bool | None = None  # attention as one operation, which writes no weights out; None: in passes that allow it

    @property
    def may_fuse(self) -> bool:
        return self.fused is not False


NO_SAVING = Saving()
PLAIN = PlannedPass()


@dataclass(frozen=True)
class Recording:
    """A trace for each part of the target, and the model's answer."""

    traces: tuple[Trace, ...]
    choices: tuple[Choice, ...]
    output: dict[str, Tensor]
    fused: bool = False  # attention was one operation

    @property
    def score(self) -> Tensor:
        """[batch] what is explained."""
        return torch.stack([trace.sign * trace.score for trace in self.traces]).sum(0)


def record(
    model: PreTrainedModel | Twin,
    batch: Batch,
    target: Asked,
    one: PlannedPass = PLAIN,
    *,
    graph: bool = False,
    saving: Saving = NO_SAVING,
) -> Recording:
    """Run the model on a batch as the pass says, and keep the signals that it needs.

    With `graph`, gradients can themselves be differentiated for the gates. `saving` says how memory is saved; the
    results are the same.
    """
    wanted, graded = one.signals, one.graded
    if unknown := wanted - set(SIGNALS):
        raise ValueError(f"unknown signals {sorted(unknown)}; there are {', '.join(SIGNALS)}")
    twin = model if isinstance(model, Twin) else Twin(model)
    cut = saving.by_block and bool(graded)
    if cut and graph:
        raise ValueError("gradients that can be differentiated need the whole graph: leave low_memory off")
    tape = Tape(
        keep=wanted & {"embeddings"} if cut else wanted,
        differentiable=bool(graded),
        double=one.double,
        gates=one.gates,
        fused=saving.may_fuse and one.can_fuse and not graph,  # it has no second derivative
        cut=cut,
    )
    ledger = Ledger(len(batch.input_ids), exact=one.split and one.double)
    mode = None if one.rules is None else RuleMode(one.rules, ledger)
    output = twin.run(batch, tape, mode, read_at=target.reads_at(batch) if saving.last_logits else None)
    if saving.fused and not twin.fuses(tape):
        raise UnsupportedModelError(f"{type(twin.model).__name__} has no fused attention: leave fused=True away")
    choices = target.choose(output, batch, twin.model)
    if one.reads_row:
        choices = with_rows(choices, twin, batch)
    parts = tuple(part for choice in choices for part in choice.split()) if one.split else choices
    traces = []
    for i, part in enumerate(parts):
        with torch.set_grad_enabled(bool(graded)):
            score = part.score(output)
        check_finite(score)
        ledger.clear()
        # Relevance that starts from 1 is gradient x input divided by the score; an exact 0 has none to give.
        start = torch.where(score == 0, 0.0, 1 / score).detach() if one.unit else torch.ones_like(score)
        last = i + 1 == len(parts)
        if cut:
            signals = Blockwise(twin, tape, wanted, graded, mode).differentiate(score, start, last)
        else:
            signals = differentiate(score, start, tape, graded, last, graph)
        part = part if one.reads_row else replace(part, row=None)
        traces.append(make_trace(batch, score.detach(), part, signals, ledger, twin.model))
    answer = {name: part.detach() for name, part in output.items() if isinstance(part, Tensor)}
    return Recording(tuple(traces), choices, answer, twin.fuses(tape))


def differentiate(
    score: Tensor, start: Tensor, tape: Tape, graded: frozenset[str], last: bool, graph: bool
) -> SignalGroups:
    """The signals, with the gradient of the summed scores (texts do not touch each other) where it is wanted."""
    tensors = flat(tape.signals, graded)
    gradients: tuple[Tensor, ...] = ()
    if tensors:
        keep = {"retain_graph": graph or not last, "create_graph": graph}
        gradients = torch.autograd.grad(score, tensors, start, **keep, materialize_grads=True)
    return with_gradients(tape.signals, graded, gradients)


def make_trace(
    batch: Batch, score: Tensor, choice: Choice, signals: SignalGroups, ledger: Ledger, model: PreTrainedModel
) -> Trace:
    # Blocks may run on devices of their own (device_map); methods find everything on one.
    device = batch.input_ids.device
    signals = {name: tuple(signal.to(device) for signal in group) for name, group in signals.items()}
    branches = [entry.to(device) for entry in reversed(ledger.branch)]
    shares = (ledger.total(account) for account in ("bias", "softmax", "heads"))
    bias, softmax, heads = (share.to(device) if isinstance(share, Tensor) else share for share in shares)
    return Trace(
        batch=batch,
        score=score,
        row_read=choice.row,
        sign=choice.sign,
        embeddings=next(iter(signals["embeddings"]), None),
        hidden=signals["hidden"],
        attention=signals["attention"],
        values=signals["values"],
        context=signals["context"],
        gated=signals["gated"],
        second_norm=signals["second_norm"],
        model=model,
        bias_share=bias,
        softmax_deficit=softmax,
        masked_share=heads,
        branches=torch.stack(branches, 1) if branches else None,
    )


def check_finite(score: Tensor) -> None:
    if not torch.isfinite(score).all():
        raise ValueError(
            f"the model's output is not finite ({score.tolist()}): its weights or its precision are at fault"
        )
