"""Metrics that reduce a curve to a number. A curve has probabilities [point]; point 0 is the whole, unchanged input."""

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.metrics import Points, metric
from tokenlight.metrics.perturbation import BINS, Perturbation

FLOOR = 1e-12


def decrease(p: Tensor, p_k: Tensor) -> Tensor:
    return p - p_k


def log_ratio(p: Tensor, p_k: Tensor, *, floor: float = FLOOR) -> Tensor:
    """ln(p_k / p), where probabilities are at least `floor`, since that of a deleted answer is 0."""
    return p_k.clamp_min(floor).log() - p.clamp_min(floor).log()


def probability(p: Tensor, p_k: Tensor) -> Tensor:
    return p_k


DECREASE = Points("p − p_k", decrease)
LOG_RATIO = Points("ln(p_k / p)", log_ratio)
PROBABILITY = Points("probability", probability)


@metric(
    title="AOPC",
    paper="Samek et al. 2017; Nguyen 2018; Qiang et al. 2022, eq. 13; Song et al. 2024, eq. 12",
    direction="higher",
    needs="removed",
    points=DECREASE,
    bounds=(-1, 1),
)
def aopc(curve: Tensor, *, absolute: bool = False) -> float:
    """Mean decrease of the probability, p − p_k; absolute=True is the AttCAT release, the mean of |p − p_k|."""
    decreases = decrease(check_curve(curve)[0], curve[1:])
    return float((decreases.abs() if absolute else decreases).mean())


@metric(
    title="LOdds",
    paper="Shrikumar et al. 2017; Qiang et al. 2022, eq. 14; Song et al. 2024, appendix D",
    direction="lower",
    needs="removed",
    points=LOG_RATIO,
)
def log_odds(curve: Tensor, *, floor: float = FLOOR) -> float:
    """Mean of ln(p_k / p), where probabilities are at least `floor`, since that of a deleted answer is 0."""
    return float(log_ratio(check_curve(curve)[0], curve[1:], floor=floor).mean())


@metric(
    title="Comprehensiveness",
    paper="DeYoung et al. 2020; Ferrando et al. 2022, eq. 12",
    direction="higher",
    needs="removed",
    perturbation=Perturbation(grid=BINS),
    points=DECREASE,
    bounds=(-1, 1),
)
def comprehensiveness(curve: Tensor, *, envelope: bool = False, plus_one: bool = False) -> float:
    """Mean of p − p_k, where p_k is the probability without the top k tokens.

    envelope: p_k is the lowest probability so far, including p, as in the ALTI release. plus_one: the sum is divided
    by the number of points + 1, as in the ALTI paper (eq. 12 and 13) and release.
    """
    curve = check_curve(curve)
    points = curve.cummin(0).values if envelope else curve
    return mean_plus_one(decrease(curve[0], points[1:]), plus_one)


@metric(
    title="Sufficiency",
    paper="DeYoung et al. 2020; Ferrando et al. 2022, eq. 13",
    direction="lower",
    needs="kept",
    perturbation=Perturbation(grid=BINS, keep="top"),
    points=DECREASE,
    bounds=(-1, 1),
)
def sufficiency(curve: Tensor, *, envelope: bool = False, plus_one: bool = False, empty: bool = False) -> float:
    """Mean of p − p_k, where p_k is the probability with only the top k tokens.

    envelope: p_k is the highest probability so far, as in the ALTI release. empty: point 1 is the input without any
    eligible token; only the envelope includes it. plus_one: as for comprehensiveness.
    """
    curve = check_curve(curve, 3 if empty else 2)
    points = curve[1:].cummax(0).values if envelope else curve[1:]
    return mean_plus_one(decrease(curve[0], points[1 if empty else 0 :]), plus_one)


@metric(
    title="Deletion", paper="Petsiuk et al. 2018", direction="lower", needs="removed", points=PROBABILITY, bounds=(0, 1)
)
def deletion(curve: Tensor, *, at: Tensor | None = None) -> float:
    """Area under the probability while the top tokens are removed; `at` is the share removed at each point."""
    return area(check_curve(curve), at)


@metric(
    title="Insertion",
    paper="Petsiuk et al. 2018",
    direction="higher",
    needs="kept",
    perturbation=Perturbation(keep="top", empty=True),
    points=PROBABILITY,
    bounds=(0, 1),
)
def insertion(curve: Tensor, *, at: Tensor | None = None) -> float:
    """Area under the probability while the top tokens are inserted; `at` is the share inserted at each point."""
    return area(check_curve(curve, 3)[1:], None if at is None else at[1:])


def area(curve: Tensor, at: Tensor | None = None) -> float:
    """Area by the trapezoidal rule, divided by its width. Without `at`, the points are evenly spaced."""
    positions = torch.arange(len(curve), dtype=curve.dtype) if at is None else torch.as_tensor(at).to(curve.dtype)
    if positions.shape != curve.shape:
        raise RefusedValue(f"`at` needs one position for each of the {len(curve)} points, found {len(positions)}")
    if not (positions.diff() >= 0).all() or not positions[-1] > positions[0]:
        raise RefusedValue(f"the positions of a curve's points must be in rising order, found {positions.tolist()}")
    return float(torch.trapezoid(curve, positions) / (positions[-1] - positions[0]))


def mean_plus_one(terms: Tensor, plus_one: bool) -> float:
    """The mean of the terms, or their sum divided by their number + 1."""
    return float(terms.sum() / (len(terms) + plus_one))


def check_curve(curve: Tensor, points: int = 2) -> Tensor:
    """The curve in double precision. It is refused if it has fewer than `points` points."""
    if curve.ndim != 1 or len(curve) < points:
        raise RefusedValue(
            f"expected a curve of {points} or more points, the whole input first; found {curve.tolist()}"
        )
    return curve.double()
