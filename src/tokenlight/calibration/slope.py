"""How well a method's scores agree with measured effects, and which way each head's strength should go."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenlight.calibration.effects import Effects
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.jobs import MethodConfig
from tokenlight.explain.passes import plan_passes
from tokenlight.explain.running import run_configs
from tokenlight.masks.head_mask import HeadMask
from tokenlight.methods import Method
from tokenlight.model.habits import behavior_of
from tokenlight.model.twin import InstrumentedModel
from tokenlight.tasks.targets import ResolvedTarget, Target
from tokenlight.text.batches import Batch, length_batches
from tokenlight.text.rows import TokenizedText

TOKENS = 1024  # that run together: a pass with a graph needs several times the memory of a plain one


@dataclass(frozen=True)
class Measured:
    """A tokenized text, what is explained about it, and what was measured."""

    tokenized_text: TokenizedText
    resolved: ResolvedTarget
    effects: Effects

    @property
    def foiled(self) -> bool:
        return self.resolved.foil is not None or self.resolved.foil_span is not None


@dataclass(frozen=True)
class MeasuredBatch:
    """Texts that are explained in one pass."""

    batch: Batch
    target: Target
    effects: tuple[Effects, ...]
    places: tuple[int, ...]  # of its texts among all


def measured_batches(
    explainer: Explainer, instrumented: InstrumentedModel, texts: Sequence[Measured]
) -> list[MeasuredBatch]:
    """Similar lengths together; texts with a foil and those without are kept apart."""
    batches = []
    exact = behavior_of(explainer.inner).equal_lengths
    for foiled in (False, True):
        group = [i for i, text in enumerate(texts) if text.foiled is foiled]
        for inside in length_batches([len(texts[i].tokenized_text) for i in group], TOKENS, exact):
            places = tuple(group[i] for i in inside)
            some = [texts[i] for i in places]
            batch = explainer.collate([text.tokenized_text for text in some], instrumented.device)
            target = Target(explainer.task, tuple(text.resolved for text in some))
            batches.append(MeasuredBatch(batch, target, tuple(text.effects for text in some), places))
    return batches


def agreements(
    instrumented: InstrumentedModel, batches: Sequence[MeasuredBatch], method: Method, strengths: Tensor
) -> Tensor:
    """[text] for strengths [layer, head]."""
    found = torch.cat([agree(instrumented, one, method, strengths) for one in batches])
    return torch.zeros_like(found).index_put((torch.tensor([i for one in batches for i in one.places]),), found)


def agreement_and_slope(
    instrumented: InstrumentedModel, batches: Sequence[MeasuredBatch], method: Method, strengths: Tensor
) -> tuple[float, Tensor]:
    """The texts' mean agreement and its gradient [layer, head]."""
    strengths = strengths.detach().requires_grad_()
    texts = sum(len(one.effects) for one in batches)
    total, slope = 0.0, torch.zeros_like(strengths)
    for one in batches:  # each graph is gone before the next is built
        mean = agree(instrumented, one, method, strengths).sum() / texts
        (part,) = torch.autograd.grad(mean, strengths)
        total, slope = total + mean.item(), slope + part
    return total, slope


def agree(instrumented: InstrumentedModel, one: MeasuredBatch, method: Method, strengths: Tensor) -> Tensor:
    """[text of the batch]; differentiable where the strengths are."""
    dark = torch.zeros_like(strengths)
    method_config = MethodConfig(method, {"heads": HeadMask(dark, dark, calibrated=strengths)})
    _, (found,) = run_configs(
        instrumented, one.batch, plan_passes(one.target, [method_config]), graph=strengths.requires_grad
    )
    rows = zip(found.scores.cpu(), one.effects, strict=True)
    return torch.stack([effects.agreement(scores[: len(effects.values)]) for scores, effects in rows])
