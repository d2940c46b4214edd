"""Metrics from papers on answers of language models. A curve has probabilities [point]; point 0 is the whole input."""

import torch
from torch import Tensor

from tokenlight.metrics import metric
from tokenlight.metrics.agreement import spearman
from tokenlight.metrics.curves import LOG_RATIO, PROBABILITY, area, check_curve, log_ratio
from tokenlight.metrics.evidence import check_k
from tokenlight.metrics.perturbation import TWENTIETHS, Perturbation

TINY = torch.finfo(torch.float64).tiny  # used in place of a probability of 0, which has no logarithm
PADDED = Perturbation(removal="pad", grid=TWENTIETHS)  # how FlashTrace's release removes tokens


@metric(
    title="Top-k drop",
    title_format="Top-{k} drop",
    paper="Cohen-Wang et al. 2024",
    direction="higher",
    needs="removed",
    grid_with=lambda options: (check_k(options["k"]),),
    points=LOG_RATIO,
)
def top_k_drop(curve: Tensor, *, k: int = 1, steps: int = 1) -> float:
    """Decrease of the target's log-probability without the top k units: ln p − ln p_k, summed over its tokens.

    ContextCite (arXiv 2409.00729), section 3. `steps` is the number of the target's tokens; the curve holds the
    geometric mean of their probabilities.
    """
    curve = check_curve(curve)
    return -steps * float(log_ratio(curve[0], curve[-1], floor=TINY))


@metric(
    title="LDS",
    paper="Park et al. 2023; Cohen-Wang et al. 2024",
    direction="higher",
    needs="ablated",
    perturbation=Perturbation(ablations=64, seed=1),  # other sets than those that the method is fitted to
    bounds=(-1, 1),
)
def linear_datamodeling_score(curve: Tensor, *, left: Tensor) -> float:
    """Spearman correlation, over random sets of units, of the remaining scores with the target's probability.

    ContextCite (arXiv 2409.00729), section 3: `left`, the sum of the scores of the units that were not removed,
    predicts the target's probability. Ranks are the same for p, ln p and ContextCite's ln(p / (1 − p)).
    """
    return spearman(left[1:], check_curve(curve, 3)[1:])


@metric(
    title="RISE",
    paper="Petsiuk et al. 2018; Pan et al. 2026",
    direction="lower",
    needs="removed",
    perturbation=PADDED,
    points=PROBABILITY,
    bounds=(0, 1),
)
def rise(curve: Tensor, *, at: Tensor | None = None) -> float:
    """Area under ln p, rescaled from 1 (whole input) to 0 (none of it), while the top units are replaced by padding.

    Computed as in the releases of FlashTrace (arXiv 2602.01914) and CAGE (arXiv 2512.15663): the heights are
    (ln p_k − ln p_last) / |ln p − ln p_last|, clipped to [0, 1], each the minimum of all so far. If the target is more
    likely without the text, the value is 0 for any scores.
    """
    curve = check_curve(curve)
    shares = point_shares(curve, at)
    return area(normalized_heights(curve, shares), shares)


@metric(
    title="MAS",
    paper="Walker et al. 2024; Pan et al. 2026",
    direction="lower",
    needs="removed",
    perturbation=PADDED,
    points=PROBABILITY,
    bounds=(0, 1),
)
def mas(curve: Tensor, *, left: Tensor, at: Tensor | None = None) -> float:
    """RISE with a penalty where the share of the remaining scores differs from the height (magnitude aligned scoring).

    The height of a point becomes r + |r − d|, where r is RISE's height and d the remaining units' share of all scores,
    clipped to [0, 1] and then rescaled to span it. If the sum of the scores is not positive, d decreases linearly.
    """
    curve = check_curve(curve)
    shares = point_shares(curve, at)
    heights = normalized_heights(curve, shares)
    remaining = left / left[0] if left[0] > 0 else 1 - shares
    penalized = (heights + (heights - remaining).abs()).clamp(0, 1)
    low, high = penalized.min(), penalized.max()
    return area((penalized - low) / (high - low) if high > low else 1 - shares, shares)


def normalized_heights(curve: Tensor, shares: Tensor) -> Tensor:
    """[point] ln p, rescaled to decrease from 1 to 0; a straight line if its ends are equal."""
    log_p = curve.clamp_min(TINY).log()
    change = (log_p[0] - log_p[-1]).abs()
    if change == 0:
        return 1 - shares
    return ((log_p - log_p[-1]) / change).clamp(0, 1).cummin(0).values


def point_shares(curve: Tensor, at: Tensor | None) -> Tensor:
    """[point] the removed share at each point: `at`, or evenly spaced from 0 to 1."""
    return torch.linspace(0, 1, len(curve), dtype=curve.dtype) if at is None else at
