"""Intervals and tests that keep their promise on few texts."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from tokenlight.common import intervals
from tokenlight.common.intervals import (
    bounded_intervals,
    mean_interval,
    mean_intervals,
    paired_chances,
    share_interval,
    student_quantile,
    symmetric_t,
    weighted_means,
)


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda g, shape: g.normal(size=shape), 0.0),
        (lambda g, shape: g.exponential(size=shape), 1.0),
        (lambda g, shape: g.standard_t(3, size=shape), 0.0),
        (lambda g, shape: g.integers(0, 3, size=shape).astype(float), 1.0),
    ],
    ids=["normal", "exponential", "heavy tails", "ties"],
)
@pytest.mark.parametrize("texts", [10, 20])
def test_the_interval_holds_the_mean(draw, mean, texts):
    """.93 at least, less 3 standard errors of a share of 1,000; percentiles of the bootstrap hold .86 to .92."""
    values = draw(np.random.default_rng(texts), (texts, 1000))
    low, high = mean_intervals(values, np.ones_like(values), draws=400)
    covered = ((low <= mean) & (mean <= high)).mean()
    assert covered >= 0.93 - 3 * np.sqrt(0.93 * 0.07 / 1000)
    if texts == 20:  # and not by being far too wide: 1.5 of Student's interval at most
        student = 2 * stats.t.ppf(0.975, texts - 1) * values.std(0, ddof=1) / np.sqrt(texts)
        assert np.median((high - low) / student) < 1.5


def test_the_interval_holds_a_micro_average():
    generator = np.random.default_rng(0)
    values, weights = generator.exponential(size=(15, 1000)), generator.integers(1, 5, (15, 1000)).astype(float)
    low, high = mean_intervals(values, weights, draws=400)
    assert ((low <= 1) & (high >= 1)).mean() >= 0.93 - 3 * np.sqrt(0.93 * 0.07 / 1000)


def test_the_interval_is_the_wider_of_the_two():
    """Against Student's interval of scipy, and the bootstrap-t written out resample by resample."""
    generator = np.random.default_rng(3)
    for values in (generator.normal(size=8), generator.exponential(size=30)):
        number, mean = len(values), values.mean()
        error = values.std(ddof=1) / np.sqrt(number)
        pivots = []
        for (times,) in (block[i : i + 1] for block in intervals.resample(number, 0, 500) for i in range(len(block))):
            sample = np.repeat(values, times.astype(int))
            pivots.append((sample.mean() - mean) / (sample.std(ddof=1) / np.sqrt(number)))
        pivots = np.sort(pivots)
        student = stats.t.interval(0.95, number - 1, mean, error)
        low = min(student[0], mean - error * pivots[int(np.ceil(0.975 * 499))])
        high = max(student[1], mean - error * pivots[int(np.floor(0.025 * 499))])
        assert mean_interval(values, draws=500) == pytest.approx((low, high), rel=1e-4)  # of the expansion for t


def test_equal_weights_have_no_effect_and_missing_values_are_left_out():
    values = np.random.default_rng(0).normal(3, 1, size=(30, 2))
    plain = mean_intervals(values, np.ones_like(values))
    assert mean_intervals(values, np.full_like(values, 4.0)) == pytest.approx(plain)
    assert mean_intervals(values - 100, np.ones_like(values)) == pytest.approx(plain - 100)
    missing = values.copy()
    missing[20:, 1] = np.nan
    (low, high), own = mean_intervals(missing, np.ones_like(values))[:, 1], mean_interval(values[:20, 1])
    assert (low, high) == pytest.approx(own, abs=0.1 * (own[1] - own[0]))  # other resamples
    assert weighted_means(missing, np.ones_like(values)) == pytest.approx([values[:, 0].mean(), values[:20, 1].mean()])
    assert mean_intervals(missing, np.ones_like(values))[:, 0] == pytest.approx(plain[:, 0])


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_too_few_values_have_no_interval(number):
    assert np.isnan(mean_interval(np.arange(number))).all()


