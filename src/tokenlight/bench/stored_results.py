"""The stored records of a run as arrays."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.results.table import RunFacts
from tokenlight.runs.journal import Journal, Record
from tokenlight.runs.run_folder import read_run

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Stage:
    """The measured examples of one journal, and how many rows went where."""

    rows: tuple[int, ...]  # of all records
    measured: tuple[int, ...]  # of those with values
    labels: tuple[str, ...]  # of the methods
    values: Array  # [example, method, measure]; NaN where there is none
    weights: Array  # [example, measure]
    curves: Mapping[str, Array]  # by the first measure that reads it: [example, method, point]; NaN behind the end
    right: int  # examples that the model gets right
    judged: int  # examples whose right answer is known
    set_aside: Counter[str]  # reason -> rows
    bad: tuple[Record, ...]
    cut: int  # texts that were too long


@dataclass(frozen=True, eq=False)
class Results:
    """All numbers of a run."""

    labels: tuple[str, ...]  # of the methods, those of later stages too
    measures: tuple[Measure, ...]
    values: Array  # [example, method, measure]; NaN where there is none
    weights: Array  # [example, measure]
    curves: Mapping[str, Array]  # by the first measure that reads it: [example, method, point]; NaN behind the end
    run: RunFacts


def read_results(folder: Path, stages: Sequence[str]) -> Results:
    """From the journals of these stages: the same examples, more methods."""
    settings = read_run(folder)
    measures = tuple(measure_from(plain) for plain in settings["protocol"]["measures"])
    first = read_stage(Journal(folder / stages[0]), measures)
    # What the first stage set aside because of one method, a later one without that method may measure.
    more = [read_stage(Journal(folder / stage), measures, frozenset(first.measured)) for stage in stages[1:]]
    if not len(first.values):
        reasons = Counter(record["bad"] for record in first.bad) + first.set_aside
        listed = "; ".join(f"{reason} ({n})" for reason, n in reasons.most_common(5))
        raise ValueError(f"no example was measured: {listed or 'there are no results yet'}")
    whole = [stage for stage in more if (stage.rows, stage.measured) == (first.rows, first.measured)]
    all_stages = (first, *whole)
    return Results(
        labels=tuple(label for stage in all_stages for label in stage.labels),
        measures=measures,
        values=np.concatenate([stage.values for stage in all_stages], 1),
        weights=first.weights,
        curves={name: join([stage.curves[name] for stage in all_stages]) for name in first.curves},
        run=RunFacts(
            settings=settings,
            examples=len(first.values),
            right=first.right,
            judged=first.judged,
            set_aside=first.set_aside,
            bad=first.bad,
            cut=first.cut,
            ended=len(whole) == len(more),
        ),
    )


def read_stage(journal: Journal, measures: Sequence[Measure], only: Collection[int] | None = None) -> Stage:
    """Record by record; of each only the numbers stay in memory. `only`: of these rows."""
    rows, measured, bad, values, weights = [], [], [], [], []
    curves: dict[str, list[list[Array]]] = {}
    labels: tuple[str, ...] = ()
    set_aside: Counter[str] = Counter()
    right = judged = cut = 0
    for record in journal:
        rows.append(record["row"])
        right += record.get("right") is True  # also of examples that are set aside, as those with wrong answers may be
        judged += record.get("right") is not None
        if "bad" in record:
            bad.append(record)
        elif record["set_aside"] is not None:
            set_aside[record["set_aside"]] += 1
        elif only is None or record["row"] in only:
            measured.append(record["row"])
            methods = record["methods"]
            labels = labels or tuple(methods)
            values.append(np.array([values_of(methods[label], measures) for label in labels]))
            weights.append(np.array([weight_of(record, measure) for measure in measures], float))
            for name in methods[labels[0]]["curves"]:
                lines = [np.array(methods[label]["curves"][name], float) for label in labels]
                curves.setdefault(name, []).append(lines)
            cut += record["cut"] > 0
    empty = np.zeros((0, len(labels), len(measures)))
    stacked = {name: stack(lines) for name, lines in curves.items()}
    arrays = (np.array(values) if values else empty, np.array(weights), stacked)
    return Stage(tuple(rows), tuple(measured), labels, *arrays, right, judged, set_aside, tuple(bad), cut)


def values_of(method: Mapping[str, Any], measures: Sequence[Measure]) -> list[float]:
    return [method["values"].get(measure.label, np.nan) for measure in measures]


def weight_of(record: Record, measure: Measure) -> float:
    """Examples count alike, but for marked tokens in a micro-average, and for pairs of models."""
    if measure.entry.compares == "models":
        return record["pairs"]
    return record["marked"] if measure.entry.weighted else 1.0


def stack(curves: Sequence[Sequence[Array]]) -> Array:
    """[example, method, point]; short ones end in NaN."""
    points = max(len(line) for lines in curves for line in lines)
    found = np.full((len(curves), len(curves[0]), points), np.nan)
    for i, lines in enumerate(curves):
        for m, line in enumerate(lines):
            found[i, m, : len(line)] = line
    return found


def join(curves: Sequence[Array]) -> Array:
    """Along the methods; all curves of one text have as many points."""
    return np.concatenate(curves, 1)


def measure_from(plain: Mapping[str, Any]) -> Measure:
    """The inverse of what run.json holds."""
    change = plain["perturbation"]
    if change is not None:
        grid = change["grid"]
        change = Perturbation(**{**change, "grid": None if grid is None else tuple(grid)})
    return Measure(**{"units": None, **plain, "perturbation": change})  # runs from before units have none
