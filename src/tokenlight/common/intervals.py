"""Confidence intervals of means and tests of paired differences, valid for few texts.

Their coverage and their power are measured by `benchmarks/intervals.py`.
"""

from collections.abc import Iterator

import numpy as np

Array = np.ndarray
DRAWS = 2000  # bootstrap samples, or vectors of signs
BLOCK = 100  # of them in memory
ERROR = 0.05  # the probability that an interval misses, or that a family of tests rejects a true hypothesis
NORMAL = 1.959963984540054  # the normal distribution's quantile at 1 - ERROR / 2
FEWEST = 5  # values: resampling fewer of them draws the same one again and again
ROUNDING = 1e-9  # relative: what is smaller than this may be rounding


def mean_intervals(values: Array, weights: Array, seed: int = 0, draws: int = DRAWS) -> Array:
    """[2, column] 95 % limits of the weighted means of values [example, column]; NaN where they are unknown.

    Each limit is the farther of Student's t and the bootstrap-t (Efron 1982, section 10.10; Hall 1988): the first is
    too narrow for skewed values, the second for heavy tails. The error of a weighted mean Σwv / Σw is that of its
    linearization. Limits are unknown for fewer than `FEWEST` values and for values that are all equal. A limit is
    infinite where so many values are equal that 2.5 % of the resamples have no spread. NaN among the values is missing.
    """
    weights = np.where(np.isnan(values), 0.0, weights)
    number = (weights > 0).sum(0)
    means = weighted_means(values, weights)
    away = np.where(weights > 0, np.nan_to_num(values) - np.nan_to_num(means), 0.0)
    squares, products = weights**2, weights * away
    crosses, powers = weights * products, products**2
    total, spread = weights.sum(0), np.sqrt(powers.sum(0))
    known = (number >= FEWEST) & (spread > ROUNDING * np.abs(weights * np.nan_to_num(values)).max(0, initial=0.0))
    spread, plain = np.where(known, spread, 1.0), np.array_equal(squares, weights)
    resampled = []
    for times in resample(len(values), seed, draws):
        sums, shifts = times @ weights, times @ products
        shift = np.divide(shifts, sums, out=np.zeros_like(sums), where=sums > 0)
        crossed = shifts if plain else times @ crosses
        square = times @ powers - 2 * shift * crossed + shift**2 * (sums if plain else times @ squares)
        even = square > ROUNDING * spread**2  # otherwise all drawn values are equal up to rounding
        error = np.sqrt(np.maximum(square, 0.0))
        t = np.divide(shift * sums, error, out=np.copysign(np.inf, shift), where=even)
        resampled.append(np.where(np.abs(shift) * total > ROUNDING * spread, t, 0.0))
    t = np.concatenate(resampled)  # [draw, column]
    lower, upper = np.quantile(t, ERROR / 2, axis=0, method="lower"), np.quantile(t, 1 - ERROR / 2, 0, method="higher")
    freedom = np.maximum(number, 2) - 1
    student = student_quantile(freedom) * np.sqrt((freedom + 1) / freedom)  # a resample's error has no n / (n - 1)
    error = np.divide(spread, total, out=np.ones_like(spread), where=total > 0)
    limits = np.stack([means - error * np.maximum(upper, student), means - error * np.minimum(lower, -student)])
    return np.where(known, limits, np.nan)


