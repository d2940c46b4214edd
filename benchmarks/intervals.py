"""Coverage, family-wise error and power of the benchmark's intervals and tests, by simulation.

    python benchmarks/intervals.py [--tables 500]

Prints three tables in Markdown. Coverage: how often a 95 % interval holds the true mean. Family-wise error: how often
some method is called worse although all are equal, which is promised for 5 % of tables at most. Power: how often a
method that is worse is called worse. "Before" is the percentile bootstrap of the mean, and of the largest difference,
which earlier versions used.
"""

import argparse
from collections.abc import Callable

import numpy as np

from tokenlight.bench.tabulate import intervals, level_with
from tokenlight.common.intervals import DRAWS, bounded_intervals, resample
from tokenlight.metrics import METRICS

Array = np.ndarray
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
NUMBERS = (10, 20, 30, 100)  # of texts, for intervals
FOR_MARKS = (10, 30, 100)
METHODS = (2, 5, 16)
NORMAL_AT_90 = 1.2815515655446004  # the normal distribution's quantile
BOUNDS = {"at the upper bound, beta(2, 0.3)": (0.0, 1.0), "15 % uniform, else near 0, between -1 and 1": (-1.0, 1.0)}


def few_large(generator: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.where(generator.random(shape) < 0.15, generator.random(shape), generator.normal(0.01, 0.01, size=shape))


DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {  # name: values, and their mean
    "normal": (lambda g, shape: g.normal(size=shape), 0.0),
    "exponential": (lambda g, shape: g.exponential(size=shape), 1.0),
    "heavy tails (t, 3 degrees of freedom)": (lambda g, shape: g.standard_t(3, size=shape), 0.0),
    "log-normal": (lambda g, shape: g.lognormal(size=shape), float(np.exp(0.5))),
    "at the upper bound, beta(2, 0.3)": (lambda g, shape: g.beta(2, 0.3, size=shape), 2 / 2.3),
    "15 % uniform, else near 0, between -1 and 1": (few_large, 0.85 * 0.01 + 0.15 / 2),
    "70 % zeros, else exponential": (lambda g, shape: g.exponential(size=shape) * (g.random(shape) < 0.3), 0.3),
    "micro-average, 1 to 9 tokens": (lambda g, shape: g.exponential(size=shape), 1.0),
    "0-1, p = 0.9": (lambda g, shape: (g.random(shape) < 0.9).astype(float), 0.9),
    "0-1, p = 0.5": (lambda g, shape: (g.random(shape) < 0.5).astype(float), 0.5),
}


def percentile_interval(values: Array, weights: Array) -> Array:
    """[2, column] the former intervals: percentiles of the bootstrap."""
    means = [times @ (weights * values) / (times @ weights) for times in resample(len(values), 0, DRAWS)]
    return np.quantile(np.concatenate(means), (0.025, 0.975), axis=0)


def level_before(best: int, values: Array, seed: int, draws: int = 500) -> Array:
    """[method] bool the former test: by the largest difference of any pair, in units of the bootstrap's errors."""
    resampled = np.concatenate([times @ values / len(values) for times in resample(len(values), seed, draws)])
    differences = resampled[:, :, None] - resampled[:, None, :]
    error, means = differences.std(0), values.mean(0)
    centered = np.abs(differences - (means[:, None] - means))
    largest = np.divide(centered, error, out=np.zeros_like(centered), where=error > 0).max((1, 2))
    return np.abs(means - means[best]) <= np.quantile(largest, 0.95) * error[:, best]


def coverage(name: str, number: int, tables: int) -> tuple[float, float]:
    """The coverage of the present and the former intervals; unknown intervals do not count."""
    generator = np.random.default_rng(number)
    draw, mean = DISTRIBUTIONS[name]
    values = draw(generator, (number, tables))
    weights = generator.integers(1, 10, (number, 1)).repeat(tables, 1) if "micro" in name else np.ones_like(values)
    if name.startswith("0-1"):
        now = intervals(values, weights, METRICS["pointing_game"], (0, 1), 0)
    else:
        now = bounded_intervals(values, weights, BOUNDS.get(name, (-np.inf, np.inf)))
    before = percentile_interval(values, weights)
    known = ~np.isnan(now[0])
    now_held, before_held = (((low <= mean) & (mean <= high))[known].mean() for low, high in (now, before))
    return float(now_held), float(before_held)


def equal_methods(kind: str, shared: float, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
    """[text, method] methods of equal quality; the methods of a group of three have `shared` of the variance in common.

    What all methods have in common is not simulated: it is not in the paired differences.
    """
    texts, methods = shape
    individual, common = np.sqrt(1 - shared), np.sqrt(shared)
    groups, group = (texts, (methods + 2) // 3), np.arange(methods) // 3
    if kind == "exponential":
        return common * generator.exponential(size=groups)[:, group] + individual * generator.exponential(size=shape)
    normal = common * generator.normal(size=groups)[:, group]
    if kind == "0-1, p = 0.9":
        return (normal + individual * generator.normal(size=shape) < NORMAL_AT_90).astype(float)
    if kind == "skewed differences":  # a third of the methods fails on a few texts, a third excels on a few
        sign = np.array([0, 1, -1])[np.arange(methods) % 3]
        return normal + individual * (
            sign * (generator.exponential(size=shape) - 1) + 0.2 * generator.normal(size=shape)
        )
    return normal + individual * generator.normal(size=shape)


def called_worse(
    kind: str, shared: float, number: int, methods: int, tables: int, ahead: float = 0.0
) -> tuple[float, float]:
    """Now and before: share of tables in which a method is called worse, or where the first is `ahead`, of methods."""
    generator = np.random.default_rng((number, methods, int(100 * shared), len(kind)))
    shares = []
    for seed in range(tables):
        values = equal_methods(kind, shared, generator, (number, methods))
        values[:, 0] += ahead
        best = int(values.mean(0).argmax())
        now = level_with(best, values, np.ones_like(values), range(methods), seed)
        both = (now, level_before(best, values, seed))
        if ahead:
            shares.append([(~level[1:]).mean() * level[0] for level in both])
        else:
            shares.append([not level.all() for level in both])
    now, before = np.mean(shares, 0)
    return float(now), float(before)


def print_row(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def print_head(cells: list[str], first: int) -> None:
    print_row(cells)
    print(f"|{':--|' * first}{'--:|' * (len(cells) - first)}")


def now_and_before(shares: tuple[float, float]) -> str:
    return " / ".join(f"{share:.3f}".removeprefix("0") for share in shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=500, help="simulated tables for each number")
    args = parser.parse_args()
    print("Coverage of 95 % intervals, now / before\n")
    print_head(["values", *(f"{number} texts" for number in NUMBERS)], 1)
    for name in DISTRIBUTIONS:
        print_row([name, *(now_and_before(coverage(name, n, 4 * args.tables)) for n in NUMBERS)])
    print("\nFamily-wise error, now / before\n")
    print_head(["values", "shared", "methods", *(f"{number} texts" for number in FOR_MARKS)], 1)
    for kind in ("normal", "exponential", "0-1, p = 0.9", "skewed differences"):
        for shared in (0.0, 0.9):
            for methods in METHODS:
                rates = [called_worse(kind, shared, n, methods, args.tables) for n in FOR_MARKS]
                print_row([kind, f"{100 * shared:.0f} %", str(methods), *map(now_and_before, rates)])
    print("\nPower, now / before: how many of the methods that are worse by 3 standard errors are called worse\n")
    print_head(["values", "methods", *(f"{number} texts" for number in FOR_MARKS)], 1)
    for kind in ("normal", "exponential"):
        for methods in METHODS:
            rates = [called_worse(kind, 0.0, n, methods, args.tables, 3 * (2 / n) ** 0.5) for n in FOR_MARKS]
            print_row([kind, str(methods), *map(now_and_before, rates)])


if __name__ == "__main__":
    main()
