"""Which heads should relevance flow through? Those that make a method agree with what taking tokens away does."""

from collections.abc import Iterable
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.calibration.checkpoint import Checkpoint
from tokenlight.calibration.stages import Calibration, CalibrationSettings, chance_of
from tokenlight.explain.explainer import Explainer
from tokenlight.foundation.intervals import mean_interval
from tokenlight.masks.choosing import CALIBRATED, HeadsLike, choose_heads, model_name, own_heads
from tokenlight.masks.head_mask import HeadMask
from tokenlight.methods import METHODS, Method, find_method
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.model.fingerprint import fingerprint
from tokenlight.tasks.targets import spread
from tokenlight.text.chats import texts_of
from tokenlight.text.rows import Text

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
        raise ValueError(f"steps is a positive number, found {steps}")
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
        raise TypeError("calibration needs a list of texts, 50 to 500 for example; found a single one")
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
        raise ValueError(f"method '{found.name}' has no heads to calibrate; methods that have: {', '.join(able)}")
    return found
