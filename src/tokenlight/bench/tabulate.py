"""From stored records to the table: means with 95 % intervals, and tests against the best method."""

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

INVERSE = "inverse of "  # begins the label of the control that turns a method round
STAGES = ("results-00000.jsonl", "results-00001.jsonl")  # the methods; the inverse of the best of them


def read_table(folder: str | Path, seed: int = 0) -> Table:
    """The table of a run's folder, without model or data."""
    results, spreads = merge_runs(read_results(Path(folder), STAGES))
    columns = make_columns(results.measures)
    lines, panels = make_lines(results, spreads, seed), make_panels(results, columns, seed)
    return Table(columns, lines, panels, results.values, results.weights, results.run)


def best_method(folder: Path) -> str:
    """The method with the best mean of the first metric; where it has several runs, the first of them."""
    runs = read_results(folder, STAGES[:1])
    results, _ = merge_runs(runs)
    candidates = [m for m, label in enumerate(results.labels) if not is_control(results, label)]
    means = weighted_means(results.values[:, :, 0], results.weights[:, :1])
    sign = sign_of(results.measures[0])
    best = results.labels[max(candidates, key=lambda m: sign * means[m])]
    return next(label for label in runs.labels if (run_of(runs, label) or label) == best)


def merge_runs(results: Results) -> tuple[Results, dict[str, tuple[float, ...]]]:
    """One column for all runs of a method, their mean on each example; and by its label the standard deviations.

    These are over runs, each run with its mean over examples, by measure.
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
            spreads[line] = tuple(float(np.std(one, ddof=1)) for one in means)

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
    """What is stored about the method of a line; runs of one line are of one method."""
    methods = results.run.settings["methods"]
    return methods[label] if label in methods else next(one for one in methods.values() if one.get("run_of") == label)


def make_lines(results: Results, spreads: Mapping[str, tuple[float, ...]], seed: int) -> tuple[Line, ...]:
    methods = len(results.labels)
    ours = [m for m, label in enumerate(results.labels) if not is_control(results, label)]
    cells: list[list[Cell]] = [[] for _ in range(methods)]
    for k, measure in enumerate(results.measures):
        values, weights = results.values[:, :, k], np.tile(results.weights[:, k : k + 1], methods)
        means = weighted_means(values, weights)
        bounds = measure.entry.bounds_for(measure.options, results.most_marked)
        low, high = intervals(values, weights, measure.entry, bounds, seed)
        known = [m for m in ours if not np.isnan(means[m])]
        best = max(known, key=lambda m: sign_of(measure) * means[m]) if known else None
        better = sign_of(measure) * values  # higher is better
        level = np.full(methods, False) if best is None else level_with(best, better, weights, known, seed)
        for m in range(methods):
            beside = m != best and bool(level[m] and not np.isnan(means[m]))
            cells[m].append(Cell(float(means[m]), float(low[m]), float(high[m]), m == best, beside))
    return tuple(
        Line(label, title_of(results, label), control_of(results, label), tuple(cells[m]), spreads.get(label, ()))
        for m, label in enumerate(results.labels)
    )


def intervals(values: Array, weights: Array, metric: Metric, bounds: tuple[float, float], seed: int) -> Array:
    """[2, column] 95 % limits of the means of a metric's values [example, column]; NaN where they are not known."""
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


def level_with(best: int, values: Array, weights: Array, ours: Sequence[int], seed: int) -> Array:
    """[method] bool: whether the paired difference to the best may be chance; values [example, method], better high.

    The best was chosen by looking, so the family of tests holds all pairs of our methods (and those of the best with
    each control): the probability that any two methods of equal quality are told apart is at most 5 %, and so is the
    probability that the truly best method is called worse (multiple comparisons with the best, Hsu 1984; all pairs,
    Tukey 1953). A pair with fewer than `FEWEST` texts in common is not told apart.
    """
    controls = [m for m in range(values.shape[1]) if m not in ours]
    pairs = np.array([*combinations(ours, 2), *((best, m) for m in controls)], int).reshape(-1, 2)
    differences = weights[:, pairs[:, 0]] * (values[:, pairs[:, 0]] - values[:, pairs[:, 1]])  # [example, pair]
    enough = (~np.isnan(differences)).sum(0) >= FEWEST
    apart = paired_chances(differences[:, enough], seed) <= ERROR
    level = np.full(values.shape[1], True)
    ahead = np.nansum(differences, 0) > 0  # [pair] the first is better on the texts that both have
    for (first, second), first_ahead in zip(pairs[enough][apart], ahead[enough][apart], strict=True):
        if first == best and (first_ahead or second in controls):
            level[second] = False
        elif second == best and not first_ahead:
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
    there = ~np.isnan(points).any(1)  # [example, point]
    points = points[:, :, there.mean(0) >= 0.5]  # curves end where fewer than half of the texts go on
    examples, methods, length = points.shape
    flat = points.reshape(examples, methods * length)
    means = weighted_means(flat, np.ones_like(flat)).reshape(methods, length)
    limits = bounded_intervals(flat, np.ones_like(flat), measure.entry.bounds, seed)
    low, high = limits.reshape(2, methods, length)
    low, high = (np.where(exact_points(points), means, limit) for limit in (low, high))
    axis, places = places_of(measure, length)
    lines = {
        label: tuple(Cell(means[m, i], low[m, i], high[m, i]) for i in range(length))
        for m, label in enumerate(results.labels)
    }
    return Panel(column, axis, quantity, places, lines)


def exact_points(points: Array) -> Array:
    """[point] bool: all methods have one value on all texts, as on the whole input, where nothing was changed yet."""
    flat = points.reshape(-1, points.shape[-1])
    return ~np.isnan(flat).all(0) & (np.nanmax(flat, 0, initial=-np.inf) == np.nanmin(flat, 0, initial=np.inf))


def places_of(measure: Measure, points: int) -> tuple[str, tuple[float, ...]]:
    """The share (in %) or number of units at each point."""
    change = measure.resolved_perturbation
    kept = measure.entry.needs == "kept"
    what = "alone" if kept else ("replaced" if change.removal != "delete" else "removed")
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
    return label.startswith(INVERSE) or settings_of(results, label)["control"]


def control_of(results: Results, label: str) -> str | None:
    """What a control is; a label says nothing about that, since callers choose them."""
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
