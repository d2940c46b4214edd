"""The stages of one calibration: measure, divide, search."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tokenlight.calibration.checkpoint import Checkpoint
from tokenlight.calibration.effects import Effects, measure_effects
from tokenlight.calibration.search import Climb, Search
from tokenlight.calibration.slope import Measured, MeasuredBatch, agreement_and_slope, agreements, measured_batches
from tokenlight.explain.explainer import Explainer
from tokenlight.foundation.progress import counting
from tokenlight.methods import Method
from tokenlight.metrics.evaluate import Measure, evaluate
from tokenlight.metrics.goals import measured_targets_of
from tokenlight.metrics.perturbation import Perturbation, removable_units
from tokenlight.model.settings import layers_and_heads
from tokenlight.model.twin import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.runs.model_hash import hash_model
from tokenlight.tasks.targets import MeasuredTarget
from tokenlight.text.rows import Text, TokenizedText

CHUNK = 16  # texts that are measured between two looks at the disk
TAUGHT_BY = 128  # texts, at most, that a step looks at: drawn anew for each, so a step's cost does not grow with them
FEWEST = 12  # texts: with fewer, chance could hardly be ruled out


@dataclass(frozen=True)
class CalibrationSettings:
    """How effects are measured and texts divided."""

    perturbation: Perturbation
    orders: int
    points: int
    folds: int
    seed: int

    def __post_init__(self) -> None:
        if self.orders < 1 or self.points < 2:
            raise ValueError(f"a text needs 1 order and 2 points or more, found {self.orders} and {self.points}")
        if self.folds < 2:
            raise ValueError(
                f"expected 2 folds or more, because each is judged by a search over the others; found {self.folds}"
            )


@dataclass(frozen=True)
class Calibration:
    """One calibration: its model, method, texts and settings."""

    explainer: Explainer
    method: Method
    texts: Sequence[Text]
    targets: Sequence[Any]  # as in `explain`, one for each text
    foils: Sequence[Any]
    settings: CalibrationSettings

    @cached_property
    def instrumented(self) -> InstrumentedModel:
        return InstrumentedModel(self.explainer.model)

    @cached_property
    def tokenized_texts(self) -> list[TokenizedText]:
        return self.explainer.encode(self.texts)

    @cached_property
    def plain(self) -> list[Explanation]:
        """By the method with all heads."""
        return self._explain(range(len(self.texts)), None)

    @cached_property
    def measured_targets(self) -> list[MeasuredTarget]:
        """Whose probability is measured; texts of which nothing can be taken away are found here already."""
        nothing = [None] * len(self.tokenized_texts)
        measured_targets = measured_targets_of(
            self.explainer, self.instrumented, self.tokenized_texts, self.plain, nothing, nothing
        )
        for tokenized_text, measured_target in zip(self.tokenized_texts, measured_targets, strict=True):
            if not removable_units(tokenized_text, self.settings.perturbation, measured_target.protected):
                raise ValueError(
                    f"no token of {tokenized_text.text!r} can be taken away: all are special or read by the target"
                )
        return measured_targets

    @cached_property
    def folds(self) -> list[list[int]]:
        """Numbers of texts, divided by the seed."""
        count, folds = len(self.texts), self.settings.folds
        if count < max(FEWEST, 2 * folds):
            raise ValueError(
                f"{count} different texts are too few: calibration needs {FEWEST} or more, and 2 for each of the "
                f"{folds} folds"
            )
        order = random.Random(self.settings.seed).sample(range(count), count)
        return [order[first::folds] for first in range(folds)]

    def describe(self) -> dict[str, Any]:
        """What a checkpoint belongs to, in plain values."""
        known = [(e.text, e.indices, e.foil_indices, e.position) for e in self.plain]
        settings = {**asdict(self.settings), "perturbation": repr(self.settings.perturbation)}
        digest = hashlib.sha256(repr(known).encode()).hexdigest()
        return {"model": hash_model(self.explainer), "method": self.method.name, "texts": digest, **settings}

    def measure(self, store: Checkpoint, progress: bool) -> list[Effects]:
        """The effects of every text; those that the checkpoint holds are not measured again."""
        names = [f"{self.settings.seed} {i}" for i in range(len(self.tokenized_texts))]
        removal = (self.settings.perturbation, self.settings.orders, self.settings.points)
        with counting("measuring", len(self.tokenized_texts), len(store.effects), progress) as advance:
            while (done := len(store.effects)) < len(self.tokenized_texts):
                some = slice(done, done + CHUNK)
                found = measure_effects(
                    self.explainer,
                    self.instrumented,
                    self.tokenized_texts[some],
                    self.measured_targets[some],
                    names[some],
                    *removal,
                )
                store.add(found)
                advance(len(found))
        return store.effects

    def batches(self, effects: Sequence[Effects], places: Sequence[int]) -> list[MeasuredBatch]:
        """Some of the texts, with what was measured."""
        some = [Measured(self.tokenized_texts[i], self._resolve_target(i), effects[i]) for i in places]
        return measured_batches(self.explainer, self.instrumented, some)

    def search(self, effects: Sequence[Effects], steps: int, store: Checkpoint, progress: bool) -> Search:
        """Climb until texts that were not seen gain no more, or for so many steps."""
        unseen = [self.batches(effects, fold) for fold in self.folds]
        everyone = set(range(len(self.texts)))
        taught_by = [sorted(everyone.difference(fold)) for fold in (*self.folds, ())]
        # A checkpoint may have gone further than this run is asked to; what it found later does not count.
        state = self.start(unseen) if store.search is None else store.search.up_to(steps)
        with counting("searching", steps, state.steps, progress) as advance:
            while state.steps < steps and not state.stalled:
                climbs = tuple(
                    climb.step(self.slope(effects, self.some(texts, f"{number} {state.steps}"), climb.strengths))
                    for number, (climb, texts) in enumerate(zip(state.climbs, taught_by, strict=True))
                )
                judged = self.judge(unseen, [climb.strengths for climb in climbs[:-1]])
                state = Search(climbs, torch.cat([state.judged, judged[None]]))
                store.reach(state)
                advance(1)
        return state

    def start(self, unseen: Sequence[Sequence[MeasuredBatch]]) -> Search:
        climb = Climb.start(*layers_and_heads(self.explainer.inner))
        judged = self.judge(unseen, [climb.strengths] * len(unseen))
        return Search((climb,) * (len(unseen) + 1), judged[None])

    def some(self, texts: Sequence[int], name: str) -> list[int]:
        """Drawn by the seed and the name, in their order."""
        chance = random.Random(f"{self.settings.seed} {name}")
        return sorted(chance.sample(texts, min(len(texts), TAUGHT_BY)))

    def slope(self, effects: Sequence[Effects], places: Sequence[int], strengths: Tensor) -> Tensor:
        """[layer, head]"""
        return agreement_and_slope(self.instrumented, self.batches(effects, places), self.method, strengths)[1]

    def judge(self, unseen: Sequence[Sequence[MeasuredBatch]], strengths: Sequence[Tensor]) -> Tensor:
        """[text] agreement, each fold under strengths of its own."""
        found = torch.zeros(len(self.texts), dtype=torch.float64)
        for fold, batches, own in zip(self.folds, unseen, strengths, strict=True):
            found[fold] = agreements(self.instrumented, batches, self.method, own)
        return found

    def faithfulness(self, strengths: Sequence[Tensor] | None) -> float:
        """Mean AOPC over all texts, each fold under strengths of its own; None: all heads."""
        explained = list(self.plain)
        for fold, own in () if strengths is None else zip(self.folds, strengths, strict=True):
            for place, explanation in zip(fold, self._explain(fold, own), strict=True):
                explained[place] = explanation
        found = evaluate(self.explainer, explained, [Measure("aopc", self.settings.perturbation)])
        return sum(one["aopc"] for one in found) / len(found)

    def _resolve_target(self, place: int) -> Any:
        return self.explainer.task.resolve_target(self.tokenized_texts[place], self.targets[place], self.foils[place])

    def _explain(self, places: Sequence[int], strengths: Tensor | None) -> list[Explanation]:
        texts, targets, foils = ([of[i] for i in places] for of in (self.texts, self.targets, self.foils))
        settings = {"target": targets, "foil": foils, "heads": strengths, "progress": False}
        return self.explainer.explain(texts, self.method.name, **settings)


def chance_of(gains: Tensor, draws: int = 5000) -> float:
    """How often the mean gain would be as high if each text's sign were thrown by a coin."""
    coins = torch.randint(2, (draws, len(gains)), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    reached = (coins.double() * gains).mean(1) >= gains.mean()
    return (int(reached.sum()) + 1) / (draws + 1)
