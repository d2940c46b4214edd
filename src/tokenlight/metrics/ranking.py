"""Order and ranks of tokens by their scores, and how ties are handled."""

from math import ceil

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue

TIES = ("average", "min", "max", "first", "dense")


def check_scores(scores: Tensor) -> Tensor:
    """The scores [token] in double precision. They are refused unless there is one per token and all are finite."""
    scores = torch.as_tensor(scores).detach().cpu().double()
    if scores.ndim != 1 or not len(scores):
        raise RefusedValue(f"expected one score for each token, found shape {tuple(scores.shape)}")
    if not torch.isfinite(scores).all():
        raise RefusedValue("the scores are not all finite, so they have no order")
    return scores


def order(scores: Tensor, *, absolute: bool = False) -> list[int]:
    """Token indices from the highest score to the lowest; among equal scores the earlier token comes first."""
    scores = check_scores(scores)
    return torch.sort(scores.abs() if absolute else scores, descending=True, stable=True).indices.tolist()


def top(scores: Tensor, k: int, *, absolute: bool = False) -> list[int]:
    """The k tokens with the highest scores (all, if there are fewer)."""
    if k < 0:
        raise RefusedValue(f"k is a number of tokens, 0 or more; found {k}")
    return order(scores, absolute=absolute)[:k]


def round_share_up(count: int, share: float) -> int:
    """A share of a count, rounded up; 0.7 × 10 is 7, although the product of the two floats is slightly larger."""
    return ceil(count * share - 1e-9)


def ranks(scores: Tensor, ties: str = "average") -> Tensor:
    """[token] the rank of each score, 1 for the highest.

    Equal scores have the average, minimum or maximum of their ranks, or are ranked by position ("first"). With "dense",
    they have the same rank, and the next lower score has the next number.
    """
    scores = check_scores(scores)
    if ties not in TIES:
        raise RefusedValue(f"ties is one of {', '.join(TIES)}; found {ties!r}")
    if ties == "first":
        by_position = torch.empty_like(scores)
        by_position[order(scores)] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
        return by_position
    if ties == "dense":
        return 1.0 + (torch.unique(scores)[None, :] > scores[:, None]).sum(1)
    higher = (scores[None, :] > scores[:, None]).sum(1)
    equal = (scores[None, :] == scores[:, None]).sum(1)  # including itself
    first, last = higher + 1.0, (higher + equal).double()
    return {"average": (first + last) / 2, "min": first, "max": last}[ties].double()
