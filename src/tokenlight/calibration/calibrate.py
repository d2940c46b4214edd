"""Which heads should relevance flow through? Those that make a method agree with what taking tokens away does."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.batch import Text
from tokenlight.calibration.agreement import (
    Measured,
    MeasuredBatch,
    agreement_and_slope,
    agreements,
    measured_batches,
)
from tokenlight.calibration.checkpoint import Checkpoint
from tokenlight.calibration.effects import Effects, measure_effects
from tokenlight.calibration.search import Climb, climb
from tokenlight.explainer import Explainer
from tokenlight.explanation import Explanation
from tokenlight.fingerprint import fingerprint
from tokenlight.heads.choose import choose_heads, model_name, own_heads
from tokenlight.heads.masks import HeadMask
from tokenlight.methods import METHODS, Method, find_method
from tokenlight.metrics.evaluate import Measure, evaluate
from tokenlight.metrics.goals import goals_of
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.progress import counting
from tokenlight.targets import spread
from tokenlight.twin import Twin

FEWEST = 12  # texts
CHUNK = 16  # texts that are measured between two looks at the disk
DRAWS = 2000  # of the bootstrap
DIGITS = 3  # of a strength in the mask


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


def calibrate(
    explainer: Explainer,
    texts: Sequence[Text],
    method: str = "attn_lrp",
    *,
    target: Any = None,
    foil: Any = None,
    perturbation: Perturbation | None = None,
    orders: int = 6,
    points: int = 30,
    held_back: float = 0.25,
    steps: int = 60,
    seed: int = 0,
    heads: Any = None,
    source: str | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> HeadMask:
    """Head strengths under which a relevance method is most faithful on these texts; no labels are needed.

    Tokens are taken away from every text in random `orders`, in `points` groups, by the `perturbation` (default: what
    the metrics do). Strengths in [0, 1] then follow the slope of the correlation between the tokens' scores and what
    the answer lost by them. The search ends after `steps`, or when the share of the texts that is `held_back` gains no
    more; if it has not gained at all, every head stays lit. `target` and `foil` are as in `explain`. The mask keeps
    the syntactic and positional groups of `heads` (default: the model's own), to be compared with. With a
    `checkpoint`, a run that was stopped goes on.
    """
    model = explainer._names.model
    groups = own_heads(model) if heads is None else choose_heads(heads, model)
    fitted = (perturbation or Perturbation()).fit(model, explainer.tokenizer)
    settings = Settings(fitted, orders, points, held_back, seed)
    if isinstance(texts, str) or len(texts) < FEWEST:
        raise ValueError(f"calibration needs a list of {FEWEST} texts or more (50 to 500 are best), found {len(texts)}")
    if steps < 1:
        raise ValueError(f"steps is a positive number, found {steps}")
    targets, foils = spread(target, len(texts), "target"), spread(foil, len(texts), "foil")
    work = Calibration(explainer, relevance_method(method), list(texts), targets, foils, settings)
    store = Checkpoint.open(None if checkpoint is None else Path(checkpoint), work.describe())
    searched, held = work.divide(work.measure(store, progress))
    state = work.search(searched, held, steps, store, progress)
    gains = work.gains(held, state.best)
    low, high = interval(gains)
    strengths = state.best.round(decimals=DIGITS) if low > 0 else torch.ones_like(state.best)
    before, after = (work.faithfulness(one) for one in (None, strengths))
    dark = torch.zeros_like(strengths)
    return HeadMask(
        syntactic=dark if groups is None else groups.syntactic,
        positional=dark if groups is None else groups.positional,
        calibrated=strengths,
        model=model_name(model),
        fingerprint=fingerprint(model),
        statistics=None if groups is None else groups.statistics,
        made={
            **{"by": "calibration", "method": work.method.name, "texts": len(work.texts), "source": source},
            **asdict(settings),
            "steps": state.steps,
            "helped": low > 0,
            "agreement": {"all heads": state.held[0], "gain": float(gains.mean()), "interval": [low, high]},
            "aopc": {"all heads": before, "calibrated": after},
        },
    )


@dataclass(frozen=True)
class Calibration:
    """One calibration: its model, method, texts and settings, and the steps it is made of."""

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
    def plain(self) -> list[Explanation]:
        """By the method with all heads."""
        return self._explain(range(len(self.texts)), None)

    @cached_property
    def order(self) -> list[int]:
        """Numbers of the texts: first those of the search, then those held back."""
        return random.Random(self.settings.seed).sample(range(len(self.texts)), len(self.texts))

    @property
    def cut(self) -> int:
        held = round(self.settings.held_back * len(self.texts))
        return len(self.texts) - min(max(held, 1), len(self.texts) - 1)

    def describe(self) -> dict[str, Any]:
        """What a checkpoint belongs to, in plain values."""
        known = [(e.text, e.indices, e.foil_indices, e.position) for e in self.plain]
        settings = asdict(self.settings)
        settings["perturbation"] = repr(self.settings.perturbation)
        digest = hashlib.sha256(repr(known).encode()).hexdigest()
        model = list(fingerprint(self.explainer._names.model))
        return {"model": model, "method": self.method.name, "texts": digest, **settings}

    def measure(self, store: Checkpoint, progress: bool) -> list[Effects]:
        """The effects of every text; those that the checkpoint holds are not measured again."""
        rows = self.explainer.encode(self.texts)
        goals = goals_of(self.explainer, self.twin, rows, self.plain, [None] * len(rows), [None] * len(rows))
        names = [f"{self.settings.seed} {i}" for i in range(len(rows))]
        how = (self.settings.perturbation, self.settings.orders, self.settings.points)
        with counting("measuring", len(rows), len(store.effects), progress) as advance:
            while (done := len(store.effects)) < len(rows):
                some = slice(done, done + CHUNK)
                found = measure_effects(self.explainer, self.twin, rows[some], goals[some], names[some], *how)
                store.add(found)
                advance(len(found))
        return store.effects

    def divide(self, effects: Sequence[Effects]) -> tuple[list[MeasuredBatch], list[MeasuredBatch]]:
        """Batches of the texts for the search, and of those held back."""
        rows = self.explainer.encode(self.texts)
        wanted = [
            self.explainer._names.want(row, target, foil)
            for row, target, foil in zip(rows, self.targets, self.foils, strict=True)
        ]
        measured = [Measured(rows[i], wanted[i], effects[i]) for i in self.order]
        parts = measured[: self.cut], measured[self.cut :]
        first, second = (measured_batches(self.explainer, self.twin, part) for part in parts)
        return first, second

    def search(
        self,
        searched: Sequence[MeasuredBatch],
        held: Sequence[MeasuredBatch],
        steps: int,
        store: Checkpoint,
        progress: bool,
    ) -> Climb:
        config = self.explainer._names.model.config.get_text_config()
        state = store.climb or Climb.start(config.num_hidden_layers, config.num_attention_heads)
        teach = partial(agreement_and_slope, self.twin, searched, self.method)
        with counting("searching", steps, state.steps, progress) as advance:
            for reached in climb(state, steps, teach, lambda s: float(self._agreements(held, s).mean())):
                store.reach(state := reached)
                advance(1)
        return state

    def gains(self, held: Sequence[MeasuredBatch], strengths: Tensor) -> Tensor:
        """[text held back] what these strengths add to the agreement."""
        return self._agreements(held, strengths) - self._agreements(held, torch.ones_like(strengths))

    def faithfulness(self, strengths: Tensor | None) -> float:
        """Mean AOPC on the texts that were held back; None: all heads."""
        held = self.order[self.cut :]
        explained = [self.plain[i] for i in held] if strengths is None else self._explain(held, strengths)
        found = evaluate(self.explainer, explained, [Measure("aopc", self.settings.perturbation)])
        return sum(one["aopc"] for one in found) / len(found)

    def _agreements(self, batches: Sequence[MeasuredBatch], strengths: Tensor) -> Tensor:
        return agreements(self.twin, batches, self.method, strengths)

    def _explain(self, places: Sequence[int], strengths: Tensor | None) -> list[Explanation]:
        texts, targets, foils = ([of[i] for i in places] for of in (self.texts, self.targets, self.foils))
        settings = {"target": targets, "foil": foils, "heads": strengths, "progress": False}
        return self.explainer.explain(texts, self.method.name, **settings)


def relevance_method(name: str) -> Method:
    found = find_method(name)
    if "heads" not in found.options:
        able = ", ".join(entry.name for entry in METHODS.values() if "heads" in entry.options)
        raise ValueError(f"method '{found.name}' has no heads to calibrate; methods that have: {able}")
    return found


def interval(values: Tensor) -> tuple[float, float]:
    """95 % of the mean, by a bootstrap over texts."""
    draws = torch.randint(len(values), (DRAWS, len(values)), generator=torch.Generator().manual_seed(0))
    low, high = torch.quantile(values[draws].mean(1), torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    return low, high
