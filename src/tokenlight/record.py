"""Recording: one forward pass, one backward pass for each part of the target, and a Trace. The only autograd."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.batch import Batch
from tokenlight.gates import Gates
from tokenlight.primitives import Ledger
from tokenlight.rules import RuleMode, RuleTable
from tokenlight.targets import Choice, Settled, Target, repeat_choices
from tokenlight.trace import Signal, Trace
from tokenlight.twin import SIGNALS, Tape, Twin


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
) -> Recording:
    """Run the model on a batch and keep the signals named in `needs`.

    A need is the name of a signal ("attention") or of a signal with its gradient ("attention.grad").
    Without any gradient among them there is no backward pass. Under a table of `rules`, value times gradient is
    relevance. `split` gives target and foil traces of their own; `unit` starts from relevance 1, not from the score;
    `double` computes in double precision, whatever the weights' own (for tables whose rules allow it); `gates` say
    which heads relevance flows through. With `graph`, gradients can themselves be differentiated for the gates.
    """
    needs = frozenset(needs)
    wanted = frozenset(need.removesuffix(".grad") for need in needs)
    if unknown := wanted - set(SIGNALS):
        raise ValueError(f"unknown signals {sorted(unknown)}; there are {', '.join(SIGNALS)}")
    graded = frozenset(need.removesuffix(".grad") for need in needs if need.endswith(".grad"))
    twin = model if isinstance(model, Twin) else Twin(model)
    tape = Tape(keep=wanted, differentiable=bool(graded), double=double, gates=gates)
    ledger = Ledger(len(batch.input_ids), exact=split and double)
    output = twin.run(batch, tape, None if rules is None else RuleMode(rules, ledger))
    choices = target.choose(output, batch, twin.model)
    parts = tuple(part for choice in choices for part in choice.split()) if split else choices
    signals = {name: tape.signals[name] for name in SIGNALS if name in graded}
    traces = []
    for i, part in enumerate(parts):
        with torch.set_grad_enabled(bool(graded)):
            score = part.score(output)
        check_finite(score)
        ledger.clear()
        gradients = differentiate(score, signals, unit=unit, last=i + 1 == len(parts), graph=graph)
        traces.append(make_trace(batch, score.detach(), part, tape.signals, gradients, ledger, twin.model))
    answer = {name: part.detach() for name, part in output.items() if isinstance(part, Tensor)}
    return Recording(tuple(traces), choices, answer)


def differentiate(
    score: Tensor, signals: dict[str, list[Tensor]], unit: bool, last: bool, graph: bool
) -> dict[str, list[Tensor]]:
    """The gradient of the summed scores (texts do not touch each other) for every tensor of `signals`."""
    tensors = [tensor for group in signals.values() for tensor in group]
    if not tensors:
        return {}
    # Relevance that starts from 1 is gradient x input divided by the score; an exact 0 has none to give.
    start = torch.where(score == 0, 0.0, 1 / score).detach() if unit else torch.ones_like(score)
    keep = {"retain_graph": graph or not last, "create_graph": graph}
    flat = iter(torch.autograd.grad(score, tensors, start, **keep, materialize_grads=True))
    return {name: [next(flat) for _ in group] for name, group in signals.items()}


def make_trace(
    batch: Batch,
    score: Tensor,
    choice: Choice,
    signals: dict[str, list[Tensor]],
    gradients: dict[str, list[Tensor]],
    ledger: Ledger,
    model: PreTrainedModel,
) -> Trace:
    def group(name: str) -> tuple[Signal, ...]:
        values = [tensor.detach() for tensor in signals[name]]
        return tuple(map(Signal, values, gradients.get(name) or [None] * len(values)))

    return Trace(
        batch=batch,
        score=score,
        row=choice.row,
        sign=choice.sign,
        embeddings=next(iter(group("embeddings")), None),
        hidden=group("hidden"),
        attention=group("attention"),
        values=group("values"),
        context=group("context"),
        gated=group("gated"),
        second_norm=group("second_norm"),
        model=model,
        bias_share=ledger.total("bias"),
        softmax_deficit=ledger.total("softmax"),
        masked_share=ledger.total("heads"),
        branches=torch.stack(ledger.branch[::-1], 1) if ledger.branch else None,
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

    def rows(self, rows: Tensor) -> "Probe":
        """The same question for some rows of the batch, in any order, repeated at will."""
        return Probe(self.twin, self.batch.map(lambda t: t[rows]), repeat_choices(self.choices, rows))

    def score(self, batch: Batch) -> Tensor:
        """[batch] the explained number on another batch of the same shape."""
        return self._total(self.twin.run(batch, Tape())).detach()

    def gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Score [batch] and its gradient [batch, token, dim] where the embeddings are these."""
        tape = Tape(keep=frozenset({"embeddings"}), differentiable=True, embeddings_instead=embeddings)
        output = self.twin.run(self.batch, tape)
        with torch.enable_grad():
            score = self._total(output)
            (gradient,) = torch.autograd.grad(score.sum(), tape.signals["embeddings"])
        return score.detach(), gradient

    def _total(self, output: Any) -> Tensor:
        total = torch.stack([choice.score(output) for choice in self.choices]).sum(0)
        check_finite(total)
        return total
