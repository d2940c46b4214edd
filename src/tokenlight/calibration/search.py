"""Adam on head strengths, scored by K-fold cross-validation; its gradient and its checkpoint."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.calibration.effects import Effects
from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.plan import plan_passes
from tokenlight.explain.resolve import make_request
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import Method
from tokenlight.methods.config import MethodConfig
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch, length_batches
from tokenlight.text.tokenized_text import TokenizedText

RATE = 0.08  # approximate change of a strength in a step
BETAS = (0.9, 0.999)  # decay of the means of the gradient and of its square (Adam: Kingma and Ba 2015)
PATIENCE = 8  # steps without gain


@dataclass(frozen=True)
class HeadOptimizer:
    """The state of Adam on head strengths [layer, head] in [0, 1]."""

    trail: Tensor  # [step, layer, head] strengths, including the initial ones
    slope: Tensor  # running mean of the gradient
    square: Tensor  # running mean of its square

    @classmethod
    def start(cls, layers: int, heads: int) -> "HeadOptimizer":
        """All strengths 1, which is the method without a mask."""
        zeros = torch.zeros(layers, heads, dtype=torch.float64)
        return cls(torch.ones_like(zeros)[None], zeros, zeros)

    @property
    def strengths(self) -> Tensor:
        return self.trail[-1]

    def step(self, slope: Tensor) -> "HeadOptimizer":
        """One step of Adam with the gradient [layer, head] at the present strengths."""
        mean = BETAS[0] * self.slope + (1 - BETAS[0]) * slope
        square = BETAS[1] * self.square + (1 - BETAS[1]) * slope**2
        number = len(self.trail)
        corrected = (mean / (1 - BETAS[0] ** number), square / (1 - BETAS[1] ** number))
        strengths = (self.strengths + RATE * corrected[0] / (corrected[1].sqrt() + 1e-12)).clamp(0, 1)
        return HeadOptimizer(torch.cat([self.trail, strengths[None]]), mean, square)


@dataclass(frozen=True)
class Search:
    """An optimizer for each fold of the texts, trained on all other folds, and a last one trained on all texts."""

    climbs: tuple[HeadOptimizer, ...]
    judged: Tensor  # [step, text] agreement with the strengths of the text's fold, which were not trained on it

    @property
    def steps(self) -> int:
        return len(self.judged) - 1

    def up_to(self, steps: int) -> "Search":
        """The state after at most this many steps."""
        climbs = tuple(replace(climb, trail=climb.trail[: steps + 1]) for climb in self.climbs)
        return self if self.steps <= steps else Search(climbs, self.judged[: steps + 1])

    @property
    def stalled(self) -> bool:
        """Whether there was no gain for PATIENCE steps."""
        return self.steps - self.best >= PATIENCE

    @property
    def best(self) -> int:
        """The first step with the highest mean agreement."""
        return best_step(self.judged)

    @property
    def strengths(self) -> Tensor:
        """Strengths trained on all texts, after the number of steps that was best on held-out texts."""
        return self.climbs[-1].trail[self.best]

    def held_out_steps(self, folds: Sequence[Sequence[int]]) -> list[int]:
        """For each fold, the number of steps that is best on the texts of the other folds."""
        kept = [torch.ones(self.judged.shape[1], dtype=torch.bool) for _ in folds]
        for others, fold in zip(kept, folds, strict=True):
            others[list(fold)] = False
        return [best_step(self.judged[:, others]) for others in kept]

    def held_out_strengths(self, folds: Sequence[Sequence[int]]) -> list[Tensor]:
        """Strengths for each fold; its texts affect neither their training nor the number of steps."""
        return [climb.trail[step] for climb, step in zip(self.climbs[:-1], self.held_out_steps(folds), strict=True)]

    def gains(self, folds: Sequence[Sequence[int]]) -> Tensor:
        """[text] gain of agreement with `held_out_strengths`."""
        gains = torch.zeros_like(self.judged[0])
        for fold, step in zip(folds, self.held_out_steps(folds), strict=True):
            gains[list(fold)] = (self.judged[step] - self.judged[0])[list(fold)]
        return gains


def best_step(judged: Tensor) -> int:
    """The first step with the highest mean, of [step, text]."""
    means = judged.mean(1).tolist()
    return max(range(len(means)), key=means.__getitem__)


TOKENS = 1024  # of a batch, which is small because a pass with a graph needs several times the memory


@dataclass(frozen=True)
class Measured:
    """A tokenized text with its target and measured effects."""

    tokenized_text: TokenizedText
    target: ResolvedTarget
    effects: Effects


@dataclass(frozen=True)
class MeasuredBatch:
    """Texts that are explained in one pass."""

    batch: Batch
    target: BatchTarget
    effects: tuple[Effects, ...]
    indices: tuple[int, ...]  # of its texts among all


def measured_batches(
    explainer: Explainer, instrumented: InstrumentedModel, texts: Sequence[Measured]
) -> list[MeasuredBatch]:
    """Batches of texts of similar length whose targets are of one kind."""
    batches = []
    exact = behavior_of(explainer.inner).equal_lengths
    requests = [make_request(explainer.task, text.tokenized_text, text.target, named=True) for text in texts]
    for kind in dict.fromkeys(request.kind for request in requests):
        group = [i for i, request in enumerate(requests) if request.kind == kind]
        for indices in length_batches([len(requests[i].model_input) for i in group], TOKENS, exact):
            text_indices = tuple(group[i] for i in indices)
            batch = explainer.collate([requests[i].model_input for i in text_indices], instrumented.device)
            target = BatchTarget(explainer.task, tuple(requests[i].target for i in text_indices))
            effects = tuple(texts[i].effects for i in text_indices)
            batches.append(MeasuredBatch(batch, target, effects, text_indices))
    return batches


def agreements(
    instrumented: InstrumentedModel, batches: Sequence[MeasuredBatch], method: Method, strengths: Tensor
) -> Tensor:
    """[text] agreement for strengths [layer, head]."""
    values = torch.cat([agree(instrumented, batch, method, strengths) for batch in batches])
    return torch.zeros_like(values).index_put((torch.tensor([i for batch in batches for i in batch.indices]),), values)


def agreement_and_gradient(
    instrumented: InstrumentedModel, batches: Sequence[MeasuredBatch], method: Method, strengths: Tensor
) -> tuple[float, Tensor]:
    """The texts' mean agreement and its gradient [layer, head]."""
    strengths = strengths.detach().requires_grad_()
    texts = sum(len(batch.effects) for batch in batches)
    total, gradient = 0.0, torch.zeros_like(strengths)
    for batch in batches:  # each graph is released before the next is built
        mean = agree(instrumented, batch, method, strengths).sum() / texts
        (batch_gradient,) = torch.autograd.grad(mean, strengths)
        total, gradient = total + mean.item(), gradient + batch_gradient
    return total, gradient