def bounded_intervals(
    values: Array, weights: Array, bounds: tuple[float, float], seed: int = 0, draws: int = DRAWS
) -> Array:
    """[2, column] 95 % limits of means of values that lie between the bounds; bounds that values exceed are ignored.

    A limit is the nearer one of `mean_intervals` and, where all values have the same weight, `one_more_value`. The
    second is nearer where a few values have nearly all of the spread: resamples without them have next to none, so
    that the first is far away or infinite. If both bounds are finite, values that are all equal have an interval too.
    """
    limits = mean_intervals(values, weights, seed, draws)
    there = ~np.isnan(values) & (weights > 0)
    within = (~there | ((values >= bounds[0]) & (values <= bounds[1]))).all(0)
    limits[:, within] = limits[:, within].clip(*bounds)
    number, equal = there.sum(0), equal_columns(values, there)
    used = within & (equal | (equal_columns(weights, there) & (number >= FEWEST)))
    low, high = one_more_value(np.where(there, values, 0.0)[:, used], there[:, used], bounds, seed, draws)
    limits[0, used], limits[1, used] = np.fmax(limits[0, used], low), np.fmin(limits[1, used], high)
    limits[:, equal & ~np.isfinite(limits).all(0)] = np.nan
    return limits


def equal_columns(values: Array, there: Array) -> Array:
    """[column] bool: whether there are values and all of them are equal."""
    least, most = (np.where(there, values, outside) for outside in (np.inf, -np.inf))
    return least.min(0, initial=np.inf) == most.max(0, initial=-np.inf)


def one_more_value(
    values: Array, there: Array, bounds: tuple[float, float], seed: int = 0, draws: int = DRAWS
) -> Array:
    """[2, column] 95 % limits of means of values between bounds, by one value more, the bound itself (Gaffke 2005).

    They are quantiles of Σ D v, where D is uniform on the simplex, and v the values and the bound on that side. For
    values at the bounds alone this is the interval of Clopper and Pearson. No distribution is known for which a limit
    misses the mean more often than promised (Learned-Miller and Thomas 2019).
    """
    generator, sums = np.random.default_rng(seed), []
    for first in range(0, draws, BLOCK):
        shares = generator.exponential(size=(min(BLOCK, draws - first), len(values) + 1))
        known, last = shares[:, :-1], shares[:, -1:]
        sums.append((np.stack([known @ values + last * bound for bound in bounds])) / (known @ there + last))
    below, above = np.concatenate(sums, 1)  # [draw, column]
    low, high = np.quantile(below, ERROR / 2, 0, method="lower"), np.quantile(above, 1 - ERROR / 2, 0, method="higher")
    unseen = 1 - (ERROR / 2) ** (1 / np.maximum(there.sum(0), 1))  # exactly, of values that are all equal
    means = values.sum(0) / np.maximum(there.sum(0), 1)
    exact = np.stack([means - unseen * (means - bounds[0]), means + unseen * (bounds[1] - means)])
    return np.where(equal_columns(values, there), exact, np.stack([low, high]))


def weighted_means(values: Array, weights: Array) -> Array:
    """[column] of [example, column]; NaN among the values is missing."""
    weights = np.where(np.isnan(values), 0.0, weights)
    total = weights.sum(0)
    return np.divide((np.nan_to_num(values) * weights).sum(0), total, out=np.full_like(total, np.nan), where=total > 0)


def mean_interval(values: Array, seed: int = 0, draws: int = DRAWS) -> tuple[float, float]:
    """95 % limits of the mean of values [example]; NaN where they are unknown."""
    column = np.asarray(values, float)[:, None]
    (low,), (high,) = mean_intervals(column, np.ones_like(column), seed, draws)
    return float(low), float(high)


def share_interval(ones: float, number: int) -> tuple[float, float]:
    """95 % limits of a probability, for this number of ones among `number` zeros and ones (Clopper and Pearson 1934).

    It covers any probability at least 95 % of the time. `ones` may be a sum of numbers between 0 and 1: it is rounded
    down for the lower limit and up for the upper one.
    """
    if number == 0:
        return np.nan, np.nan
    below, above = int(np.floor(ones + ROUNDING)), int(np.ceil(ones - ROUNDING))
    return lower_share(below, number), 1 - lower_share(number - above, number)


