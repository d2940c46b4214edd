"""Recording: one forward pass, one backward pass for each part of the target, and a Trace. The only autograd."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.batch import Batch
from tokenlight.targets import Choice, Target, repeat_choices
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
        return torch.stack([trace.score for trace in self.traces]).sum(0)


def record(model: PreTrainedModel | Twin, batch: Batch, target: Target, needs: Iterable[str] = ()) -> Recording:
    """Run the model on a batch and keep the signals named in `needs`.

    A need is the name of a signal ("attention") or of a signal with its gradient ("attention.grad").
    Without any gradient among them there is no backward pass.
    """
    needs = frozenset(needs)
    wanted = frozenset(need.removesuffix(".grad") for need in needs)
    if unknown := wanted - set(SIGNALS):
        raise ValueError(f"unknown signals {sorted(unknown)}; there are {', '.join(SIGNALS)}")
    graded = frozenset(need.removesuffix(".grad") for need in needs if need.endswith(".grad"))
    twin = model if isinstance(model, Twin) else Twin(model)
    tape = Tape(keep=wanted, differentiable=bool(graded))
    output = twin.run(batch, tape)
    choices = target.choose(output, batch, twin.model)
    with torch.set_grad_enabled(bool(graded)):
        scores = [choice.score(output) for choice in choices]
    for score in scores:
        check_finite(score)
    gradients = differentiate(scores, {name: tape.signals[name] for name in SIGNALS if name in graded})
    traces = [
        make_trace(batch, score, choice, tape.signals, gradient)
        for score, choice, gradient in zip(scores, choices, gradients, strict=True)
    ]
    answer = {name: part.detach() for name, part in output.items() if isinstance(part, Tensor)}
    return Recording(tuple(traces), choices, answer)


def differentiate(scores: list[Tensor], signals: dict[str, list[Tensor]]) -> list[dict[str, list[Tensor]]]:
    """For each score: the gradient of its sum (texts do not touch each other) for every tensor."""
    tensors = [tensor for group in signals.values() for tensor in group]
    results = []
    for i, score in enumerate(scores):
        if not tensors:
            results.append({})
            continue
        more = i + 1 < len(scores)
        flat = torch.autograd.grad(score.sum(), tensors, retain_graph=more, materialize_grads=True)
        parts = iter(flat)
        results.append({name: [next(parts) for _ in group] for name, group in signals.items()})
    return results


def make_trace(
    batch: Batch, score: Tensor, choice: Choice, signals: dict[str, list[Tensor]], gradients: dict[str, list[Tensor]]
) -> Trace:
    def group(name: str) -> tuple[Signal, ...]:
        values = [tensor.detach() for tensor in signals[name]]
        return tuple(map(Signal, values, gradients.get(name) or [None] * len(values)))

    return Trace(
        batch=batch,
        score=score.detach(),
        row=choice.row,
        embeddings=next(iter(group("embeddings")), None),
        hidden=group("hidden"),
        attention=group("attention"),
        values=group("values"),
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
