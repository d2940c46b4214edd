"""Finding marked tokens, by hand, with ties as the expected value over all orders."""

import itertools

import pytest
import torch

from tokenlight.metrics.evidence import (
    mean_reciprocal_rank,
    micro_average,
    per_token_accuracy,
    pointing_game,
    precision_at_k,
    recall_at_k,
    relevance_mass,
)

SCORES = torch.tensor([0.1, 0.9, -0.4, 0.6, 0.3])


def marks(*places: int, n: int = 5) -> torch.Tensor:
    return torch.tensor([i in places for i in range(n)])


def test_by_hand():
    assert precision_at_k(SCORES, marks(3, 4), k=2) == 1
    assert precision_at_k(SCORES, marks(3, 4), k=3) == 2
    assert precision_at_k(SCORES, marks(3, 4)) == 2  # 20 of 5
    assert recall_at_k(SCORES, marks(3, 4), k=2) == 50
    assert pointing_game(SCORES, marks(3), k=1) == 0
    assert pointing_game(SCORES, marks(3), k=2) == 1
    assert mean_reciprocal_rank(SCORES, marks(3, 0)) == 1 / 2
    assert mean_reciprocal_rank(SCORES, marks(2)) == 1 / 5
    assert relevance_mass(SCORES, marks(1, 2)) == pytest.approx(0.9 / 1.9)
    assert per_token_accuracy(SCORES, marks(1, 2)) == 1 / 5


def test_perfect_evidence():
    scores = torch.tensor([-1.0, 2.0, 2.0, 0.0, -3.0])
    for metric in (pointing_game, mean_reciprocal_rank, relevance_mass, per_token_accuracy):
        assert metric(scores, marks(1, 2)) == 1  # marked tokens may tie


def test_scores_that_are_positive_everywhere():
    scores = torch.rand(5) + 0.1
    assert per_token_accuracy(scores, marks(0, 3)) == pytest.approx(2 / 5)
    assert relevance_mass(torch.full((5,), 0.3), marks(0, 3)) == pytest.approx(2 / 5)


def test_zero_is_not_above_zero():
    assert per_token_accuracy(torch.zeros(5), marks(0)) == 4 / 5


def test_without_positive_relevance_the_mass_is_zero():
    assert relevance_mass(-torch.rand(5), marks(0)) == 0
    assert relevance_mass(torch.zeros(5), marks(0)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_ties_give_the_mean_over_all_orders(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 3, (5,), generator=generator).double()
    marked = torch.rand(5, generator=generator) < 0.4
    marked[seed % 5] = True
    orders = [o for o in itertools.permutations(range(5)) if list(scores[list(o)]) == sorted(scores, reverse=True)]
    found = [[bool(marked[i]) for i in o] for o in orders]
    for k in (1, 2, 3, 5):
        game = sum(any(one[:k]) for one in found) / len(found)
        count = sum(sum(one[:k]) for one in found) / len(found)
        assert pointing_game(scores, marked, k=k) == pytest.approx(game)
        assert precision_at_k(scores, marked, k=k) == pytest.approx(count)
    reciprocal = sum(1 / (one.index(True) + 1) for one in found) / len(found)
    assert mean_reciprocal_rank(scores, marked) == pytest.approx(reciprocal)


def test_expected_counts_are_in_double_precision():
    assert precision_at_k(torch.ones(3), marks(0, n=3), k=2) == 2 / 3


def test_ties_by_place_on_request():
    flat = torch.ones(5)
    assert mean_reciprocal_rank(flat, marks(2), ties="first") == 1 / 3
    assert pointing_game(flat, marks(2), k=2, ties="first") == 0
    assert precision_at_k(flat, marks(0, 4), k=2, ties="first") == 1


def test_the_dense_rank_of_a_release_is_not_one_at_the_top():
    scores = torch.tensor([0.5, 0.5, 0.1, 0.1, 0.0])
    ranks = [1 / mean_reciprocal_rank(scores, marks(i), ties="dense") for i in range(5)]
    assert ranks == pytest.approx([3, 3, 4, 4, 5])
    assert mean_reciprocal_rank(scores, marks(0, 1)) == 1


def test_the_micro_average_counts_tokens_not_texts():
    answers = [marks(0), marks(1, 2, 3)]
    recalls = [recall_at_k(torch.tensor([5.0, 4, 3, 2, 1]), one, k=2) for one in answers]
    assert recalls == pytest.approx([100, 100 / 3])
    assert micro_average(recalls, answers) == pytest.approx(100 * (1 + 1) / (1 + 3))


@pytest.mark.parametrize("wrong", [marks(), marks(0, n=4), torch.ones(5), torch.ones(5, 1, dtype=torch.bool)])
def test_marks_must_mark_something(wrong):
    for metric in (precision_at_k, pointing_game, mean_reciprocal_rank, relevance_mass, per_token_accuracy):
        with pytest.raises(ValueError, match=r"no token is marked|True or False for each of the 5 tokens"):
            metric(SCORES, wrong)


def test_k_and_ties_are_checked():
    with pytest.raises(ValueError, match="found 0"):
        precision_at_k(SCORES, marks(0), k=0)
    with pytest.raises(ValueError, match=r"found 1\.5"):
        precision_at_k(SCORES, marks(0), k=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'best'"):
        pointing_game(SCORES, marks(0), ties="best")