def test_values_without_an_interval():
    assert np.isnan(mean_interval(np.full(20, 0.1))).all()
    assert np.isnan(mean_interval(np.full(20, np.nan))).all()
    assert np.isnan(mean_interval(np.array([1.0, 2.0, 3.0, 4.0, *[np.nan] * 20]))).all()
    low, high = mean_interval(np.array([1.0, *[0.0] * 9]))  # .35 of the resamples hold zeros alone
    assert low < 0.1
    assert high == np.inf


@pytest.mark.parametrize(
    ("ones", "number"), [(0, 10), (9, 10), (10, 10), (1, 1), (0, 1), (3, 7), (600, 1000), (1, 5000)]
)
def test_shares_are_those_of_clopper_and_pearson(ones, number):
    expected = stats.binomtest(ones, number).proportion_ci(0.95, "exact")
    assert share_interval(ones, number) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_share_covers_every_probability():
    for number in (1, 10, 30):
        limits = np.array([share_interval(ones, number) for ones in range(number + 1)])
        for p in np.linspace(0.01, 0.99, 99):
            held = (limits[:, 0] <= p) & (p <= limits[:, 1])
            assert stats.binom.pmf(np.arange(number + 1), number, p)[held].sum() >= 0.95


def test_a_share_with_ties_is_rounded_outwards():
    assert share_interval(8.5, 10) == (share_interval(8, 10)[0], share_interval(9, 10)[1])
    assert share_interval(0.1 * 3 * 10, 10) == share_interval(3, 10)  # 3.0000000000000004
    assert np.isnan(share_interval(0, 0)).all()


def test_students_quantile():
    freedom = np.array([4, 9, 29, 199])
    bounds = np.array([4e-4, 1e-5, 1e-7, 1e-9])  # the first term that is left out is about 4 / freedom**5
    assert (np.abs(student_quantile(freedom) / stats.t.ppf(0.975, freedom) - 1) < bounds).all()
    assert pytest.approx(stats.norm.ppf(0.975), abs=1e-15) == intervals.NORMAL


def test_the_statistic_is_t_without_its_skewness():
    values = np.random.default_rng(0).exponential(size=12) - 0.5
    scaled = values / np.sqrt((values**2).sum())
    ratio, skewness = values.mean() / values.std(), stats.skew(values)
    expected = ratio + skewness * ratio**2 / 3 + skewness**2 * ratio**3 / 27 + skewness / (6 * 12)
    assert symmetric_t(scaled.sum(), (scaled**3).sum(), np.array(12)) == pytest.approx(expected)


def test_chances_are_those_of_all_sign_vectors():
    """Against all 2^10 of them; 2,000 draws give a share p with a standard error of √(p(1 - p) / 2000)."""
    differences = np.random.default_rng(4).normal([0.1, 0.5, -0.9], 1, size=(10, 3))
    scaled = differences / np.sqrt((differences**2).sum(0))
    signs = np.array(list(product((1.0, -1.0), repeat=10)))
    reached = np.abs(symmetric_t(signs @ scaled, signs @ scaled**3, np.full(3, 10))).max(1)
    own = np.abs(symmetric_t(scaled.sum(0), (scaled**3).sum(0), np.full(3, 10)))
    exact = (reached[:, None] >= own * (1 - 1e-9)).mean(0)
    assert (np.abs(paired_chances(differences) - exact) <= 4 * np.sqrt(exact * (1 - exact) / 2000) + 1 / 2000).all()
    assert (paired_chances(differences) == paired_chances(differences)).all()