def lower_share(ones: int, number: int) -> float:
    """The p for which P(at least `ones` ones) = ERROR / 2."""
    if ones == 0:
        return 0.0
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, number + 1)))])  # of k!
    counts = np.arange(ones, number + 1)
    log_binomials = logarithms[number] - logarithms[counts] - logarithms[number - counts]
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        reached = np.exp(log_binomials + counts * np.log(p) + (number - counts) * np.log1p(-p)).sum()
        low, high = (p, high) if reached < ERROR / 2 else (low, p)
    return low


def student_quantile(freedom: Array) -> Array:
    """Student's t at 1 - ERROR / 2, by the expansion of Cornish and Fisher (Abramowitz and Stegun 1964, 26.7.5).

    It is below the true quantile by 3e-4 of it for 4 degrees of freedom and by 6e-6 for 9.
    """
    z = NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return np.asarray(z + sum(term / freedom**power for power, term in enumerate(terms, start=1)))


def paired_chances(differences: Array, seed: int = 0, draws: int = DRAWS) -> Array:
    """[pair] family-wise p-values of "the mean difference is 0", for differences [example, pair]; NaN is missing.

    A p-value is the share of random sign vectors, one sign for each example, under which the largest statistic of *any*
    pair is as far from 0 as this pair's own (max-T, Westfall and Young 1993). The statistic is t without its skewness
    (Hall 1992). So the test is exact where differences are symmetric under the hypothesis, whatever their correlations,
    and corrected to the next order where they are not. For symmetric differences, the probability that any true
    hypothesis has a p-value of at most 5 % is at most 5 %: pairs may be chosen by looking at the means. With
    strongly skewed ones and few examples it is larger (docs/metrics.md).
    """
    number = (~np.isnan(differences)).sum(0)
    differences = np.nan_to_num(differences)
    size = np.sqrt((differences**2).sum(0))
    used = size > 0
    scaled, number = differences[:, used] / size[used], number[used]  # [example, pair], Σ² = 1
    chances = np.ones(len(used))
    if not used.any():
        return chances
    cubes = scaled**3
    own = np.abs(symmetric_t(scaled.sum(0), cubes.sum(0), number))
    reached = np.ones(len(own))
    for signs in random_signs(len(scaled), seed, draws):
        largest = np.abs(symmetric_t(signs @ scaled, signs @ cubes, number)).max(1)  # [draw]
        reached += (largest[:, None] >= own * (1 - ROUNDING)).sum(0)
    chances[used] = reached / (draws + 1)
    return chances


def symmetric_t(sums: Array, cubes: Array, number: Array) -> Array:
    """t / √(n - 1) of numbers by Σx and Σx³, where Σx² = 1; a cubic removes its skewness (Hall 1992, equation 2.3).

    Sign changes of x leave Σx² unchanged, so these sums suffice.
    """
    mean = sums / number
    square = mean * mean
    variance = 1 / number - square
    even = variance > ROUNDING / number  # otherwise all numbers are equal up to rounding
    variance = np.where(even, variance, ROUNDING / number)
    third = cubes / number - 3 * mean / number + 2 * mean * square
    skewness = np.where(even, third / (variance * np.sqrt(variance)), 0.0)
    t = mean / np.sqrt(variance)
    cubic = skewness * t / 3
    return t * (1 + cubic + cubic * cubic / 3) + skewness / (6 * number)


def resample(number: int, seed: int, draws: int) -> Iterator[Array]:
    """[draw, example] how often each example is in a bootstrap sample, block by block."""
    generator = np.random.default_rng(seed)
    for first in range(0, draws, BLOCK):
        size = min(BLOCK, draws - first)
        indices = generator.integers(number, size=(size, number)) + number * np.arange(size)[:, None]
        yield np.bincount(indices.ravel(), minlength=size * number).reshape(size, number).astype(float)


def random_signs(number: int, seed: int, draws: int) -> Iterator[Array]:
    """[draw, example] of 1 and -1, block by block."""
    generator = np.random.default_rng(seed)
    for first in range(0, draws, BLOCK):
        yield generator.integers(0, 2, size=(min(BLOCK, draws - first), number)) * 2.0 - 1.0