def agree(instrumented: InstrumentedModel, batch: MeasuredBatch, method: Method, strengths: Tensor) -> Tensor:
    """[text of the batch] agreement; differentiable if the strengths are."""
    dark = torch.zeros_like(strengths)
    method_config = MethodConfig(method, {"heads": HeadMask(dark, dark, calibrated=strengths)})
    _, (attribution,) = execute_plan(
        instrumented, batch.batch, plan_passes(batch.target, [method_config]), graph=strengths.requires_grad
    )
    pairs = zip(attribution.scores.cpu(), batch.effects, strict=True)
    return torch.stack([effects.agreement(scores[: len(effects.values)]) for scores, effects in pairs])


FORMAT = "tokenlight.calibration"


@dataclass
class Checkpoint:
    """Effects of the texts measured so far, and the state of the search, for these settings only."""

    path: Path | None  # None: nothing is stored
    settings: Mapping[str, Any]
    effects: list[Effects] = field(default_factory=list)
    search: Search | None = None

    @classmethod
    def open(cls, path: Path | None, settings: Mapping[str, Any], lengths: Sequence[int]) -> "Checkpoint":
        """The checkpoint in the file; refused if it has other settings, or texts of other lengths."""
        if path is None or not path.exists():
            if path is not None and not path.parent.is_dir():
                raise RefusedValue(f"there is no folder {str(path.parent)!r} for the checkpoint {path.name}")
            return cls(path, settings)
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            if plain["format"] != FORMAT:
                raise RefusedValue(f"format {plain['format']!r}")
            before, stored_search = plain["settings"], plain["search"]
            effects = [read_effects(values) for values in plain["effects"]]
            state = None if stored_search is None else read_search(stored_search)
            different = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
            if not different:
                check_complete(effects, state, lengths, settings["folds"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RefusedValue(
                f"{path} is not a calibration's checkpoint ({error}): delete it to start again"
            ) from error
        if different:
            raise RefusedValue(
                f"{path} belongs to a calibration with other {', '.join(different)}: delete it to start again"
            )
        return cls(path, settings, effects, state)

    def add(self, effects: Sequence[Effects]) -> None:
        self.effects += effects
        self._write()

    def set_search(self, search: Search) -> None:
        self.search = search
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            search = None if self.search is None else write_search(self.search)
            effects = [write_effects(effects_of_text) for effects_of_text in self.effects]
            plain = {"format": FORMAT, "settings": self.settings, "effects": effects, "search": search}
            write_atomically(self.path, json.dumps(plain))


def check_complete(effects: Sequence[Effects], search: Search | None, lengths: Sequence[int], folds: int) -> None:
    """Refuse a checkpoint that is incomplete or belongs to other texts."""
    if [len(effects_of_text.values) for effects_of_text in effects] != list(lengths[: len(effects)]):
        raise RefusedValue("its effects are not those of the texts")
    if not all(effects_of_text.values.isfinite().all() for effects_of_text in effects):
        raise RefusedValue("it has numbers that are not finite")
    if search is None:
        return
    if len(effects) < len(lengths):
        raise RefusedValue("it has a search before all texts were measured")
    if search.judged.shape[1:] != (len(lengths),) or not search.judged.isfinite().all():
        raise RefusedValue("its search was not evaluated on the texts")
    trails = [climb.trail for climb in search.climbs if climb.trail.isfinite().all()]
    if [len(trail) for trail in trails] != [len(search.judged)] * (folds + 1):
        raise RefusedValue("its search is incomplete")


def write_search(search: Search) -> dict[str, Any]:
    climbs = [
        {field_.name: getattr(climb, field_.name).tolist() for field_ in fields(climb)} for climb in search.climbs
    ]
    return {"climbs": climbs, "judged": search.judged.tolist()}


def read_search(plain: Mapping[str, Any]) -> Search:
    climbs = [
        HeadOptimizer(**{field_.name: numbers(climb[field_.name]) for field_ in fields(HeadOptimizer)})
        for climb in plain["climbs"]
    ]
    return Search(tuple(climbs), numbers(plain["judged"]))


def numbers(plain: Any) -> Tensor:
    return torch.tensor(plain, dtype=torch.float64)


def write_effects(effects: Effects) -> list[float | None]:
    """A value for each token, None for those that cannot be removed."""
    return [
        value if is_removable else None
        for value, is_removable in zip(effects.values.tolist(), effects.measured, strict=True)
    ]


def read_effects(plain: Sequence[float | None]) -> Effects:
    values = torch.tensor([value or 0.0 for value in plain], dtype=torch.float64)
    return Effects(values, torch.tensor([value is not None for value in plain]))
