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
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.plan import plan_passes
from tokenlight.explain.running import run_configs
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import Method
from tokenlight.methods.config import MethodConfig
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks.targets import ResolvedTarget, Target
from tokenlight.text.batch import Batch, length_batches
from tokenlight.text.tokenized_text import TokenizedText

RATE = 0.08  # how far a strength moves in a step, about
MEMORY = (0.9, 0.999)  # of the slope and of its square (Adam: Kingma and Ba 2015)
PATIENCE = 8  # steps without gain


@dataclass(frozen=True)
class Climb:
    """One way up. Strengths are [layer, head] in [0, 1]."""

    trail: Tensor  # [step, layer, head], the start included
    slope: Tensor  # the running mean, and that of its square
    square: Tensor

    @classmethod
    def start(cls, layers: int, heads: int) -> "Climb":
        """All heads lit, which is the method as it is."""
        nothing = torch.zeros(layers, heads, dtype=torch.float64)
        return cls(torch.ones_like(nothing)[None], nothing, nothing)

    @property
    def strengths(self) -> Tensor:
        return self.trail[-1]

    def step(self, slope: Tensor) -> "Climb":
        """Along the slope [layer, head] at the present strengths."""
        mean = MEMORY[0] * self.slope + (1 - MEMORY[0]) * slope
        square = MEMORY[1] * self.square + (1 - MEMORY[1]) * slope**2
        number = len(self.trail)
        fair = (mean / (1 - MEMORY[0] ** number), square / (1 - MEMORY[1] ** number))
        strengths = (self.strengths + RATE * fair[0] / (fair[1].sqrt() + 1e-12)).clamp(0, 1)
        return Climb(torch.cat([self.trail, strengths[None]]), mean, square)


@dataclass(frozen=True)
class Search:
    """Climbs side by side: one for each fold of the texts, taught by all other folds, and a last one taught by all."""

    climbs: tuple[Climb, ...]
    judged: Tensor  # [step, text] agreement under the climb of the text's fold, which has not seen it

    @property
    def steps(self) -> int:
        return len(self.judged) - 1

    def up_to(self, steps: int) -> "Search":
        """As it was after so many steps, if it has gone further."""
        climbs = tuple(replace(climb, trail=climb.trail[: steps + 1]) for climb in self.climbs)
        return self if self.steps <= steps else Search(climbs, self.judged[: steps + 1])

    @property
    def stalled(self) -> bool:
        """Whether the best is so long ago that the search is over."""
        return self.steps - self.best >= PATIENCE

    @property
    def best(self) -> int:
        """The first step at which the texts agreed most."""
        return best_step(self.judged)

    @property
    def found(self) -> Tensor:
        """Strengths taught by all texts, after as many steps as did best on texts that were not seen."""
        return self.climbs[-1].trail[self.best]

    def unseen_steps(self, folds: Sequence[Sequence[int]]) -> list[int]:
        """How many steps each fold's climb should take, as the other folds' texts say."""
        kept = [torch.ones(self.judged.shape[1], dtype=torch.bool) for _ in folds]
        for others, fold in zip(kept, folds, strict=True):
            others[list(fold)] = False
        return [best_step(self.judged[:, others]) for others in kept]

    def unseen(self, folds: Sequence[Sequence[int]]) -> list[Tensor]:
        """Strengths for each fold that its texts had no part in: neither in the climb nor in the number of steps."""
        return [climb.trail[step] for climb, step in zip(self.climbs[:-1], self.unseen_steps(folds), strict=True)]

    def gains(self, folds: Sequence[Sequence[int]]) -> Tensor:
        """[text] of agreement, by the strengths of `unseen`."""
        gains = torch.zeros_like(self.judged[0])
        for fold, step in zip(folds, self.unseen_steps(folds), strict=True):
            gains[list(fold)] = (self.judged[step] - self.judged[0])[list(fold)]
        return gains


