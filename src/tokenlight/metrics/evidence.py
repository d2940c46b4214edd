"""Metrics of how well scores find the tokens that are known to matter, given as booleans `marks` [token].

If scores tie, the value is the expectation over all orders of the tied tokens (ties="expected"), so that constant
scores get the value of chance; ties="first" puts the earlier token first, like a stable sort. A text without marked
tokens is an error, not a value of 0.
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
    title_format="Precision@{k}",
    paper="Qiang et al. 2022, section 5.3",
    direction="higher",
    needs="marks",
    bounds=(0, inf),
    bounds_with=lambda options, most_marked: (0, min(options["k"], most_marked)),
)
def precision_at_k(scores: Tensor, marks: Tensor, *, k: int = 20, ties: str = "expected") -> float:
    """How many of the k tokens with the highest scores are marked: a count, as in AttCAT."""
    scores, marks = resolve_ties(scores, marks, ties)
    k = min(check_k(k), len(scores))
    kth_highest = scores.sort(descending=True).values[k - 1]
    above, tied = scores > kth_highest, scores == kth_highest
    remaining = k - int(above.sum())
    return int((above & marks).sum()) + remaining * int((tied & marks).sum()) / int(tied.sum())


@metric(
    title="Recall@K",
    title_format="Recall@{k}",
    paper="Song et al. 2024, appendix D",
    direction="higher",
    needs="marks",
    weighted=True,
    bounds=(0, 100),
)
def recall_at_k(scores: Tensor, marks: Tensor, *, k: int = 20, ties: str = "expected") -> float:
    """Percentage of the marked tokens that are among the k tokens with the highest scores.

    Averaged over texts with `micro_average`, this is Mask-LRP's Precision@20: found / marked tokens of all texts.
    """
    return 100 * precision_at_k(scores, marks, k=k, ties=ties) / int(check_marks(scores, marks).sum())


@metric(
    title="PG",
    title_format="PG-{k}",
    paper="Zhang et al. 2018; Arras et al. 2025, section 3.3",
    direction="higher",
    needs="marks",
    bounds=(0, 1),
    binary=True,
)
def pointing_game(scores: Tensor, marks: Tensor, *, k: int = 2, ties: str = "expected") -> float:
    """1 if a marked token is among the k tokens with the highest scores, else 0; if scores tie, the probability."""
    scores, marks = resolve_ties(scores, marks, ties)
    above, marked, unmarked = count_around_best_mark(scores, marks)
    remaining = min(check_k(k), len(scores)) - above
    return 1 - chance_of_no_mark(remaining, marked, unmarked) if remaining > 0 else 0.0


@metric(
    title="MRR",
    paper="Arras et al. 2025, section 3.3; Ferrando et al. 2023",
    direction="higher",
    needs="marks",
    bounds=(0, 1),
)
def mean_reciprocal_rank(scores: Tensor, marks: Tensor, *, ties: str = "expected") -> float:
    """1 / rank of the best marked token; ties="dense" is Ferrando's rank: tokens − dense rank from the lowest + 1."""
    if ties == "dense":
        marks = check_marks(scores, marks)
        ascending = ranks(-check_scores(scores), "dense")
        return float(1 / (len(ascending) - ascending[marks].max() + 1))
    scores, marks = resolve_ties(scores, marks, ties)
    above, marked, unmarked = count_around_best_mark(scores, marks)
    none_in_first = [chance_of_no_mark(draws, marked, unmarked) for draws in range(unmarked + 2)]
    chances = [none_in_first[j] - none_in_first[j + 1] for j in range(unmarked + 1)]
    return sum(chance / (above + j + 1) for j, chance in enumerate(chances))


@metric(title="RMA", paper="Arras et al. 2022; 2025, section 3.3", direction="higher", needs="marks", bounds=(0, 1))
def relevance_mass(scores: Tensor, marks: Tensor) -> float:
    """Share of the positive scores that marked tokens have; 0 if no score is positive."""
    marks, positive_part = check_marks(scores, marks), check_scores(scores).clamp_min(0)
    total = positive_part.sum()
    return float(positive_part[marks].sum() / total) if total > 0 else 0.0


@metric(title="PTA", paper="Arras et al. 2025, section 3.3", direction="higher", needs="marks", bounds=(0, 1))
def per_token_accuracy(scores: Tensor, marks: Tensor) -> float:
    """Share of tokens that are marked and have a positive score, or neither; a score of exactly 0 is not positive."""
    marks = check_marks(scores, marks)
    return float(((check_scores(scores) > 0) == marks).double().mean())


def micro_average(values: Sequence[float], marks: Sequence[Tensor]) -> float:
    """The mean weighted by the number of marked tokens of each text: for `recall_at_k`, 100 · Σ found / Σ marked."""
    weights = [int(torch.as_tensor(marks_of_text).sum()) for marks_of_text in marks]
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def count_around_best_mark(scores: Tensor, marks: Tensor) -> tuple[int, int, int]:
    """How many tokens score above the best marked token, and how many marked and unmarked ones score the same."""
    best = scores[marks].max()
    tied = scores == best
    return int((scores > best).sum()), int((tied & marks).sum()), int((tied & ~marks).sum())


def chance_of_no_mark(draws: int, marked: int, unmarked: int) -> float:
    """The probability that `draws` tokens, drawn at random without replacement, are all unmarked."""
    return comb(unmarked, draws) / comb(marked + unmarked, draws) if draws <= unmarked else 0.0


def resolve_ties(scores: Tensor, marks: Tensor, ties: str) -> tuple[Tensor, Tensor]:
    """Checked scores and marks; with ties="first", distinct scores in the same order."""
    if ties not in TIES:
        raise RefusedValue(f"ties is one of {', '.join(TIES)}; found {ties!r}")
    marks = check_marks(scores, marks)
    return (-ranks(scores, "first") if ties == "first" else check_scores(scores)), marks


def check_marks(scores: Tensor, marks: Tensor) -> Tensor:
    """The marks on the CPU. They are refused unless they are booleans, one for each score, and one of them is True."""
    marks = torch.as_tensor(marks).cpu()
    if marks.dtype != torch.bool or marks.shape != scores.shape:
        found = f"{marks.dtype} of shape {tuple(marks.shape)}"
        raise RefusedValue(f"marks is True or False for each of the {len(scores)} tokens, found {found}")
    if not marks.any():
        raise RefusedValue("no token is marked: there is nothing that the scores could find")
    return marks


def check_k(k: int) -> int:
    """The number k. Anything but a whole number of at least 1 is refused."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise RefusedValue(f"k is a number of tokens, 1 or more; found {k!r}")
    return k
