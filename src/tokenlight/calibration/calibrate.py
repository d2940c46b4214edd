"""Calibration of head strengths by measured faithfulness: measure, split, search."""

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.calibration.effects import Effects, measure_effects
from tokenlight.calibration.search import (
    Checkpoint,
    Climb,
    Measured,
    MeasuredBatch,
    Search,
    agreement_and_slope,
    agreements,
    measured_batches,
)
from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.intervals import mean_interval
from tokenlight.common.progress import count_progress
from tokenlight.explain.explainer import Explainer
from tokenlight.heads.mask import CALIBRATED, HeadMask, HeadsLike, choose_heads, model_name, own_heads
from tokenlight.methods import METHODS, Method, find_method
from tokenlight.metrics.evaluate import Measure, evaluate
from tokenlight.metrics.perturbation import Perturbation, removable_units
from tokenlight.metrics.probability import measured_targets_of
from tokenlight.model.config import layers_and_heads
from tokenlight.model.identity import fingerprint
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.runs.model_hash import hash_model
from tokenlight.tasks.targets import MeasuredTarget, spread
from tokenlight.text.tokenize import texts_of
from tokenlight.text.tokenized_text import Text, TokenizedText

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
            raise RefusedValue(f"a text needs 1 order and 2 points or more, found {self.orders} and {self.points}")
        if self.folds < 2:
            raise RefusedValue(
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
                raise RefusedValue(
                    f"no token of {tokenized_text.text!r} can be taken away: all are special or read by the target"
                )
        return measured_targets

    @cached_property
    def folds(self) -> list[list[int]]:
        """Numbers of texts, divided by the seed."""
        count, folds = len(self.texts), self.settings.folds
        if count < max(FEWEST, 2 * folds):
            raise RefusedValue(
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
        with count_progress("measuring", len(self.tokenized_texts), len(store.effects), progress) as advance:
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
        with count_progress("searching", steps, state.steps, progress) as advance:
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


CHANCE = 0.02  # a gain that chance reaches more often is none
DIGITS = 3  # of a strength in the mask


def calibrate(
    explainer: Explainer,
    texts: Iterable[Text],
    method: str = "attn_lrp",
    *,
    target: Any = None,
    foil: Any = None,
    perturbation: Perturbation | None = None,
    orders: int = 6,
    points: int = 30,
    folds: int = 4,
    steps: int = 60,
    seed: int = 0,
    heads: HeadsLike = None,
    source: str | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> HeadMask:
    """Head strengths under which a relevance method is most faithful on these texts; no labels are needed.

    Tokens are taken away from every text in random `orders`, in `points` groups, by the `perturbation` (default: what
    the metrics do). Strengths in [0, 1] then follow the slope of the correlation between the tokens' scores and what
    the answer lost by them. Each of the `folds` of the texts is evaluated under strengths learned from the others: when
    they gain no more (or after `steps`), the search ends, and if their gain may be chance, every head stays lit.
    `target` and `foil` are as in `explain`; a text that occurs twice counts once. The mask keeps the syntactic and
    positional groups of `heads` (default: the model's own) for comparison. With a `checkpoint`, a run that was stopped
    continues.
    """
    if steps < 1:
        raise RefusedValue(f"steps is a positive number, found {steps}")
    model = explainer.inner
    groups = own_heads(model) if heads is None else choose_heads(heads, model)
    fitted = (perturbation or Perturbation()).fit(model, explainer.tokenizer)
    settings = CalibrationSettings(fitted, orders, points, folds, seed)
    calibration = Calibration(explainer, relevance_method(method), *distinct(explainer, texts, target, foil), settings)
    divided, _ = (
        calibration.folds,
        calibration.measured_targets,
    )  # what is wrong with the texts is said before anything is measured
    store = Checkpoint.open(
        None if checkpoint is None else Path(checkpoint),
        {} if checkpoint is None else calibration.describe(),
        list(map(len, calibration.tokenized_texts)),
    )
    effects = calibration.measure(store, progress)
    search = calibration.search(effects, steps, store, progress)
    gains = search.gains(divided)
    helped = (chance := chance_of(gains)) < CHANCE and search.best > 0
    strengths = search.found.round(decimals=DIGITS) if helped else torch.ones_like(search.found)
    aopc = calibration.faithfulness(None)
    found = {
        "steps": search.steps,
        "best_step": search.best,
        "helped": helped,
        "agreement": {
            **{"all heads": float(search.judged[0].mean()), "gain": float(gains.mean())},
            **{"interval": interval(gains), "chance": chance},
        },
        "aopc": {
            "all heads": aopc,
            "calibrated": calibration.faithfulness(search.unseen(divided)) if helped else aopc,
        },
    }
    made = {"by": "calibration", "method": calibration.method.name, "texts": len(calibration.texts), "source": source}
    return as_mask(explainer, strengths, groups, {**made, **asdict(settings), **found})


def interval(gains: Tensor) -> list[float] | None:
    """95 % limits of the mean gain; None where they are not known, for example because no step has changed anything."""
    limits = mean_interval(gains.double().numpy())
    return list(limits) if all(map(isfinite, limits)) else None


def as_mask(explainer: Explainer, strengths: Tensor, groups: HeadMask | None, made: dict[str, Any]) -> HeadMask:
    model, dark = explainer.inner, torch.zeros_like(strengths)
    return HeadMask(
        syntactic=dark if groups is None else groups.syntactic,
        positional=dark if groups is None else groups.positional,
        calibrated=strengths,
        model=model_name(model),
        fingerprint=fingerprint(model),
        statistics=None if groups is None else groups.statistics,
        made=made,
    )


def distinct(explainer: Explainer, texts: Any, target: Any, foil: Any) -> tuple[list[Text], list[Any], list[Any]]:
    """Each text with its target and foil once: a copy among the texts held back would judge what it was learned from.

    Texts with the same tokens, such as one with a blank at its end, are copies.
    """
    if isinstance(texts, str | tuple):
        raise RefusedType("calibration needs a list of texts, 50 to 500 for example; found a single one")
    listed, _ = texts_of(texts)
    measured_targets = (spread(target, len(listed), "target"), spread(foil, len(listed), "foil"))
    found: dict[str, tuple[Text, Any, Any]] = {}
    for tokenized_text, text, *measured_target in zip(explainer.encode(listed), listed, *measured_targets, strict=True):
        found.setdefault(
            repr((tokenized_text.input_ids, tokenized_text.token_type_ids, measured_target)),
            (text, measured_target[0], measured_target[1]),
        )
    kept, targets, foils = (list(column) for column in zip(*found.values(), strict=True))
    return kept, targets, foils


def relevance_method(name: str) -> Method:
    """A method that takes heads, other than the one that only uses what was calibrated."""
    found = find_method(name)
    able = [one.name for one in METHODS.values() if "heads" in one.options and one.options["heads"] != CALIBRATED]
    if found.name not in able:
        raise RefusedValue(f"method '{found.name}' has no heads to calibrate; methods that have: {', '.join(able)}")
    return found
