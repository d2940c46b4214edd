"""From a curve to a number. A curve holds probabilities [point]; point 0 is the whole, unchanged input."""

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.metrics import Points, metric
from tokenlight.metrics.perturbation import BINS, Perturbation

FLOOR = 1e-12


def fall(p: Tensor, p_k: Tensor) -> Tensor:
    return p - p_k


def log_ratio(p: Tensor, p_k: Tensor, *, floor: float = FLOOR) -> Tensor:
    """ln(p_k / p); probabilities below `floor` count as the floor, since a deleted answer has probability 0."""
    return p_k.clamp_min(floor).log() - p.clamp_min(floor).log()


def height(p: Tensor, p_k: Tensor) -> Tensor:
    return p_k


FALL = Points("p − p_k", fall)
LOG_RATIO = Points("ln(p_k / p)", log_ratio)
HEIGHT = Points("probability", height)


@metric(
    title="AOPC",
    paper="Samek et al. 2017; Nguyen 2018; Qiang et al. 2022, eq. 13; Song et al. 2024, eq. 12",
    direction="higher",
    needs="removed",
    points=FALL,
    bounds=(-1, 1),
)
def aopc(curve: Tensor, *, absolute: bool = False) -> float:
    """Mean fall of the probability, p − p_k; absolute=True is the AttCAT release, the mean of |p − p_k|."""
    falls = fall(check_curve(curve)[0], curve[1:])
    return float((falls.abs() if absolute else falls).mean())


@metric(
    title="LOdds",
    paper="Shrikumar et al. 2017; Qiang et al. 2022, eq. 14; Song et al. 2024, eq. 13",
    direction="lower",
    needs="removed",
    points=LOG_RATIO,
)
def log_odds(curve: Tensor, *, floor: float = FLOOR) -> float:
    """Mean of ln(p_k / p); probabilities below `floor` count as the floor, since a deleted answer has probability 0."""
    return float(log_ratio(check_curve(curve)[0], curve[1:], floor=floor).mean())


@metric(
    title="Comprehensiveness",
    paper="DeYoung et al. 2020; Ferrando et al. 2022, eq. 12",
    direction="higher",
    needs="removed",
    perturbation=Perturbation(grid=BINS),
    points=FALL,
    bounds=(-1, 1),
)
def comprehensiveness(curve: Tensor, *, envelope: bool = False, plus_one: bool = False) -> float:
    """Mean of p − p_k, where p_k is the probability without the top k tokens.

    envelope: p_k is the lowest probability so far, p included, as in the ALTI release. plus_one: the sum is divided
    by the number of points + 1, as in the ALTI paper (eq. 12 and 13) and release.
    """
    curve = check_curve(curve)
    points = curve.cummin(0).values if envelope else curve
    return average(fall(curve[0], points[1:]), plus_one)


@metric(
    title="Sufficiency",
    paper="DeYoung et al. 2020; Ferrando et al. 2022, eq. 13",
    direction="lower",
    needs="kept",
    perturbation=Perturbation(grid=BINS, keep="top"),
    points=FALL,
    bounds=(-1, 1),
)
def sufficiency(curve: Tensor, *, envelope: bool = False, plus_one: bool = False, empty: bool = False) -> float:
    """Mean of p − p_k, where p_k is the probability with only the top k tokens.

    envelope: p_k is the highest probability so far, as in the ALTI release. empty: point 1 is the input without any
    of its tokens, which counts for the envelope only. plus_one: as for comprehensiveness.
    """
    curve = check_curve(curve, 3 if empty else 2)
    points = curve[1:].cummax(0).values if envelope else curve[1:]
    return average(fall(curve[0], points[1 if empty else 0 :]), plus_one)


@metric(title="Deletion", paper="Petsiuk et al. 2018", direction="lower", needs="removed", points=HEIGHT, bounds=(0, 1))
def deletion(curve: Tensor, *, at: Tensor | None = None) -> float:
    """Area under the probability while the top tokens are removed; `at` is the share removed at each point."""
    return area(check_curve(curve), at)


@metric(
    title="Insertion",
    paper="Petsiuk et al. 2018",
    direction="higher",
    needs="kept",
    perturbation=Perturbation(keep="top", empty=True),
    points=HEIGHT,
    bounds=(0, 1),
)
def insertion(curve: Tensor, *, at: Tensor | None = None) -> float:
    """Area under the probability while the top tokens are inserted; `at` is the share inserted at each point."""
    return area(check_curve(curve, 3)[1:], None if at is None else at[1:])


def area(curve: Tensor, at: Tensor | None = None) -> float:
    """Area by trapezoids, divided by the width: the mean height. Without `at` the points are equally far apart."""
    places = torch.arange(len(curve), dtype=curve.dtype) if at is None else torch.as_tensor(at).to(curve.dtype)
    if places.shape != curve.shape:
        raise RefusedValue(f"{len(curve)} points of a curve need as many places, found {len(places)}")
    if not (places.diff() >= 0).all() or not places[-1] > places[0]:
        raise RefusedValue(f"the points of a curve must come in rising order, found {places.tolist()}")
    return float(torch.trapezoid(curve, places) / (places[-1] - places[0]))


def average(terms: Tensor, plus_one: bool) -> float:
    return float(terms.sum() / (len(terms) + plus_one))


def check_curve(curve: Tensor, points: int = 2) -> Tensor:
    if curve.ndim != 1 or len(curve) < points:
        raise RefusedValue(
            f"expected a curve of {points} points or more, the whole input first; found {curve.tolist()}"
        )
    return curve
