"""Recording: one forward pass, one backward pass for each part of the target, and a Trace. The only autograd."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.batch import Batch
from tokenlight.blockwise import Blockwise
from tokenlight.gates import Gates
from tokenlight.primitives import Ledger
from tokenlight.rules import RuleMode, RuleTable
from tokenlight.tape import SIGNALS, Tape
from tokenlight.targets import Choice, Settled, Target, repeat_choices
from tokenlight.trace import SignalGroups, Trace, flat, with_gradients
from tokenlight.twin import Twin


@dataclass(frozen=True)
class Saving:
    """How passes save memory."""

    by_block: bool = False  # keep the graph of one block at a time; each block runs again in the backward pass
    last_logits: bool = False  # a causal language model's logits where the next token is read, and nowhere else


NO_SAVING = Saving()


@dataclass(frozen=True)
class Recording:
    """A trace for each part of the target, and the model's answer."""

    traces: tuple[Trace, ...]
    choices: tuple[Choice, ...]
    output: dict[str, Tensor]

    @property
    def score(self) -> Tensor:
        """[batch] what is explained."""
        return torch.stack([trace.sign * trace.score for trace in self.traces]).sum(0)


def record(
    model: PreTrainedModel | Twin,
    batch: Batch,
    target: Target | Settled,
    needs: Iterable[str] = (),
    *,
    rules: RuleTable | None = None,
    gates: Gates | None = None,
    split: bool = False,
    unit: bool = False,
    double: bool = False,
    graph: bool = False,
    saving: Saving = NO_SAVING,
) -> Recording:
    """Run the model on a batch and keep the signals named in `needs`.

    A need is the name of a signal ("attention") or of a signal with its gradient ("attention.grad").
    Without any gradient among them there is no backward pass. Under a table of `rules`, value times gradient is
    relevance. `split` gives target and foil traces of their own; `unit` starts from relevance 1, not from the score;
    `double` computes in double precision, whatever the weights' own (for tables whose rules allow it); `gates` say
    which heads relevance flows through. With `graph`, gradients can themselves be differentiated for the gates.
    `saving` says how memory is saved; the results are the same.
    """
    needs = frozenset(needs)
    wanted = frozenset(need.removesuffix(".grad") for need in needs)
    if unknown := wanted - set(SIGNALS):
        raise ValueError(f"unknown signals {sorted(unknown)}; there are {', '.join(SIGNALS)}")
    graded = frozenset(need.removesuffix(".grad") for need in needs if need.endswith(".grad"))
    twin = model if isinstance(model, Twin) else Twin(model)
    cut = saving.by_block and bool(graded)
    if cut and graph:
        raise ValueError("gradients that can be differentiated need the whole graph: leave low_memory off")
    tape = Tape(
        keep=wanted & {"embeddings"} if cut else wanted,
        differentiable=bool(graded),
        double=double,
        gates=gates,
        cut=cut,
    )
    ledger = Ledger(len(batch.input_ids), exact=split and double)
    mode = None if rules is None else RuleMode(rules, ledger)
    output = twin.run(batch, tape, mode, read_at=target.reads_at(batch) if saving.last_logits else None)
    choices = target.choose(output, batch, twin.model)
    parts = tuple(part for choice in choices for part in choice.split()) if split else choices
    traces = []
    for i, part in enumerate(parts):
        with torch.set_grad_enabled(bool(graded)):
            score = part.score(output)
        check_finite(score)
        ledger.clear()
        # Relevance that starts from 1 is gradient x input divided by the score; an exact 0 has none to give.
        start = torch.where(score == 0, 0.0, 1 / score).detach() if unit else torch.ones_like(score)
        last = i + 1 == len(parts)
        if cut:
            signals = Blockwise(twin, tape, wanted, graded, mode).differentiate(score, start, last)
        else:
            signals = differentiate(score, start, tape, graded, last, graph)
        traces.append(make_trace(batch, score.detach(), part, signals, ledger, twin.model))
    answer = {name: part.detach() for name, part in output.items() if isinstance(part, Tensor)}
    return Recording(tuple(traces), choices, answer)


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
        row=choice.row,
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


@dataclass(frozen=True)
class Probe:
    """What methods that ask the model again may ask: the same target, on changed inputs."""

    twin: Twin
    batch: Batch
    choices: tuple[Choice, ...]
    saving: Saving = NO_SAVING
    at_once: int | None = None  # texts that may run together; None: all

    def rows(self, rows: Tensor) -> "Probe":
        """The same question for some rows of the batch, in any order, repeated at will."""
        return replace(self, batch=self.batch.map(lambda t: t[rows]), choices=repeat_choices(self.choices, rows))

    def score(self, batch: Batch) -> Tensor:
        """[batch] the explained number on another batch of the same shape."""
        return torch.cat([part._score() for part, _ in replace(self, batch=batch)._parts()])

    def gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Score [batch] and its gradient [batch, token, dim] where the embeddings are these."""
        found = [part._gradient(embeddings[rows]) for part, rows in self._parts()]
        return torch.cat([score for score, _ in found]), torch.cat([gradient for _, gradient in found])

    def _parts(self) -> "Iterator[tuple[Probe, slice | Tensor]]":
        """The question in parts that may run together, and the rows of each."""
        count = len(self.batch.input_ids)
        if self.at_once is None or count <= self.at_once:
            yield self, slice(None)
            return
        for rows in torch.arange(count, device=self.batch.input_ids.device).split(self.at_once):
            yield self.rows(rows), rows

    def _score(self) -> Tensor:
        return self._total(self.twin.run(self.batch, Tape(), read_at=self._read_at)).detach()

    def _gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        cut, only = self.saving.by_block, frozenset({"embeddings"})
        tape = Tape(keep=only, differentiable=True, embeddings_instead=embeddings, cut=cut)
        output = self.twin.run(self.batch, tape, read_at=self._read_at)
        with torch.enable_grad():
            score = self._total(output)
            start = torch.ones_like(score)
            if cut:
                signals = Blockwise(self.twin, tape, only, only, None).differentiate(score, start, last=True)
            else:
                signals = differentiate(score, start, tape, only, last=True, graph=False)
        (found,) = signals["embeddings"]
        assert found.grad is not None
        return score.detach(), found.grad

    @property
    def _read_at(self) -> Tensor | None:
        return Settled(self.choices).reads_at(self.batch) if self.saving.last_logits else None

    def _total(self, output: Any) -> Tensor:
        total = torch.stack([choice.score(output) for choice in self.choices]).sum(0)
        check_finite(total)
        return total
