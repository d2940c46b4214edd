"""The table: methods × metrics, mean with a 95 % bootstrap interval, and which are level with the best."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tokenlight.bench.stored_results import Array, Results, read_results
from tokenlight.methods import METHODS
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.results.table import FEWEST, Cell, Column, Line, Panel, Table

FORMAT, VERSION = "tokenlight.bench", 1
INVERSE = "inverse of "  # begins the label of the control that turns a method round
STAGES = ("results-00000.jsonl", "results-00001.jsonl")  # the methods; the inverse of the best of them
DRAWS = 2000  # bootstrap samples
BLOCK = 100  # of them in memory
INTERVAL = (2.5, 97.5)  # percentiles


def read_table(folder: str | Path, seed: int = 0) -> Table:
    """The table of a run's folder, without model or data."""
    results = read_results(Path(folder), STAGES)
    columns = make_columns(results.measures)
    lines, panels = make_lines(results, seed), make_panels(results, columns, seed)
    return Table(columns, lines, panels, results.values, results.weights, results.run)


def best_method(folder: Path) -> str:
    """The method with the best mean of the first metric."""
    results = read_results(folder, STAGES[:1])
    candidates = [m for m, label in enumerate(results.labels) if not is_control(results, label)]
    means = weighted_means(results.values[:, :, 0], results.weights[:, :1])
    sign = sign_of(results.measures[0])
    return results.labels[max(candidates, key=lambda m: sign * means[m])]


def make_lines(results: Results, seed: int) -> tuple[Line, ...]:
    examples, methods, metrics = results.values.shape
    flat = results.values.reshape(examples, methods * metrics)
    weights = np.tile(results.weights, (1, methods))
    means = weighted_means(flat, weights).reshape(methods, metrics)
    draws = resampled_means(flat, weights, seed).reshape(-1, methods, metrics)
    low, high = percentiles(draws)
    ours = [m for m, label in enumerate(results.labels) if not is_control(results, label)]
    cells: list[list[Cell]] = [[] for _ in range(methods)]
    for k, measure in enumerate(results.measures):
        known = [m for m in ours if not np.isnan(means[m, k])]
        best = max(known, key=lambda m: sign_of(measure) * means[m, k]) if known else None
        level = level_with(best, means[:, k], draws[:, :, k], ours) if examples >= FEWEST else np.full(methods, True)
        for m in range(methods):
            beside = best is not None and m != best and not np.isnan(means[m, k])
            cells[m].append(Cell(means[m, k], low[m, k], high[m, k], m == best, bool(beside and level[m])))
    return tuple(
        Line(label, title_of(results, label), control_of(results, label), tuple(cells[m]))
        for m, label in enumerate(results.labels)
    )


def level_with(best: int | None, means: Array, draws: Array, ours: Sequence[int]) -> Array:
    """[method] bool: whether the difference to the best may be chance.

    The best was chosen by looking, among several. So a difference counts only if it is larger, in standard errors, than
    the largest between *any* two methods is in 95 % of the samples: Tukey's idea, with the bootstrap's own errors.
    """
    if best is None:
        return np.full(len(means), True)
    apart = draws[:, :, None] - draws[:, None, :]  # [draw, method, method]
    error = apart.std(0)
    centred = np.abs(apart - (means[:, None] - means[None, :]))[:, ours][:, :, ours]
    own = error[np.ix_(ours, ours)]
    largest = np.divide(centred, own, out=np.zeros_like(centred), where=own > 0).max((1, 2))  # [draw]
    return np.abs(means - means[best]) <= np.quantile(largest, 0.95) * error[:, best]


def weighted_means(values: Array, weights: Array) -> Array:
    """[column] of [example, column]; what is not there does not count."""
    weights = np.where(np.isnan(values), 0.0, weights)
    total = weights.sum(0)
    return np.divide((np.nan_to_num(values) * weights).sum(0), total, out=np.full_like(total, np.nan), where=total > 0)


def percentiles(draws: Array) -> Array:
    """[2, ...] of [draw, ...]; NaN where a metric does not apply."""
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN in, NaN out is meant
        return np.nanpercentile(draws, INTERVAL, axis=0)


