"""The table from stored records: means with 95 % intervals, and tests against the best method."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokenlight.bench.stored_results import Array, Results, read_results
from tokenlight.common.errors import RefusedValue
from tokenlight.common.intervals import ERROR, bounded_intervals, paired_chances, share_interval, weighted_means
from tokenlight.methods import METHODS
from tokenlight.metrics import Metric
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.results.tables import FEWEST, Cell, Column, Line, Panel, Table

INVERSE = "inverse of "  # prefix of the label of the control with inverted scores
STAGES = ("results-00000.jsonl", "results-00001.jsonl")  # the methods; the inverse of the best method


def read_table(folder: str | Path, seed: int = 0) -> Table:
    """The table of a run, from its folder alone."""
    results, spreads = merge_runs(read_results(Path(folder), STAGES))
    columns = make_columns(results.measures)
    lines, panels = make_lines(results, spreads, seed), make_panels(results, columns, seed)
    return Table(columns, lines, panels, results.values, results.weights, results.run)


def best_method(folder: Path) -> str:
    """The label of the method with the best mean of the first metric; of its first run if it has several."""
    runs = read_results(folder, STAGES[:1])
    results, _ = merge_runs(runs)
    candidates = [m for m, label in enumerate(results.labels) if not is_control(results, label)]
    means = weighted_means(results.values[:, :, 0], results.weights[:, :1])
    sign = sign_of(results.measures[0])
    best = results.labels[max(candidates, key=lambda m: sign * means[m])]
    return next(label for label in runs.labels if (run_of(runs, label) or label) == best)


def merge_runs(results: Results) -> tuple[Results, dict[str, tuple[float, ...]]]:
    """Average the runs of each method on every example; also return standard deviations by label of the method.

    A standard deviation, one for each measure, is over runs, of their means over examples.
    """
    groups: dict[str, list[int]] = {}  # label of a line -> columns of its runs
    for m, label in enumerate(results.labels):
        groups.setdefault(run_of(results, label) or label, []).append(m)
    if all(len(columns) == 1 and line == results.labels[columns[0]] for line, columns in groups.items()):
        return results, {}
    spreads = {}
    for line, columns in groups.items():
        if len(columns) > 1:
            means = [
                weighted_means(results.values[:, columns, k], results.weights[:, [k] * len(columns)])
                for k in range(len(results.measures))
            ]
            spreads[line] = tuple(float(np.std(run_means, ddof=1)) for run_means in means)

    def mean_over_runs(array: Array) -> Array:
        return np.stack([array[:, columns].mean(1) for columns in groups.values()], 1)

    merged = replace(
        results,
        labels=tuple(groups),
        values=mean_over_runs(results.values),
        curves={name: mean_over_runs(curve) for name, curve in results.curves.items()},
    )
    return merged, spreads


def run_of(results: Results, label: str) -> str | None:
    """The line that a run belongs to; None for a method that ran once."""
    return results.run.settings["methods"].get(label, {}).get("run_of")


def settings_of(results: Results, label: str) -> Mapping[str, Any]:
    """The stored settings of the method of a line; all runs of a line are of one method."""
    methods = results.run.settings["methods"]
    return methods[label] if label in methods else next(m for m in methods.values() if m.get("run_of") == label)


def make_lines(results: Results, spreads: Mapping[str, tuple[float, ...]], seed: int) -> tuple[Line, ...]:
    methods = len(results.labels)
    ranked = [m for m, label in enumerate(results.labels) if not is_control(results, label)]
    cells: list[list[Cell]] = [[] for _ in range(methods)]
    for k, measure in enumerate(results.measures):
        values, weights = results.values[:, :, k], np.tile(results.weights[:, k : k + 1], methods)
        means = weighted_means(values, weights)
        bounds = measure.entry.bounds_for(measure.options, results.most_marked)
        low, high = intervals(values, weights, measure.entry, bounds, seed)
        measured = [m for m in ranked if not np.isnan(means[m])]
        best = max(measured, key=lambda m: sign_of(measure) * means[m]) if measured else None
        better = sign_of(measure) * values  # higher is better
        level = np.full(methods, False) if best is None else level_with(best, better, weights, measured, seed)
        for m in range(methods):
            is_level = m != best and bool(level[m] and not np.isnan(means[m]))
            cells[m].append(Cell(float(means[m]), float(low[m]), float(high[m]), m == best, is_level))
    return tuple(
        Line(label, title_of(results, label), control_of(results, label), tuple(cells[m]), spreads.get(label, ()))
        for m, label in enumerate(results.labels)
    )


def intervals(values: Array, weights: Array, metric: Metric, bounds: tuple[float, float], seed: int) -> Array:
    """[2, column] 95 % limits of the means of a metric's values [example, column]; NaN if they are not known."""
    if not metric.binary:
        return bounded_intervals(values, weights, bounds, seed)
    bottom, top = bounds
    limits = np.full((2, values.shape[1]), np.nan)
    for column in range(values.shape[1]):
        numbers = values[~np.isnan(values[:, column]) & (weights[:, column] > 0), column]
        if not ((numbers >= bottom) & (numbers <= top)).all():
            raise RefusedValue(
                f"metric '{metric.name}' is binary with values from {bottom} to {top}, found {numbers.min()} to "
                f"{numbers.max()}: correct its bounds=, or leave out binary="
            )
        ones = ((numbers - bottom) / (top - bottom)).sum()
        limits[:, column] = bottom + (top - bottom) * np.array(share_interval(ones, len(numbers)))
    return limits


