"""Metrics of agreement between two explanations of the same text: for two classes, two models or two methods.

Equal scores for all tokens have no order: if both explanations are like that, they agree (1); if only one is, they do
not (0).
"""

from math import sqrt

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.metrics import metric
from tokenlight.metrics.ranking import check_scores, order, ranks, round_share_up, top


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

    variant="argsort" is the published version: τ between the two arrays of sorted indices, which does not measure
    agreement of the rankings.
    """
    first, second = check_pair(scores, others)
    if variant == "argsort":
        first, second = (torch.tensor(order(values), dtype=torch.float64) for values in (first, second))
    elif variant != "ranks":
        raise RefusedValue(f"variant is 'ranks' or 'argsort'; found {variant!r}")
    return kendall(first, second)


@metric(
    title="Jaccard-25%",
    title_format="Jaccard-{share:.0%}",
    paper="Zafar et al. 2021; Ferrando et al. 2022, section 5.2",
    direction="higher",
    needs="others",
    compares="models",
    bounds=(0, 1),
)
def jaccard_top(scores: Tensor, others: Tensor, *, share: float = 0.25) -> float:
    """Number of tokens in the top share of both explanations, divided by the number in the top share of either.

    The number of tokens in a top share is rounded up.
    """
    if not 0 < share <= 1:
        raise RefusedValue(f"share must be greater than 0 and at most 1, found {share}")
    first, second = check_pair(scores, others)
    k = round_share_up(len(first), share)
    first_top, second_top = set(top(first, k)), set(top(second, k))
    return len(first_top & second_top) / len(first_top | second_top)


@metric(
    title="Spearman",
    paper="Spearman 1904; Ferrando et al. 2022, section 5.2",
    direction="higher",
    needs="others",
    compares="models",
    bounds=(-1, 1),
)
def spearman(scores: Tensor, others: Tensor, *, variant: str = "ranks") -> float:
    """Correlation of the ranks; equal scores have the average of their ranks.

    variant="dense" is the ALTI release: 1 − 6Σd² / (n³ − n) on dense ranks, which is not a correlation if scores tie.
    """
    first, second = check_pair(scores, others)
    if variant == "dense":
        difference = ranks(-first, "dense") - ranks(-second, "dense")  # the release ranks from the lowest score up
        n = len(first)
        return float(1 - 6 * difference.square().sum() / (n**3 - n)) if n > 1 else 1.0
    if variant != "ranks":
        raise RefusedValue(f"variant is 'ranks' or 'dense'; found {variant!r}")
    return cosine(ranks(first) - (len(first) + 1) / 2, ranks(second) - (len(second) + 1) / 2)


def kendall(first: Tensor, second: Tensor) -> float:
    """τ-b over all pairs of tokens."""
    i, j = torch.triu_indices(len(first), len(first), offset=1)
    return cosine((first[i] - first[j]).sign(), (second[i] - second[j]).sign())


def cosine(first: Tensor, second: Tensor) -> float:
    """Cosine of two vectors; 1 if both are 0, 0 if only one is."""
    first_norm, second_norm = float(first.square().sum()), float(second.square().sum())  # squared
    if first_norm == 0 or second_norm == 0:
        return float(first_norm == second_norm)
    return float((first * second).sum()) / sqrt(first_norm * second_norm)


def check_pair(scores: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Both in double precision. Scores of different lengths are refused."""
    first, second = check_scores(scores), check_scores(others)
    if len(first) != len(second):
        raise RefusedValue(
            f"the two explanations have {len(first)} and {len(second)} tokens: they must be of the same text"
        )
    return first, second