def resampled_means(values: Array, weights: Array, seed: int, draws: int = DRAWS) -> Array:
    """[draw, column]: means over examples drawn again with replacement; all columns get the same draws, so they can
    be compared in pairs, and micro-averages are sums of numerators over sums of denominators."""
    weights = np.where(np.isnan(values), 0.0, weights)
    products = np.nan_to_num(values) * weights
    generator = np.random.default_rng(seed)
    examples = len(values)
    found = []
    for _ in range(draws // BLOCK):
        chosen = generator.integers(examples, size=(BLOCK, examples))
        times = np.stack([np.bincount(row, minlength=examples) for row in chosen]).astype(float)  # [draw, example]
        below = times @ weights
        found.append(np.divide(times @ products, below, out=np.full_like(below, np.nan), where=below > 0))
    return np.concatenate(found)


def make_panels(results: Results, columns: tuple[Column, ...], seed: int) -> tuple[Panel, ...]:
    """A panel for each metric that reads a curve."""
    names: dict[Perturbation, str] = {}
    panels = []
    for measure, column in zip(results.measures, columns, strict=True):
        if measure.entry.points is not None:
            name = names.setdefault(measure.settled, measure.label)
            panels.append(make_panel(results, results.curves[name], measure, column, seed))
    return tuple(panels)


def make_panel(results: Results, curves: Array, measure: Measure, column: Column, seed: int) -> Panel:
    quantity, averaged = measure.entry.at_points(torch.from_numpy(curves), measure.options)
    points = averaged.numpy()  # [example, method, point]
    there = ~np.isnan(points).any(1)  # [example, point]
    points = points[:, :, there.mean(0) >= 0.5]  # curves end where fewer than half of the texts go on
    examples, methods, length = points.shape
    flat = points.reshape(examples, methods * length)
    means = weighted_means(flat, np.ones_like(flat)).reshape(methods, length)
    draws = resampled_means(flat, np.ones_like(flat), seed)
    low, high = np.nanpercentile(draws, INTERVAL, axis=0).reshape(2, methods, length)
    axis, places = places_of(measure, length)
    lines = {
        label: tuple(Cell(means[m, i], low[m, i], high[m, i]) for i in range(length))
        for m, label in enumerate(results.labels)
    }
    return Panel(column, axis, quantity, places, lines)


def places_of(measure: Measure, points: int) -> tuple[str, tuple[float, ...]]:
    """The share (in %) or number of units at each point."""
    change = measure.settled
    kept = measure.entry.needs == "kept"
    what = "alone" if kept else ("replaced" if change.how != "delete" else "removed")
    first = [0.0] if not kept or change.empty else []
    grid = [k for k in change.grid or () if not (change.distinct and k == 0)]
    if not grid or isinstance(grid[0], int):
        numbers = [float(k) for k in grid] or [float(k) for k in range(1, points + 1)]
        return f"top {change.units} {what}", tuple((first + numbers)[:points])
    return f"top {change.units} {what} (%)", tuple((first + [100 * k for k in grid])[:points])


def make_columns(measures: Sequence[Measure]) -> tuple[Column, ...]:
    """With the papers' titles; two of the same metric also have what they differ in."""
    titles = [measure.entry.title_with(measure.options) for measure in measures]
    return tuple(
        Column(measure.label, title if titles.count(title) == 1 else measure.label, measure.entry.direction)
        for measure, title in zip(measures, titles, strict=True)
    )


def sign_of(measure: Measure) -> int:
    return 1 if measure.entry.direction == "higher" else -1


def is_control(results: Results, label: str) -> bool:
    return label.startswith(INVERSE) or results.run.settings["methods"][label]["control"]


def control_of(results: Results, label: str) -> str | None:
    """What a control is; a label says nothing about that, since callers choose them."""
    if label.startswith(INVERSE):
        return "the best method reversed"
    return METHODS[results.run.settings["methods"][label]["name"]].control if is_control(results, label) else None


def title_of(results: Results, label: str) -> str:
    if label.startswith(INVERSE):
        return INVERSE + title_of(results, label.removeprefix(INVERSE))
    return results.run.settings["methods"][label]["title"]
