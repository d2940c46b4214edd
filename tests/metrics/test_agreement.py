"""Agreement of two explanations against scipy and by hand; the published variants are different numbers."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from tokenlight.metrics.agreement import jaccard_top, kendall_confidence, spearman


def rows(seed: int, ties: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(seed)
    shape = (2, int(generator.integers(3, 40)))
    values = generator.integers(-2, 3, size=shape) if ties else generator.normal(size=shape)
    values[:, :2] = [[0, 1], [1, 0]]  # never constant
    one, two = torch.tensor(values, dtype=torch.float64)
    return one, two


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_as_scipy(seed, ties):
    one, two = rows(seed, ties)
    first, second = one.numpy(), two.numpy()
    tau, rho = scipy.stats.kendalltau(first, second)[0], scipy.stats.spearmanr(first, second)[0]
    assert kendall_confidence(one, two) == pytest.approx(tau, abs=1e-12)
    assert spearman(one, two) == pytest.approx(rho, abs=1e-12)
    arrays = [np.argsort(-row, kind="stable") for row in (first, second)]
    published = scipy.stats.kendalltau(*arrays)[0]
    assert kendall_confidence(one, two, variant="argsort") == pytest.approx(published, abs=1e-12)


def test_the_published_tau_of_a_reversed_ranking_is_not_minus_one():
    scores = torch.tensor([0.3, 0.9, 0.1, 0.7, 0.5])
    assert kendall_confidence(scores, -scores) == pytest.approx(-1)
    assert kendall_confidence(scores, scores) == pytest.approx(1)
    # 1 3 4 0 2 and 2 0 4 3 1: of the ten pairs four rise or fall together
    assert kendall_confidence(scores, -scores, variant="argsort") == pytest.approx((4 - 6) / 10)
    assert kendall_confidence(scores, scores, variant="argsort") == pytest.approx(1)


def test_dense_ranks_call_opposites_alike():
    """Opposed in all that differs, yet the formula on dense ranks sees small differences of small ranks."""
    one = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0])
    assert spearman(one, 1 - one) == pytest.approx(-1)
    assert spearman(one, 1 - one, variant="dense") == pytest.approx(1 - 6 * 8 / (8**3 - 8))
    assert spearman(one, 1 - one, variant="dense") > 0.9


def test_dense_ranks_are_right_without_ties():
    one, two = rows(3, ties=False)
    assert spearman(one, two, variant="dense") == pytest.approx(spearman(one, two))


def test_a_dense_rank_starts_at_the_lowest_score():
    one, two = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 2.0])
    assert spearman(one, two, variant="dense") == pytest.approx(1 - 6 * 2 / 24)  # 1 1 2 and 1 2 3


def test_the_top_quarter_is_rounded_up():
    one, two = torch.tensor([5.0, 4, 3, 2, 1]), torch.tensor([5.0, 1, 4, 2, 3])
    assert jaccard_top(one, two) == pytest.approx(1 / 3)  # {0, 1} and {0, 2}
    assert jaccard_top(one, two, share=0.2) == 1
    assert jaccard_top(one, two, share=1.0) == 1
    assert jaccard_top(one, -one) == 0


@pytest.mark.parametrize("metric", [kendall_confidence, spearman])
def test_without_an_order_there_is_no_agreement(metric):
    flat, steep = torch.ones(4), torch.arange(4.0)
    assert metric(flat, steep) == metric(steep, flat) == 0
    assert metric(flat, flat) == 1
    assert metric(steep, steep) == pytest.approx(1)


def test_one_token_agrees_with_itself():
    one = torch.ones(1)
    found = [f(one, one) for f in (kendall_confidence, spearman, jaccard_top)]
    assert [*found, spearman(one, one, variant="dense")] == [1, 1, 1, 1]


def test_nothing_is_outside_its_range():
    for seed in range(30):
        one, two = rows(seed, ties=True)
        for value in (kendall_confidence(one, two), spearman(one, two)):
            assert -1 - 1e-12 <= value <= 1 + 1e-12
            assert not math.isnan(value)


@pytest.mark.parametrize("call", [lambda a, b: spearman(a, b), lambda a, b: kendall_confidence(a, b)])
def test_two_texts_cannot_agree(call):
    with pytest.raises(ValueError, match="3 and 4 tokens"):
        call(torch.arange(3.0), torch.arange(4.0))


def test_unknown_variants_and_shares():
    one = torch.arange(3.0)
    with pytest.raises(ValueError, match="'b'"):
        kendall_confidence(one, one, variant="b")
    with pytest.raises(ValueError, match="'rank'"):
        spearman(one, one, variant="rank")
    with pytest.raises(ValueError, match="share"):
        jaccard_top(one, one, share=25)
