"""Orders and ranks; ties as stated."""

import numpy as np
import pytest
import scipy.stats
import torch

from tokenlight.metrics.ranking import TIES, order, ranks, round_share_up, top


def test_the_highest_comes_first_and_equal_scores_keep_their_places():
    scores = torch.tensor([0.1, 0.5, -0.9, 0.5, 0.1, 0.5])
    assert order(scores) == [1, 3, 5, 0, 4, 2]
    assert order(scores, absolute=True) == [2, 1, 3, 5, 0, 4]
    assert top(scores, 2) == [1, 3]
    assert top(scores, 99) == order(scores)


def test_many_ties_stay_in_place():
    scores = torch.zeros(500)
    scores[::7] = 1
    assert order(scores) == [*range(0, 500, 7), *(i for i in range(500) if i % 7)]


def test_ranks_by_hand():
    scores = torch.tensor([0.5, 0.5, 0.1, 0.1, 0.0])
    assert ranks(scores, "average").tolist() == [1.5, 1.5, 3.5, 3.5, 5]
    assert ranks(scores, "min").tolist() == [1, 1, 3, 3, 5]
    assert ranks(scores, "max").tolist() == [2, 2, 4, 4, 5]
    assert ranks(scores, "first").tolist() == [1, 2, 3, 4, 5]
    assert ranks(scores, "dense").tolist() == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("ties", TIES)
def test_ranks_are_those_of_scipy(ties):
    generator = np.random.default_rng(0)
    for _ in range(50):
        scores = generator.integers(-3, 4, size=generator.integers(1, 30)) / 2
        method = "ordinal" if ties == "first" else ties
        assert ranks(torch.tensor(scores), ties).tolist() == scipy.stats.rankdata(-scores, method).tolist()


@pytest.mark.parametrize(("count", "share", "expected"), [(10, 0.7, 7), (100, 0.07, 7), (7, 0.25, 2), (1, 0.01, 1)])
def test_shares_are_rounded_up_without_noise(count, share, expected):
    assert round_share_up(count, share) == expected


@pytest.mark.parametrize("scores", [[float("nan"), 1.0], [float("inf")], [], [[1.0, 2.0]]])
def test_scores_without_an_order_are_refused(scores):
    with pytest.raises(ValueError, match=r"finite|one score for each token"):
        order(torch.tensor(scores))


def test_an_unknown_treatment_of_ties_is_named():
    with pytest.raises(ValueError, match="'random'"):
        ranks(torch.ones(2), "random")
