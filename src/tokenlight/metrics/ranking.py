"""Tokens in the order of their scores, and what ties mean."""

from math import ceil

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue

TIES = ("average", "min", "max", "first", "dense")


def check_scores(scores: Tensor) -> Tensor:
    """In double precision, one row, all finite."""
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
        raise RefusedValue(f"k counts tokens, found {k}")
    return order(scores, absolute=absolute)[:k]


def share_up(count: int, share: float) -> int:
    """A share of a count, rounded up; 0.7 × 10 is 7, although computers make a little more of it."""
    return ceil(count * share - 1e-9)


def ranks(scores: Tensor, ties: str = "average") -> Tensor:
    """[token] 1 for the highest score. Equal scores share the average, min or max of their places, or go by position
    ("first"); with "dense" the next lower score gets the next number, however many tokens share the one before."""
    scores = check_scores(scores)
    if ties not in TIES:
        raise RefusedValue(f"ties is one of {', '.join(TIES)}; found {ties!r}")
    if ties == "first":
        places = torch.empty_like(scores)
        places[order(scores)] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
        return places
    if ties == "dense":
        return 1.0 + (torch.unique(scores)[None, :] > scores[:, None]).sum(1)
    higher = (scores[None, :] > scores[:, None]).sum(1)
    equal = (scores[None, :] == scores[:, None]).sum(1)  # with itself
    first, last = higher + 1.0, (higher + equal).double()
    return {"average": (first + last) / 2, "min": first, "max": last}[ties].double()
