"""How alike two explanations of one text are: of two classes, of two models, of two methods.

A row of equal scores has no order: two such rows agree (1), one of them agrees with nothing (0).
"""

from math import sqrt

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.metrics import metric
from tokenlight.metrics.ranking import check_scores, order, ranks, share_up, top


@metric(
    title="Kendall-τ",
    paper="Qiang et al. 2022, eq. 15",
    direction="lower",
    needs="others",
    compares="classes",
    bounds=(-1, 1),
)
def kendall_confidence(scores: Tensor, others: Tensor, *, variant: str = "ranks") -> float:
    """Kendall's τ-b between the scores for two classes.

    variant="argsort" is the published version: τ between the two arrays of sorted indices, which does not measure how
    well the rankings agree.
    """
    one, two = check_pair(scores, others)
    if variant == "argsort":
        one, two = (torch.tensor(order(row), dtype=torch.float64) for row in (one, two))
    elif variant != "ranks":
        raise RefusedValue(f"variant is 'ranks' or 'argsort'; found {variant!r}")
    return kendall(one, two)


@metric(
    title="Jaccard-25%",
    numbered="Jaccard-{share:.0%}",
    paper="Zafar et al. 2021; Ferrando et al. 2022, section 5.2",
    direction="higher",
    needs="others",
    compares="models",
    bounds=(0, 1),
)
def jaccard_top(scores: Tensor, others: Tensor, *, share: float = 0.25) -> float:
    """Tokens that are in the top share of both, divided by those in the top share of either; rounded up."""
    if not 0 < share <= 1:
        raise RefusedValue(f"share is above 0 and at most 1, found {share}")
    one, two = check_pair(scores, others)
    k = share_up(len(one), share)
    first, second = set(top(one, k)), set(top(two, k))
    return len(first & second) / len(first | second)


@metric(
    title="Spearman",
    paper="Spearman 1904; Ferrando et al. 2022, section 5.2",
    direction="higher",
    needs="others",
    compares="models",
    bounds=(-1, 1),
)
def spearman(scores: Tensor, others: Tensor, *, variant: str = "ranks") -> float:
    """Correlation of the ranks, where equal scores share the average of their ranks.

    variant="dense" is the ALTI release: 1 − 6Σd² / (n³ − n) on dense ranks, which is no correlation if scores tie.
    """
    one, two = check_pair(scores, others)
    if variant == "dense":
        difference = ranks(-one, "dense") - ranks(-two, "dense")  # from the lowest up, as there
        n = len(one)
        return float(1 - 6 * difference.square().sum() / (n**3 - n)) if n > 1 else 1.0
    if variant != "ranks":
        raise RefusedValue(f"variant is 'ranks' or 'dense'; found {variant!r}")
    return correlation(ranks(one) - (len(one) + 1) / 2, ranks(two) - (len(two) + 1) / 2)


def kendall(one: Tensor, two: Tensor) -> float:
    """τ-b over all pairs of tokens."""
    i, j = torch.triu_indices(len(one), len(one), offset=1)
    return correlation((one[i] - one[j]).sign(), (two[i] - two[j]).sign())


def correlation(one: Tensor, two: Tensor) -> float:
    """Cosine of two centered rows."""
    size_one, size_two = float(one.square().sum()), float(two.square().sum())
    if size_one == 0 or size_two == 0:
        return float(size_one == size_two)
    return float((one * two).sum()) / sqrt(size_one * size_two)


def check_pair(scores: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    one, two = check_scores(scores), check_scores(others)
    if len(one) != len(two):
        raise RefusedValue(f"the two explanations have {len(one)} and {len(two)} tokens: they are not of one text")
    return one, two
