"""The stored records of a run as arrays."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenlight.common.errors import RefusedValue
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.results.saved import check_texts, expect
from tokenlight.results.tables import RunFacts
from tokenlight.runs.run_folder import RUN_FILE, Journal, Record, read_run

FORMAT, VERSION = "tokenlight.bench", 1
INCOMPLETE = (KeyError, TypeError, AttributeError, IndexError)  # errors of reading a record that lacks entries
Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Stage:
    """The measured examples of one journal, and counts of its rows."""

    rows: tuple[int, ...]  # of all records
    measured: tuple[int, ...]  # of those with values
    labels: tuple[str, ...]  # of the methods
    values: Array  # [example, method, measure]; NaN where there is none
    weights: Array  # [example, measure]
    curves: Mapping[str, Array]  # by the first measure that reads it: [example, method, point]; NaN after the end
    right: int  # examples with a correct prediction
    judged: int  # examples whose gold label or answer is known
    set_aside: Counter[str]  # reason -> rows
    bad: tuple[Record, ...]
    cut: int  # truncated texts
    copies: int  # measured examples with the same input as an earlier one
    most_marked: int | None  # the largest number of marked tokens in a measured text; None: no text has marks


@dataclass(frozen=True, eq=False)
class Results:
    """All numbers of a run."""

    labels: tuple[str, ...]  # of the methods, including those of later stages
    measures: tuple[Measure, ...]
    values: Array  # [example, method, measure]; NaN where there is none
    weights: Array  # [example, measure]
    curves: Mapping[str, Array]  # by the first measure that reads it: [example, method, point]; NaN after the end
    run: RunFacts
    most_marked: int | None  # the largest number of marked tokens in a measured text; None: no text has marks


def read_results(folder: Path, stages: Sequence[str]) -> Results:
    """Read the journals of these stages, which have different methods for the same examples."""
    settings = read_run(folder)
    measures = measures_of(settings, folder / RUN_FILE)
    first = read_journal(folder / stages[0], measures)
    if unknown := [label for label in first.labels if label not in settings["methods"]]:
        raise RefusedValue(
            f"{folder / stages[0]} holds results of {', '.join(unknown)}, which {RUN_FILE} does not name: these files "
            "are of different runs. Run the benchmark again in another folder"
        )
    # A later stage may measure rows that the first one set aside because of an error in one method.
    later = [read_journal(folder / stage, measures, frozenset(first.measured)) for stage in stages[1:]]
    if not len(first.values):
        reasons = Counter(record["bad"] for record in first.bad) + first.set_aside
        listed = "; ".join(f"{reason} ({n})" for reason, n in reasons.most_common(5))
        raise RefusedValue(f"no example was measured: {listed or 'there are no results yet'}")
    whole = [with_all_examples(stage, first) for stage in later if stage.rows == first.rows and stage.measured]
    all_stages = (first, *whole)
    failed = [stage for stage in later if stage.rows == first.rows and not stage.measured]
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
            copies=first.copies,
            ended=len(whole) + len(failed) == len(later),
            lost=sum(len(first.measured) - len(stage.measured) for stage in later if stage.rows == first.rows),
        ),
        most_marked=first.most_marked,
    )


def with_all_examples(stage: Stage, first: Stage) -> Stage:
    """A later stage with all examples of the first one; NaN for those that it has not measured."""
    if stage.measured == first.measured:
        return stage
    is_measured = np.isin(first.measured, stage.measured)

    def insert_missing(array: Array) -> Array:
        extended = np.full((len(is_measured), *array.shape[1:]), np.nan)
        extended[is_measured] = array
        return extended

    points = {name: curve.shape[2] for name, curve in first.curves.items()}
    curves = {
        name: np.pad(curve, ((0, 0), (0, 0), (0, points[name] - curve.shape[2])), constant_values=np.nan)
        for name, curve in stage.curves.items()
    }
    return replace(
        stage,
        values=insert_missing(stage.values),
        curves={name: insert_missing(curve) for name, curve in curves.items()},
    )


def read_journal(path: Path, measures: Sequence[Measure], only: Collection[int] | None = None) -> Stage:
    """Read a stage; refuse records that lack entries, which files without checksums may have."""
    try:
        return read_stage(Journal(path), measures, only)
    except INCOMPLETE as error:
        raise RefusedValue(
            f"{path} is damaged: a record cannot be read ({type(error).__name__}: {error}). Run the benchmark again in "
            "another folder"
        ) from error


def read_stage(journal: Journal, measures: Sequence[Measure], only: Collection[int] | None = None) -> Stage:
    """Read a stage record by record, keeping only numbers in memory; `only` limits it to these rows."""
    rows, measured, bad, values, weights = [], [], [], [], []
    curves: dict[str, list[list[Array]]] = {}
    labels: tuple[str, ...] = ()
    set_aside: Counter[str] = Counter()
    right = judged = cut = 0
    input_hashes: Counter[str] = Counter()  # hash of the input -> examples; early versions stored none
    most_marked: int | None = None
    for record in journal:
        rows.append(record["row"])
        right += record.get("right") is True  # also counts examples that are set aside
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
            input_hashes.update([record["read"]] if "read" in record else [])
            if record.get("marked") is not None:
                most_marked = max(most_marked or 0, record["marked"])
    empty = np.zeros((0, len(labels), len(measures)))
    stacked = {name: stack(lines) for name, lines in curves.items()}
    arrays = (np.array(values) if values else empty, np.array(weights), stacked)
    copies = input_hashes.total() - len(input_hashes)
    facts = (right, judged, set_aside, tuple(bad), cut, copies, most_marked)
    return Stage(tuple(rows), tuple(measured), labels, *arrays, *facts)


def values_of(method: Mapping[str, Any], measures: Sequence[Measure]) -> list[float]:
    return [method["values"].get(measure.label, np.nan) for measure in measures]


def weight_of(record: Record, measure: Measure) -> float:
    """The weight of an example: 1, the number of marked units for micro-averages, or the number of pairs of models."""
    if measure.entry.compares == "models":
        return record["pairs"]
    if not measure.entry.weighted:
        return 1.0
    return record.get("weights", {}).get(measure.label, record["marked"])


def stack(curves: Sequence[Sequence[Array]]) -> Array:
    """Curves as an array [example, method, point]; shorter curves are filled with NaN."""
    points = max(len(line) for lines in curves for line in lines)
    stacked = np.full((len(curves), len(curves[0]), points), np.nan)
    for i, lines in enumerate(curves):
        for m, line in enumerate(lines):
            stacked[i, m, : len(line)] = line
    return stacked


def join(curves: Sequence[Array]) -> Array:
    """Concatenate along the methods; all curves of one text have the same number of points."""
    return np.concatenate(curves, 1)


def measure_from(stored: Mapping[str, Any]) -> Measure:
    """The measure that an entry of run.json describes."""
    perturbation = stored["perturbation"]
    if perturbation is not None:
        grid = perturbation["grid"]
        perturbation = Perturbation(**{**perturbation, "grid": None if grid is None else tuple(grid)})
    return Measure(**{"units": None, **stored, "perturbation": perturbation})  # early versions stored no units


def measures_of(settings: Mapping[str, Any], path: Path) -> tuple[Measure, ...]:
    """The measures in run.json; refuse a file that lacks anything that a table needs."""
    if settings.get("format", FORMAT) != FORMAT:
        raise RefusedValue(
            f"{path} describes {settings['format']!r}, not a benchmark: there is no table in this folder"
        )
    try:
        for value in (settings["model"]["name"], settings["data"]["source"], settings["data"]["hub"]):
            expect(value is None or isinstance(value, str), "model and data", "names", value)
        for label, method in settings["methods"].items():
            check_texts(method, ("name", "title"))
            expect(isinstance(method["control"], bool), f"control of {label}", "true or false", method["control"])
        check_texts(settings["protocol"], ("name",))
        return tuple(measure_from(stored) for stored in settings["protocol"]["measures"])
    except INCOMPLETE as error:
        reason = f"{type(error).__name__}: {error}"
    except ValueError as error:
        reason = str(error)
    raise RefusedValue(
        f"{path} cannot be used ({reason}): it is damaged, or it names a metric that is not registered here. Register "
        "the metric first, or run the benchmark again in another folder"
    )
