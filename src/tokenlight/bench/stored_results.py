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
INCOMPLETE = (KeyError, TypeError, AttributeError, IndexError)  # what reading raises where something is missing
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
    copies: int  # measured examples that are the same to the model as an earlier one
    most_marked: int | None  # marked tokens of the measured text with the most of them; None: no text has marks


@dataclass(frozen=True, eq=False)
class Results:
    """All numbers of a run."""

    labels: tuple[str, ...]  # of the methods, those of later stages too
    measures: tuple[Measure, ...]
    values: Array  # [example, method, measure]; NaN where there is none
    weights: Array  # [example, measure]
    curves: Mapping[str, Array]  # by the first measure that reads it: [example, method, point]; NaN behind the end
    run: RunFacts
    most_marked: int | None  # marked tokens of the measured text with the most of them; None: no text has marks


def read_results(folder: Path, stages: Sequence[str]) -> Results:
    """From the journals of these stages: the same examples, more methods."""
    settings = read_run(folder)
    measures = measures_of(settings, folder / RUN_FILE)
    first = read_journal(folder / stages[0], measures)
    if strange := [label for label in first.labels if label not in settings["methods"]]:
        raise RefusedValue(
            f"{folder / stages[0]} holds results of {', '.join(strange)}, which {RUN_FILE} does not name: these files "
            "are of different runs. Run the benchmark again in another folder"
        )
    # What the first stage set aside because of one method, a later one without that method may measure.
    more = [read_journal(folder / stage, measures, frozenset(first.measured)) for stage in stages[1:]]
    if not len(first.values):
        reasons = Counter(record["bad"] for record in first.bad) + first.set_aside
        listed = "; ".join(f"{reason} ({n})" for reason, n in reasons.most_common(5))
        raise RefusedValue(f"no example was measured: {listed or 'there are no results yet'}")
    whole = [with_all_examples(stage, first) for stage in more if stage.rows == first.rows and stage.measured]
    all_stages = (first, *whole)
    failed = [stage for stage in more if stage.rows == first.rows and not stage.measured]
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
            ended=len(whole) + len(failed) == len(more),
            lost=sum(len(first.measured) - len(stage.measured) for stage in more if stage.rows == first.rows),
        ),
        most_marked=first.most_marked,
    )


def with_all_examples(stage: Stage, first: Stage) -> Stage:
    """A later stage with the examples of the first one; NaN for those that it could not measure."""
    if stage.measured == first.measured:
        return stage
    there = np.isin(first.measured, stage.measured)

    def widened(array: Array) -> Array:
        found = np.full((len(there), *array.shape[1:]), np.nan)
        found[there] = array
        return found

    points = {name: curve.shape[2] for name, curve in first.curves.items()}
    curves = {
        name: np.pad(curve, ((0, 0), (0, 0), (0, points[name] - curve.shape[2])), constant_values=np.nan)
        for name, curve in stage.curves.items()
    }
    return replace(stage, values=widened(stage.values), curves={n: widened(one) for n, one in curves.items()})


def read_journal(path: Path, measures: Sequence[Measure], only: Collection[int] | None = None) -> Stage:
    """`read_stage`; records that lack something, as a file without checksums may have them, are refused."""
    try:
        return read_stage(Journal(path), measures, only)
    except INCOMPLETE as error:
        raise RefusedValue(
            f"{path} is damaged: a record cannot be read ({type(error).__name__}: {error}). Run the benchmark again in "
            "another folder"
        ) from error


def read_stage(journal: Journal, measures: Sequence[Measure], only: Collection[int] | None = None) -> Stage:
    """Record by record; of each only the numbers stay in memory. `only`: of these rows."""
    rows, measured, bad, values, weights = [], [], [], [], []
    curves: dict[str, list[list[Array]]] = {}
    labels: tuple[str, ...] = ()
    set_aside: Counter[str] = Counter()
    right = judged = cut = 0
    read: Counter[str] = Counter()  # hash of what the model reads -> examples; runs from before have none
    most_marked: int | None = None
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
            read.update([record["read"]] if "read" in record else [])
            if record.get("marked") is not None:
                most_marked = max(most_marked or 0, record["marked"])
    empty = np.zeros((0, len(labels), len(measures)))
    stacked = {name: stack(lines) for name, lines in curves.items()}
    arrays = (np.array(values) if values else empty, np.array(weights), stacked)
    copies = read.total() - len(read)
    facts = (right, judged, set_aside, tuple(bad), cut, copies, most_marked)
    return Stage(tuple(rows), tuple(measured), labels, *arrays, *facts)


def values_of(method: Mapping[str, Any], measures: Sequence[Measure]) -> list[float]:
    return [method["values"].get(measure.label, np.nan) for measure in measures]


def weight_of(record: Record, measure: Measure) -> float:
    """Examples count alike, but for marked units in a micro-average, and for pairs of models."""
    if measure.entry.compares == "models":
        return record["pairs"]
    if not measure.entry.weighted:
        return 1.0
    return record.get("weights", {}).get(measure.label, record["marked"])


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


def measures_of(settings: Mapping[str, Any], path: Path) -> tuple[Measure, ...]:
    """What run.json says was measured, after a look at everything that a table needs from it."""
    if settings.get("format", FORMAT) != FORMAT:
        raise RefusedValue(
            f"{path} describes {settings['format']!r}, not a benchmark: there is no table in this folder"
        )
    try:
        for one in (settings["model"]["name"], settings["data"]["source"], settings["data"]["hub"]):
            expect(one is None or isinstance(one, str), "model and data", "names", one)
        for label, method in settings["methods"].items():
            check_texts(method, ("name", "title"))
            expect(isinstance(method["control"], bool), f"control of {label}", "true or false", method["control"])
        check_texts(settings["protocol"], ("name",))
        return tuple(measure_from(plain) for plain in settings["protocol"]["measures"])
    except INCOMPLETE as error:
        reason = f"{type(error).__name__}: {error}"
    except ValueError as error:
        reason = str(error)
    raise RefusedValue(
        f"{path} cannot be used ({reason}): it is damaged, or it names a metric that is not registered here. Register "
        "the metric first, or run the benchmark again in another folder"
    )
