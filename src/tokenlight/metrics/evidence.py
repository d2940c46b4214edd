"""How well scores find the tokens that are known to matter: `marks` [token] says which.

Where scores tie, the value is the expected one over all orders of the tied tokens (ties="expected"), so constant
scores get what chance gets; ties="first" takes the earlier token, as a stable sort does. Without a marked token there
is nothing to find, which is an error and not a 0.
"""

from collections.abc import Sequence
from math import comb, inf

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.metrics import metric
from tokenlight.metrics.ranking import check_scores, ranks

TIES = ("expected", "first")


@metric(
    title="Precision@K",
    numbered="Precision@{k}",
    paper="Qiang et al. 2022, section 5.3",
    direction="higher",
    needs="marks",
    bounds=(0, inf),
    bounds_with=lambda options, most_marked: (0, min(options["k"], most_marked)),
)
def precision_at_k(scores: Tensor, marks: Tensor, *, k: int = 20, ties: str = "expected") -> float:
    """How many marked tokens are among the k highest: a count, as in AttCAT."""
    scores, marks = broken_ties(scores, marks, ties)
    k = min(positive(k), len(scores))
    lowest = scores.sort(descending=True).values[k - 1]  # the score of the last token that still fits
    above, level = scores > lowest, scores == lowest
    seats = k - int(above.sum())
    return int((above & marks).sum()) + seats * int((level & marks).sum()) / int(level.sum())


@metric(
    title="Recall@K",
    numbered="Recall@{k}",
    paper="Song et al. 2024, appendix D",
    direction="higher",
    needs="marks",
    weighted=True,
    bounds=(0, 100),
)
def recall_at_k(scores: Tensor, marks: Tensor, *, k: int = 20, ties: str = "expected") -> float:
    """Share of the marked tokens that are among the k highest, in %.

    Averaged over texts with `micro_average`, this is Mask-LRP's Precision@20: found tokens / marked tokens of all.
    """
    return 100 * precision_at_k(scores, marks, k=k, ties=ties) / int(check_marks(scores, marks).sum())


@metric(
    title="PG",
    numbered="PG-{k}",
    paper="Zhang et al. 2018; Arras et al. 2025, section 3.3",
    direction="higher",
    needs="marks",
    bounds=(0, 1),
    binary=True,
)
def pointing_game(scores: Tensor, marks: Tensor, *, k: int = 2, ties: str = "expected") -> float:
    """1 if a marked token is among the k highest, else 0; for ties, the probability of it."""
    scores, marks = broken_ties(scores, marks, ties)
    above, marked, others = best_level(scores, marks)
    seats = min(positive(k), len(scores)) - above
    return 1 - missed(seats, marked, others) if seats > 0 else 0.0


@metric(
    title="MRR",
    paper="Arras et al. 2025, section 3.3; Ferrando et al. 2023",
    direction="higher",
    needs="marks",
    bounds=(0, 1),
)
def mean_reciprocal_rank(scores: Tensor, marks: Tensor, *, ties: str = "expected") -> float:
    """1 / rank of the best marked token; ties="dense" is Ferrando's rank, tokens − dense rank from below + 1."""
    if ties == "dense":
        marks = check_marks(scores, marks)
        from_below = ranks(-check_scores(scores), "dense")
        return float(1 / (len(from_below) - from_below[marks].max() + 1))
    scores, marks = broken_ties(scores, marks, ties)
    above, marked, others = best_level(scores, marks)
    chances = [missed(j, marked, others) - missed(j + 1, marked, others) for j in range(others + 1)]
    return sum(chance / (above + j + 1) for j, chance in enumerate(chances))


@metric(title="RMA", paper="Arras et al. 2022; 2025, section 3.3", direction="higher", needs="marks", bounds=(0, 1))
def relevance_mass(scores: Tensor, marks: Tensor) -> float:
    """Share of the positive relevance that falls on marked tokens; 0 if no score is positive."""
    marks, positive_part = check_marks(scores, marks), check_scores(scores).clamp_min(0)
    total = positive_part.sum()
    return float(positive_part[marks].sum() / total) if total > 0 else 0.0


@metric(title="PTA", paper="Arras et al. 2025, section 3.3", direction="higher", needs="marks", bounds=(0, 1))
def per_token_accuracy(scores: Tensor, marks: Tensor) -> float:
    """Share of tokens that are marked and above 0, or neither; a score of exactly 0 is not above."""
    marks = check_marks(scores, marks)
    return float(((check_scores(scores) > 0) == marks).double().mean())


def micro_average(values: Sequence[float], marks: Sequence[Tensor]) -> float:
    """The mean over marked tokens instead of over texts: 100·Σ found / Σ marked for `recall_at_k`."""
    weights = [int(torch.as_tensor(one).sum()) for one in marks]
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def best_level(scores: Tensor, marks: Tensor) -> tuple[int, int, int]:
    """Tokens above the best marked one; marked ones and others exactly level with it."""
    best = scores[marks].max()
    level = scores == best
    return int((scores > best).sum()), int((level & marks).sum()), int((level & ~marks).sum())


def missed(draws: int, marked: int, others: int) -> float:
    """The chance that `draws` tokens, drawn in random order, are all unmarked."""
    return comb(others, draws) / comb(marked + others, draws) if draws <= others else 0.0


def broken_ties(scores: Tensor, marks: Tensor, ties: str) -> tuple[Tensor, Tensor]:
    if ties not in TIES:
        raise RefusedValue(f"ties is one of {', '.join(TIES)}; found {ties!r}")
    marks = check_marks(scores, marks)
    return (-ranks(scores, "first") if ties == "first" else check_scores(scores)), marks


def check_marks(scores: Tensor, marks: Tensor) -> Tensor:
    marks = torch.as_tensor(marks).cpu()
    if marks.dtype != torch.bool or marks.shape != scores.shape:
        found = f"{marks.dtype} of shape {tuple(marks.shape)}"
        raise RefusedValue(f"marks is True or False for each of the {len(scores)} tokens, found {found}")
    if not marks.any():
        raise RefusedValue("no token is marked: there is nothing that the scores could find")
    return marks


def positive(k: int) -> int:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise RefusedValue(f"k counts tokens, 1 or more; found {k!r}")
    return k
