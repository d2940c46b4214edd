"""The steps of one calibration: measure, divide, search, judge."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from tokenlight.batch import Row, Text
from tokenlight.calibration.agreement import Measured, MeasuredBatch, agreement_and_slope, agreements, measured_batches
from tokenlight.calibration.checkpoint import Checkpoint
from tokenlight.calibration.effects import Effects, measure_effects
from tokenlight.calibration.search import Climb, climb
from tokenlight.explainer import Explainer
from tokenlight.explanation import Explanation
from tokenlight.fingerprint import fingerprint
from tokenlight.methods import Method
from tokenlight.metrics.evaluate import Measure, evaluate
from tokenlight.metrics.goals import goals_of
from tokenlight.metrics.perturbation import Perturbation, takeable
from tokenlight.metrics.probability import Goal
from tokenlight.progress import counting
from tokenlight.twin import Twin

CHUNK = 16  # texts that are measured between two looks at the disk
FEWEST = 6  # texts that judge: with fewer, chance could never be ruled out


@dataclass(frozen=True)
class Settings:
    """How effects are measured and texts divided."""

    perturbation: Perturbation
    orders: int
    points: int
    held_back: float
    seed: int

    def __post_init__(self) -> None:
        if self.orders < 1 or self.points < 2:
            raise ValueError(f"a text needs 1 order and 2 points or more, found {self.orders} and {self.points}")
        if not 0 < self.held_back < 1:
            raise ValueError(f"held_back is the share of texts that the search does not see, found {self.held_back}")


@dataclass(frozen=True)
class Parts:
    """Texts by their numbers: those that the search learns from, those that stop it, those that judge its result."""

    learn: list[int]
    stop: list[int]
    judge: list[int]


@dataclass(frozen=True)
class Calibration:
    """One calibration: its model, method, texts and settings."""

    explainer: Explainer
    method: Method
    texts: Sequence[Text]
    targets: Sequence[Any]  # as in `explain`, one for each text
    foils: Sequence[Any]
    settings: Settings

    @cached_property
    def twin(self) -> Twin:
        return Twin(self.explainer.model)

    @cached_property
    def rows(self) -> list[Row]:
        return self.explainer.encode(self.texts)

    @cached_property
    def plain(self) -> list[Explanation]:
        """By the method with all heads."""
        return self._explain(range(len(self.texts)), None)

    @cached_property
    def goals(self) -> list[Goal]:
        """Whose probability is measured; texts of which nothing can be taken away are found here already."""
        nothing = [None] * len(self.rows)
        goals = goals_of(self.explainer, self.twin, self.rows, self.plain, nothing, nothing)
        for row, goal in zip(self.rows, goals, strict=True):
            if not takeable(row, self.settings.perturbation, goal.protected):
                raise ValueError(f"no token of {row.text!r} can be taken away: all are special or read by the target")
        return goals

    @cached_property
    def parts(self) -> Parts:
        """Divided by the seed. Whoever stops the search must not judge it: the best step is chosen by chance too."""
        order = random.Random(self.settings.seed).sample(range(len(self.texts)), len(self.texts))
        held = round(self.settings.held_back * len(order))
        learn, judge = len(order) - held, (held + 1) // 2
        parts = Parts(order[:learn], order[learn:-judge], order[len(order) - judge :])
        if min(len(parts.learn), len(parts.stop), len(parts.judge)) < FEWEST:
            raise ValueError(
                f"{len(order)} different texts are too few: with held_back={self.settings.held_back}, {learn} are for "
                f"the search, {len(parts.stop)} to stop it and {judge} to judge it; each part needs {FEWEST} or more"
            )
        return parts

    def describe(self) -> dict[str, Any]:
        """What a checkpoint belongs to, in plain values."""
        known = [(e.text, e.indices, e.foil_indices, e.position) for e in self.plain]
        settings = {**asdict(self.settings), "perturbation": repr(self.settings.perturbation)}
        digest = hashlib.sha256(repr(known).encode()).hexdigest()
        model = list(fingerprint(self.explainer._names.model))
        return {"model": model, "method": self.method.name, "texts": digest, **settings}

    def measure(self, store: Checkpoint, progress: bool) -> list[Effects]:
        """The effects of every text; those that the checkpoint holds are not measured again."""
        names = [f"{self.settings.seed} {i}" for i in range(len(self.rows))]
        how = (self.settings.perturbation, self.settings.orders, self.settings.points)
        with counting("measuring", len(self.rows), len(store.effects), progress) as advance:
            while (done := len(store.effects)) < len(self.rows):
                some = slice(done, done + CHUNK)
                found = measure_effects(self.explainer, self.twin, self.rows[some], self.goals[some], names[some], *how)
                store.add(found)
                advance(len(found))
        return store.effects

    def batches(self, effects: Sequence[Effects], places: Sequence[int]) -> list[MeasuredBatch]:
        """Some of the texts, with what was measured."""
        some = [Measured(self.rows[i], self._wanted(i), effects[i]) for i in places]
        return measured_batches(self.explainer, self.twin, some)

    def search(
        self,
        learn: Sequence[MeasuredBatch],
        stop: Sequence[MeasuredBatch],
        steps: int,
        store: Checkpoint,
        progress: bool,
    ) -> Climb:
        config = self.explainer._names.model.config.get_text_config()
        state = store.climb or Climb.start(config.num_hidden_layers, config.num_attention_heads)
        teach = partial(agreement_and_slope, self.twin, learn, self.method)
        with counting("searching", steps, state.steps, progress) as advance:
            for reached in climb(state, steps, teach, lambda strengths: float(self.agree(stop, strengths).mean())):
                store.reach(state := reached)
                advance(1)
        return state

    def agree(self, batches: Sequence[MeasuredBatch], strengths: Tensor) -> Tensor:
        """[text]"""
        return agreements(self.twin, batches, self.method, strengths)

    def faithfulness(self, strengths: Tensor | None) -> float:
        """Mean AOPC on the texts that judge; None: all heads."""
        judge = self.parts.judge
        explained = [self.plain[i] for i in judge] if strengths is None else self._explain(judge, strengths)
        found = evaluate(self.explainer, explained, [Measure("aopc", self.settings.perturbation)])
        return sum(one["aopc"] for one in found) / len(found)

    def _wanted(self, place: int) -> Any:
        return self.explainer._names.want(self.rows[place], self.targets[place], self.foils[place])

    def _explain(self, places: Sequence[int], strengths: Tensor | None) -> list[Explanation]:
        texts, targets, foils = ([of[i] for i in places] for of in (self.texts, self.targets, self.foils))
        settings = {"target": targets, "foil": foils, "heads": strengths, "progress": False}
        return self.explainer.explain(texts, self.method.name, **settings)


def chance_of(gains: Tensor, draws: int = 5000) -> float:
    """How often the mean gain would be as high if each text's sign were thrown by a coin."""
    coins = torch.randint(2, (draws, len(gains)), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    reached = (coins.double() * gains).mean(1) >= gains.mean()
    return (int(reached.sum()) + 1) / (draws + 1)


def interval(values: Tensor, draws: int = 5000) -> tuple[float, float]:
    """95 % of the mean, by a bootstrap over texts."""
    drawn = torch.randint(len(values), (draws, len(values)), generator=torch.Generator().manual_seed(0))
    low, high = torch.quantile(values[drawn].mean(1), torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    return low, high
