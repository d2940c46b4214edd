"""What figures 6 and 9 share: the fall of the probability while tokens are deleted one by one."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tokenlight.bench.protocol import Protocol
from tokenlight.bench.tabulate import STAGES
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.runs.run_folder import Journal

METRIC = "comprehensiveness"


def make_protocol(deleted: int, released: bool = False) -> Protocol:
    """A point for each of the first `deleted` tokens; no text above 200 tokens, as in the authors' code.

    In the release, a point is the lowest probability so far.
    """
    deleting = Perturbation(removal="delete", grid=tuple(range(1, deleted + 1)))
    return Protocol("alti_curves", (Measure(METRIC, deleting, {"envelope": released}),), longest=200)


def released_curves(folder: Path, agreement: bool) -> dict[str, np.ndarray]:
    """Method -> [number of deleted tokens] the lowest probability so far, beginning with the whole text.

    Each point is the mean over the texts that have so many tokens to delete; of agreement, the release never deletes
    all tokens but [CLS], [MASK] and [SEP].
    """
    curves: dict[str, list[np.ndarray]] = {}
    for record in Journal(folder / STAGES[0]):
        if record.get("methods"):
            words = record["tokens"] - (3 if agreement else 2)  # BERT's special tokens stay
            points = words if agreement else words + 1
            for method, own in record["methods"].items():
                curves.setdefault(method, []).append(np.minimum.accumulate(own["curves"][METRIC])[:points])
    return {method: np.array(list(mean_of_longer(own))) for method, own in curves.items()}


def mean_of_longer(curves: Sequence[np.ndarray]) -> Iterator[float]:
    """At each point the mean over the curves that have it."""
    for point in range(max(map(len, curves))):
        yield float(np.mean([curve[point] for curve in curves if len(curve) > point]))


def list_points(curves: Mapping[str, np.ndarray], shown: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table with these points of the curves."""
    points = [point for point in shown if point < min(map(len, curves.values()))]
    rows = [[method, *(f"{values[point]:.3f}" for point in points)] for method, values in curves.items()]
    return ["deleted tokens", *map(str, points)], rows
