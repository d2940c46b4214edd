"""Metrics of papers on answers of language models. A curve holds probabilities [point]; point 0 is the whole input."""

import torch
from torch import Tensor

from tokenlight.metrics import metric
from tokenlight.metrics.agreement import spearman
from tokenlight.metrics.curves import HEIGHT, LOG_RATIO, area, check_curve, log_ratio
from tokenlight.metrics.evidence import positive
from tokenlight.metrics.perturbation import TWENTIETHS, Perturbation

TINY = torch.finfo(torch.float64).tiny  # stands for a probability of 0, which has no logarithm
PADDED = Perturbation(removal="replace", token="pad", grid=TWENTIETHS)  # as FlashTrace's release takes tokens away


@metric(
    title="Top-k drop",
    numbered="Top-{k} drop",
    paper="Cohen-Wang et al. 2024",
    direction="higher",
    needs="removed",
    grid_with=lambda options: (positive(options["k"]),),
    points=LOG_RATIO,
)
def top_k_drop(curve: Tensor, *, k: int = 1, steps: int = 1) -> float:
    """Fall of the target's log-probability without the top k units: ln p − ln p_k, for all its tokens together.

    ContextCite (arXiv 2409.00729), section 3. `steps` is the number of tokens whose geometric mean the curve holds.
    """
    check_curve(curve)
    return -steps * float(log_ratio(curve[0], curve[-1], floor=TINY))


@metric(
    title="LDS",
    paper="Park et al. 2023; Cohen-Wang et al. 2024",
    direction="higher",
    needs="ablated",
    perturbation=Perturbation(ablations=64, seed=1),  # other sets than the method ContextCite is fitted to
    bounds=(-1, 1),
)
def linear_datamodeling_score(curve: Tensor, *, left: Tensor) -> float:
    """Spearman correlation, over random sets of units, of the remaining scores with the target's probability.

    ContextCite (arXiv 2409.00729), section 3: `left`, the sum of the scores of the units that were not taken away,
    predicts the target's probability. Ranks are the same for p, for ln p and for ContextCite's ln(p / (1 − p)).
    """
    return spearman(left[1:], check_curve(curve, 3)[1:])


@metric(
    title="RISE",
    paper="Petsiuk et al. 2018; Pan et al. 2026",
    direction="lower",
    needs="removed",
    perturbation=PADDED,
    points=HEIGHT,
    bounds=(0, 1),
)
def rise(curve: Tensor, *, at: Tensor | None = None) -> float:
    """Area under ln p while the top units are replaced by padding, from 1 (the whole input) to 0 (none of it).

    As the releases of FlashTrace (arXiv 2602.01914) and CAGE (arXiv 2512.15663) compute it: the heights are
    (ln p_k − ln p_last) / |ln p − ln p_last|, cut to 0 and 1, and never rise. A target that is more likely
    without the text gets 0 whatever the scores are.
    """
    places = spaced(curve, at)
    return area(response(check_curve(curve), places), places)


@metric(
    title="MAS",
    paper="Walker et al. 2024; Pan et al. 2026",
    direction="lower",
    needs="removed",
    perturbation=PADDED,
    points=HEIGHT,
    bounds=(0, 1),
)
def mas(curve: Tensor, *, left: Tensor, at: Tensor | None = None) -> float:
    """RISE with a penalty where the share of the remaining scores differs from the height (magnitude aligned scoring).

    The height of a point becomes r + |r − d|, where r is RISE's height and d the share of all scores that the
    remaining units have, cut to 0 and 1 and stretched from 0 to 1. If the scores do not have a positive sum, d falls
    evenly.
    """
    places = spaced(curve, at)
    heights = response(check_curve(curve), places)
    shares = left / left[0] if left[0] > 0 else 1 - places
    corrected = (heights + (heights - shares).abs()).clamp(0, 1)
    low, high = corrected.min(), corrected.max()
    return area((corrected - low) / (high - low) if high > low else 1 - places, places)


def response(curve: Tensor, places: Tensor) -> Tensor:
    """[point] ln p from 1 to 0; where nothing changes it, a straight line."""
    scores = curve.clamp_min(TINY).log()
    height = (scores[0] - scores[-1]).abs()
    if height == 0:
        return 1 - places
    return ((scores - scores[-1]) / height).clamp(0, 1).cummin(0).values


def spaced(curve: Tensor, at: Tensor | None) -> Tensor:
    """[point] from 0 to 1, evenly if nobody says where the points stand."""
    return torch.linspace(0, 1, len(curve), dtype=curve.dtype) if at is None else at