def level_with(best: int, values: Array, weights: Array, ranked: Sequence[int], seed: int) -> Array:
    """[method] bool: whether the paired difference to the best may be chance; values [example, method], better high.

    The best method was chosen after measuring, so the tests are of all pairs of methods (and of the best with
    each control): the probability that any two methods of equal quality are told apart is at most 5 %, and so is the
    probability that the truly best method is called worse (multiple comparisons with the best, Hsu 1984; all pairs,
    Tukey 1953). A pair with fewer than `FEWEST` texts in common is not told apart.
    """
    controls = [m for m in range(values.shape[1]) if m not in ranked]
    pairs = np.array([*combinations(ranked, 2), *((best, m) for m in controls)], int).reshape(-1, 2)
    differences = weights[:, pairs[:, 0]] * (values[:, pairs[:, 0]] - values[:, pairs[:, 1]])  # [example, pair]
    has_enough = (~np.isnan(differences)).sum(0) >= FEWEST
    differs = paired_chances(differences[:, has_enough], seed) <= ERROR
    level = np.full(values.shape[1], True)
    first_is_ahead = np.nansum(differences, 0) > 0  # [pair] the first is better on the texts that both were measured on
    for (first, second), is_ahead in zip(pairs[has_enough][differs], first_is_ahead[has_enough][differs], strict=True):
        if first == best and (is_ahead or second in controls):
            level[second] = False
        elif second == best and not is_ahead:
            level[first] = False
    return level


def make_panels(results: Results, columns: tuple[Column, ...], seed: int) -> tuple[Panel, ...]:
    """A panel for each metric that reads a curve."""
    names: dict[Perturbation, str] = {}
    panels = []
    for measure, column in zip(results.measures, columns, strict=True):
        if measure.entry.points is not None:
            name = names.setdefault(measure.resolved_perturbation, measure.label)
            panels.append(make_panel(results, results.curves[name], measure, column, seed))
    return tuple(panels)


def make_panel(results: Results, curves: Array, measure: Measure, column: Column, seed: int) -> Panel:
    quantity, averaged = measure.entry.at_points(torch.from_numpy(curves), measure.options)
    points = averaged.numpy()  # [example, method, point]
    has_point = ~np.isnan(points).any(1)  # [example, point]
    points = points[:, :, has_point.mean(0) >= 0.5]  # curves end where fewer than half of the texts have further points
    examples, methods, length = points.shape
    flat = points.reshape(examples, methods * length)
    means = weighted_means(flat, np.ones_like(flat)).reshape(methods, length)
    limits = bounded_intervals(flat, np.ones_like(flat), measure.entry.bounds, seed)
    low, high = limits.reshape(2, methods, length)
    low, high = (np.where(exact_points(points), means, limit) for limit in (low, high))
    axis, positions = positions_of(measure, length)
    lines = {
        label: tuple(Cell(means[m, i], low[m, i], high[m, i]) for i in range(length))
        for m, label in enumerate(results.labels)
    }
    return Panel(column, axis, quantity, positions, lines)


def exact_points(points: Array) -> Array:
    """[point] bool: whether all methods have the same value on all texts, as at point 0, the unchanged input."""
    flat = points.reshape(-1, points.shape[-1])
    return ~np.isnan(flat).all(0) & (np.nanmax(flat, 0, initial=-np.inf) == np.nanmin(flat, 0, initial=np.inf))


def positions_of(measure: Measure, points: int) -> tuple[str, tuple[float, ...]]:
    """The share (in %) or number of units at each point."""
    perturbation = measure.resolved_perturbation
    keeps_units = measure.entry.needs == "kept"
    action = "alone" if keeps_units else ("replaced" if perturbation.removal != "delete" else "removed")
    first = [0.0] if not keeps_units or perturbation.empty else []
    grid = [k for k in perturbation.grid or () if not (perturbation.distinct and k == 0)]
    if not grid or isinstance(grid[0], int):
        numbers = [float(k) for k in grid] or [float(k) for k in range(1, points + 1)]
        return f"top {perturbation.units} {action}", tuple((first + numbers)[:points])
    return f"top {perturbation.units} {action} (%)", tuple((first + [100 * k for k in grid])[:points])


def make_columns(measures: Sequence[Measure]) -> tuple[Column, ...]:
    """Columns with the titles of the papers; several columns of one metric have their labels instead."""
    titles = [measure.entry.title_with(measure.options) for measure in measures]
    return tuple(
        Column(measure.label, title if titles.count(title) == 1 else measure.label, measure.entry.direction)
        for measure, title in zip(measures, titles, strict=True)
    )


def sign_of(measure: Measure) -> int:
    return 1 if measure.entry.direction == "higher" else -1


def is_control(results: Results, label: str) -> bool:
    return label.startswith(INVERSE) or settings_of(results, label)["control"]


def control_of(results: Results, label: str) -> str | None:
    """The kind of a control; None for other methods. Labels do not show it, since callers choose them."""
    if label.startswith(INVERSE):
        return "the best method reversed"
    return METHODS[settings_of(results, label)["name"]].control if is_control(results, label) else None


def title_of(results: Results, label: str) -> str:
    if label.startswith(INVERSE):
        return INVERSE + title_of(results, label.removeprefix(INVERSE))
    stored = settings_of(results, label)
    if stored.get("run_of") != label:
        return stored["title"]
    return METHODS[stored["name"]].title if label == stored["name"] else label  # callers may choose a label