def best_step(judged: Tensor) -> int:
    """The first of the highest, of [step, text]."""
    means = judged.mean(1).tolist()
    return max(range(len(means)), key=means.__getitem__)


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


FORMAT = "tokenlight.calibration"


@dataclass
class Checkpoint:
    """Effects of the texts that were measured, and the state of the search; both belong to these settings alone."""

    path: Path | None  # None: nothing is kept
    settings: Mapping[str, Any]
    effects: list[Effects] = field(default_factory=list)
    search: Search | None = None

    @classmethod
    def open(cls, path: Path | None, settings: Mapping[str, Any], lengths: Sequence[int]) -> "Checkpoint":
        """What is in the file, if it was made with the same settings, for texts of so many tokens."""
        if path is None or not path.exists():
            if path is not None and not path.parent.is_dir():
                raise RefusedValue(f"there is no folder {str(path.parent)!r} for the checkpoint {path.name}")
            return cls(path, settings)
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            if plain["format"] != FORMAT:
                raise RefusedValue(f"format {plain['format']!r}")
            before, found = plain["settings"], plain["search"]
            effects = [read_effects(one) for one in plain["effects"]]
            state = None if found is None else read_search(found)
            other = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
            if not other:
                check_whole(effects, state, lengths, settings["folds"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RefusedValue(
                f"{path} is not a calibration's checkpoint ({error}): delete it to start again"
            ) from error
        if other:
            raise RefusedValue(
                f"{path} belongs to a calibration with other {', '.join(other)}: delete it to start again"
            )
        return cls(path, settings, effects, state)

    def add(self, effects: Sequence[Effects]) -> None:
        self.effects += effects
        self._write()

    def reach(self, search: Search) -> None:
        self.search = search
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            found = None if self.search is None else write_search(self.search)
            effects = [write_effects(one) for one in self.effects]
            plain = {"format": FORMAT, "settings": self.settings, "effects": effects, "search": found}
            write_atomically(self.path, json.dumps(plain))


def check_whole(effects: Sequence[Effects], search: Search | None, lengths: Sequence[int], folds: int) -> None:
    """Whether all that is there belongs to the texts."""
    if [len(one.values) for one in effects] != list(lengths[: len(effects)]):
        raise RefusedValue("its effects are not those of the texts")
    if not all(one.values.isfinite().all() for one in effects):
        raise RefusedValue("it holds numbers that are not finite")
    if search is None:
        return
    if len(effects) < len(lengths):
        raise RefusedValue("it has searched before all texts were measured")
    if search.judged.shape[1:] != (len(lengths),) or not search.judged.isfinite().all():
        raise RefusedValue("its search was not judged by the texts")
    trails = [climb.trail for climb in search.climbs if climb.trail.isfinite().all()]
    if [len(trail) for trail in trails] != [len(search.judged)] * (folds + 1):
        raise RefusedValue("its search is not whole")


def write_search(search: Search) -> dict[str, Any]:
    climbs = [{one.name: getattr(climb, one.name).tolist() for one in fields(climb)} for climb in search.climbs]
    return {"climbs": climbs, "judged": search.judged.tolist()}


def read_search(plain: Mapping[str, Any]) -> Search:
    climbs = [Climb(**{one.name: numbers(climb[one.name]) for one in fields(Climb)}) for climb in plain["climbs"]]
    return Search(tuple(climbs), numbers(plain["judged"]))


def numbers(plain: Any) -> Tensor:
    return torch.tensor(plain, dtype=torch.float64)


def write_effects(effects: Effects) -> list[float | None]:
    """A value for each token, None for those that may not go."""
    return [value if may_go else None for value, may_go in zip(effects.values.tolist(), effects.measured, strict=True)]


def read_effects(plain: Sequence[float | None]) -> Effects:
    values = torch.tensor([value or 0.0 for value in plain], dtype=torch.float64)
    return Effects(values, torch.tensor([value is not None for value in plain]))
