"""Calibration of head strengths by measured faithfulness: measure effects of tokens, split texts, search."""

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
    HeadOptimizer,
    Measured,
    MeasuredBatch,
    Search,
    agreement_and_gradient,
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
from tokenlight.metrics.probability import complete_targets
from tokenlight.model.config import layers_and_heads
from tokenlight.model.fingerprint import fingerprint
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.runs.model_hash import hash_model
from tokenlight.tasks.targets import ResolvedTarget, spread
from tokenlight.text.tokenize import texts_of
from tokenlight.text.tokenized_text import Text, TokenizedText

CHUNK = 16  # texts that are measured between two checkpoints
TEXTS_PER_STEP = 128  # the largest number of texts in a step; they are drawn for each step, which limits its cost
MIN_TEXTS = 12  # with fewer texts, chance cannot be ruled out


@dataclass(frozen=True)
class CalibrationSettings:
    """How effects are measured, and how texts are divided into folds."""

    perturbation: Perturbation
    orders: int
    points: int
    folds: int
    seed: int

    def __post_init__(self) -> None:
        if self.orders < 1 or self.points < 2:
            raise RefusedValue(f"expected orders >= 1 and points >= 2, found {self.orders} and {self.points}")
        if self.folds < 2:
            raise RefusedValue(
                f"expected 2 folds or more, because each is evaluated by a search over the others; found {self.folds}"
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
        """Explanations by the method with all heads."""
        return self._explain(range(len(self.texts)), None)

    @cached_property
    def completed_targets(self) -> list[ResolvedTarget]:
        """The targets whose probability is measured. Texts from which no token can be removed are refused."""
        no_targets = [None] * len(self.tokenized_texts)
        targets = complete_targets(
            self.explainer, self.instrumented, self.tokenized_texts, self.plain, no_targets, no_targets
        )
        for tokenized_text, target in zip(self.tokenized_texts, targets, strict=True):
            if not removable_units(tokenized_text, self.settings.perturbation, target.protected):
                raise RefusedValue(
                    f"no token of {tokenized_text.text!r} can be removed: all are special or read by the target"
                )
        return targets

    @cached_property
    def folds(self) -> list[list[int]]:
        """Indices of texts in each fold, by the seed."""
        count, folds = len(self.texts), self.settings.folds
        if count < max(MIN_TEXTS, 2 * folds):
            raise RefusedValue(
                f"{count} different texts are too few: calibration needs {MIN_TEXTS} or more, and 2 for each of the "
                f"{folds} folds"
            )
        order = random.Random(self.settings.seed).sample(range(count), count)
        return [order[first::folds] for first in range(folds)]

    def describe(self) -> dict[str, Any]:
        """The model, method, texts and settings that a checkpoint belongs to, as plain values."""
        explained = [(e.text, e.indices, e.foil_indices, e.position) for e in self.plain]
        settings = {**asdict(self.settings), "perturbation": repr(self.settings.perturbation)}
        digest = hashlib.sha256(repr(explained).encode()).hexdigest()
        return {"model": hash_model(self.explainer), "method": self.method.name, "texts": digest, **settings}

    def measure(self, store: Checkpoint, progress: bool) -> list[Effects]:
        """The effects of every text; those in the checkpoint are not measured again."""
        names = [f"{self.settings.seed} {i}" for i in range(len(self.tokenized_texts))]
        settings = (self.settings.perturbation, self.settings.orders, self.settings.points)
        with count_progress("measuring", len(self.tokenized_texts), len(store.effects), progress) as advance:
            while (done := len(store.effects)) < len(self.tokenized_texts):
                chunk = slice(done, done + CHUNK)
                effects = measure_effects(
                    self.explainer,
                    self.instrumented,
                    self.tokenized_texts[chunk],
                    self.completed_targets[chunk],
                    names[chunk],
                    *settings,
                )
                store.add(effects)
                advance(len(effects))
        return store.effects

    def batches(self, effects: Sequence[Effects], indices: Sequence[int]) -> list[MeasuredBatch]:
        """Batches of the texts with these indices, with their effects."""
        measured = [Measured(self.tokenized_texts[i], self.completed_targets[i], effects[i]) for i in indices]
        return measured_batches(self.explainer, self.instrumented, measured)

    def search(self, effects: Sequence[Effects], steps: int, store: Checkpoint, progress: bool) -> Search:
        """Optimize strengths until held-out texts do not improve, or for `steps` steps."""
        held_out = [self.batches(effects, fold) for fold in self.folds]
        all_texts = set(range(len(self.texts)))
        trained_on = [sorted(all_texts.difference(fold)) for fold in (*self.folds, ())]
        # A checkpoint may have more steps than this run; later ones are ignored.
        state = self.start(held_out) if store.search is None else store.search.up_to(steps)
        with count_progress("searching", steps, state.steps, progress) as advance:
            while state.steps < steps and not state.stalled:
                climbs = tuple(
                    climb.step(
                        self.gradient(effects, self.draw_texts(texts, f"{number} {state.steps}"), climb.strengths)
                    )
                    for number, (climb, texts) in enumerate(zip(state.climbs, trained_on, strict=True))
                )
                judged = self.evaluate_folds(held_out, [climb.strengths for climb in climbs[:-1]])
                state = Search(climbs, torch.cat([state.judged, judged[None]]))
                store.set_search(state)
                advance(1)
        return state

    def start(self, held_out: Sequence[Sequence[MeasuredBatch]]) -> Search:
        climb = HeadOptimizer.start(*layers_and_heads(self.explainer.inner))
        judged = self.evaluate_folds(held_out, [climb.strengths] * len(held_out))
        return Search((climb,) * (len(held_out) + 1), judged[None])

    def draw_texts(self, texts: Sequence[int], name: str) -> list[int]:
        """At most TEXTS_PER_STEP of the texts, drawn by the seed and the name."""
        chance = random.Random(f"{self.settings.seed} {name}")
        return sorted(chance.sample(texts, min(len(texts), TEXTS_PER_STEP)))

    def gradient(self, effects: Sequence[Effects], indices: Sequence[int], strengths: Tensor) -> Tensor:
        """[layer, head] of the mean agreement of these texts."""
        return agreement_and_gradient(self.instrumented, self.batches(effects, indices), self.method, strengths)[1]

    def evaluate_folds(self, held_out: Sequence[Sequence[MeasuredBatch]], strengths: Sequence[Tensor]) -> Tensor:
        """[text] agreement, with separate strengths for each fold."""
        values = torch.zeros(len(self.texts), dtype=torch.float64)
        for fold, batches, fold_strengths in zip(self.folds, held_out, strengths, strict=True):
            values[fold] = agreements(self.instrumented, batches, self.method, fold_strengths)
        return values

    def faithfulness(self, strengths: Sequence[Tensor] | None) -> float:
        """Mean AOPC over all texts, with separate strengths for each fold; None: all heads."""
        explained = list(self.plain)
        for fold, fold_strengths in () if strengths is None else zip(self.folds, strengths, strict=True):
            for index, explanation in zip(fold, self._explain(fold, fold_strengths), strict=True):
                explained[index] = explanation
        values = evaluate(self.explainer, explained, [Measure("aopc", self.settings.perturbation)])
        return sum(value["aopc"] for value in values) / len(values)

    def _explain(self, indices: Sequence[int], strengths: Tensor | None) -> list[Explanation]:
        texts, targets, foils = ([values[i] for i in indices] for values in (self.texts, self.targets, self.foils))
        settings = {"target": targets, "foil": foils, "heads": strengths, "progress": False}
        return self.explainer.explain(texts, self.method.name, **settings)


def sign_flip_p_value(gains: Tensor, draws: int = 5000) -> float:
    """How often the mean gain would be as high if each text's sign were random."""
    signs = torch.randint(2, (draws, len(gains)), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    is_reached = (signs.double() * gains).mean(1) >= gains.mean()
    return (int(is_reached.sum()) + 1) / (draws + 1)


CHANCE = 0.02  # a gain that random signs reach more often does not count
DIGITS = 3  # decimals of a strength in the mask


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

    Tokens are removed from every text in random `orders`, in `points` groups, by the `perturbation` (default: that of
    the metrics). Gradient ascent on strengths in [0, 1] then maximizes the correlation between the tokens' scores and
    the effect of their removal on the target. Each of the `folds` of the texts is evaluated with strengths learned from
    the others: the search ends when these gain no more (or after `steps`), and if the gain may be chance, all strengths
    are 1. `target` and `foil` are as in `explain`; a text that occurs twice counts once. The mask keeps the syntactic
    and positional groups of `heads` (default: the model's own) for comparison. With a `checkpoint`, a run that was
    stopped continues.
    """
    if steps < 1:
        raise RefusedValue(f"steps must be a positive number, found {steps}")
    model = explainer.inner
    groups = own_heads(model) if heads is None else choose_heads(heads, model)
    fitted = (perturbation or Perturbation()).fit(model, explainer.tokenizer)
    settings = CalibrationSettings(fitted, orders, points, folds, seed)
    calibration = Calibration(explainer, relevance_method(method), *distinct(explainer, texts, target, foil), settings)
    # Computed first, because both refuse unsuitable texts.
    fold_indices, _ = calibration.folds, calibration.completed_targets
    store = Checkpoint.open(
        None if checkpoint is None else Path(checkpoint),
        {} if checkpoint is None else calibration.describe(),
        list(map(len, calibration.tokenized_texts)),
    )
    effects = calibration.measure(store, progress)
    search = calibration.search(effects, steps, store, progress)
    gains = search.gains(fold_indices)
    helped = (chance := sign_flip_p_value(gains)) < CHANCE and search.best > 0
    strengths = search.strengths.round(decimals=DIGITS) if helped else torch.ones_like(search.strengths)
    aopc = calibration.faithfulness(None)
    results = {
        "steps": search.steps,
        "best_step": search.best,
        "helped": helped,
        "agreement": {
            **{"all heads": float(search.judged[0].mean()), "gain": float(gains.mean())},
            **{"interval": interval(gains), "chance": chance},
        },
        "aopc": {
            "all heads": aopc,
            "calibrated": calibration.faithfulness(search.held_out_strengths(fold_indices)) if helped else aopc,
        },
    }
    made = {"by": "calibration", "method": calibration.method.name, "texts": len(calibration.texts), "source": source}
    return as_mask(explainer, strengths, groups, {**made, **asdict(settings), **results})


def interval(gains: Tensor) -> list[float] | None:
    """95 % limits of the mean gain; None if they are undefined, for example because no step changed any strength."""
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
    """Each text with its target and foil once, because a copy among held-out texts would be evaluated on training data.

    Texts with the same tokens, such as those that differ in a blank at the end, are copies.
    """
    if isinstance(texts, str | tuple):
        raise RefusedType("calibration needs a list of texts, for example 50 to 500; found a single text")
    listed, _ = texts_of(texts)
    targets, foils = spread(target, len(listed), "target"), spread(foil, len(listed), "foil")
    texts_by_content: dict[str, tuple[Text, Any, Any]] = {}
    tokenized_texts = explainer.encode(listed)
    for tokenized_text, text, text_target, text_foil in zip(tokenized_texts, listed, targets, foils, strict=True):
        content = repr((tokenized_text.input_ids, tokenized_text.token_type_ids, text_target, text_foil))
        texts_by_content.setdefault(content, (text, text_target, text_foil))
    kept, targets, foils = (list(column) for column in zip(*texts_by_content.values(), strict=True))
    return kept, targets, foils


def relevance_method(name: str) -> Method:
    """The method of this name; refused if it has no option `heads`, or always uses calibrated strengths."""
    chosen = find_method(name)
    names = [
        entry.name for entry in METHODS.values() if "heads" in entry.options and entry.options["heads"] != CALIBRATED
    ]
    if chosen.name not in names:
        raise RefusedValue(f"method '{chosen.name}' has no heads to calibrate; methods that have: {', '.join(names)}")
    return chosen