def test_chances_of_equal_and_constant_differences():
    differences = np.stack([np.zeros(12), np.full(12, 0.1), np.full(12, -0.1), np.full(12, np.nan)], 1)
    chances = paired_chances(differences)
    assert chances[[0, 3]].tolist() == [1, 1]
    assert (chances[1:3] < 0.01).all()  # 2 of 2^12 sign vectors
    assert paired_chances(np.zeros((5, 0))).tolist() == []
    assert paired_chances(np.full((5, 2), np.nan)).tolist() == [1, 1]


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_intervals_do_not_depend_on_the_unit_of_values(scale):
    values = np.random.default_rng(0).exponential(size=(15, 3))
    weights = np.ones_like(values)
    assert mean_intervals(values * scale, weights) == pytest.approx(mean_intervals(values, weights) * scale)
    assert (paired_chances((values - 1) * scale) == paired_chances(values - 1)).all()


@pytest.mark.parametrize(
    ("values", "open_side"), [(np.r_[np.zeros(18), np.ones(2)], 1), (np.r_[np.zeros(15), np.full(3, -2.5)], 0)]
)
def test_ties_leave_a_limit_open_and_not_huge(values, open_side):
    limits = mean_interval(values)
    assert np.isinf(limits[open_side])
    assert abs(limits[1 - open_side]) < 1


def few_have_the_spread(generator, shape):
    return np.where(generator.random(shape) < 0.15, generator.random(shape), generator.normal(0.01, 0.01, size=shape))


@pytest.mark.parametrize("texts", [20, 50])
def test_an_interval_between_bounds_is_narrow_and_holds_the_mean_where_few_texts_have_the_spread(texts):
    """Where 3 of 24 texts have the spread, .04 of the resamples are without them, and bootstrap-t gives up to 1.19."""
    values = few_have_the_spread(np.random.default_rng(texts), (texts, 1000))
    low, high = bounded_intervals(values, np.ones_like(values), (-1, 1), draws=400)
    mean = 0.85 * 0.01 + 0.15 / 2
    unbounded = mean_intervals(values, np.ones_like(values), draws=400).clip(-1, 1)
    covered, before = (((a <= mean) & (mean <= b)).mean() for a, b in ((low, high), unbounded))
    assert covered >= before - 0.01
    assert np.quantile(high - low, 0.9) < 0.45
    assert (low >= unbounded[0]).all()
    assert (high <= unbounded[1]).all()


def test_an_interval_between_bounds_is_that_of_clopper_and_pearson_where_values_are_bounds():
    values = np.r_[np.zeros(27), np.ones(3)][:, None]
    limits = intervals.one_more_value(values, np.ones_like(values, bool), (0, 1), draws=20000)
    assert limits[:, 0] == pytest.approx(share_interval(3, 30), rel=0.03)


def test_an_interval_between_bounds_of_equal_and_missing_values_and_of_weights():
    """`unseen` is the probability of other values at which 20 texts have none with probability 2.5 %."""
    unseen = 1 - 0.025 ** (1 / 20)
    values, weights = np.full((20, 1), 0.5), np.ones((20, 1))
    assert bounded_intervals(values, weights, (-1, 1))[:, 0] == pytest.approx([0.5 - 1.5 * unseen, 0.5 + 0.5 * unseen])
    assert np.isnan(bounded_intervals(values, weights, (0, np.inf))).all()
    assert np.isnan(bounded_intervals(np.array([[0.0], [1.0], [0.5]]), weights[:3], (0, 1))).all()
    missing = np.random.default_rng(0).random((20, 2)) ** 8
    missing[10:, 1] = np.nan
    alone = bounded_intervals(missing[:10, 1:], weights[:10], (0, 1))[:, 0]
    assert bounded_intervals(missing, np.ones((20, 2)), (0, 1))[:, 1] == pytest.approx(alone, abs=0.05)
    assert (
        bounded_intervals(missing - 5, np.ones((20, 2)), (0, 1)) == mean_intervals(missing - 5, np.ones((20, 2)))
    ).all()
    uneven = np.arange(1.0, 21)[:, None]
    whole = missing[:, :1]
    assert (bounded_intervals(whole, uneven, (0, 1)) == mean_intervals(whole, uneven).clip(0, 1)).all()
