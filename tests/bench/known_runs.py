"""Folders of runs whose numbers are known."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tokenlight.common.files import write_atomically
from tokenlight.runs.run_folder import Journal

METHODS = {
    "good": "Good & <b>_new_</b>",
    "similar": "Similar | to good",
    "poor": "Poor",
    "random": "Random",
}


def measure(metric: str, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "perturbation": None, "options": {}, "eligible": "words", "name": "", **more}


def write_run(folder: Path, values: dict[str, np.ndarray], metrics: list[str], marked: list[int] | None = None) -> Path:
    """A run's folder with these values [example, metric] for each method."""
    settings = {
        "model": {"name": "a/model"},
        "data": {"source": "/somewhere/data/dev.tsv", "hub": None},
        "methods": {n: {"name": n, "title": METHODS[n], "control": n == "random"} for n in values},
        "protocol": {"name": "clean", "measures": [measure(metric) for metric in metrics]},
    }
    folder.mkdir(exist_ok=True)
    write_atomically(folder / "run.json", json.dumps(settings))
    examples = len(next(iter(values.values())))
    records = [
        {
            "row": i,
            "set_aside": None,
            "cut": 0,
            "right": None,
            "marked": marked[i] if marked else None,
            "methods": {
                name: {
                    "values": dict(zip(metrics, one[i].tolist(), strict=True)),
                    "curves": {"aopc": [1.0, *np.linspace(0.9, 0.1, 10).tolist()]} if "aopc" in metrics else {},
                }
                for name, one in values.items()
            },
        }
        for i in range(examples)
    ]
    Journal(folder / "results-00000.jsonl").append(0, records)
    turned = [{**r, "methods": {"inverse of good": r["methods"]["poor"]}} for r in records if "poor" in values]
    if turned:
        Journal(folder / "results-00001.jsonl").append(0, turned)
    return folder


def write_four_methods(folder: Path) -> Path:
    """Two methods that cannot be told apart, a worse one, and a control, on 200 texts by two metrics."""
    generator = np.random.default_rng(2)
    texts = generator.normal(0, 1, (200, 1))  # hard and easy texts: the same for all methods
    metrics = np.array([[1.0, -1.0]])  # the second is better when lower
    noise = generator.normal(0, 0.1, (4, 200, 1))
    noise -= noise.mean(1, keepdims=True)  # so that the means are what stands here
    values = {
        "similar": (texts + 0.499 + noise[0]) * metrics,
        "good": (texts + 0.5 + noise[1]) * metrics,
        "poor": (texts + 0.4 + noise[2]) * metrics,
        "random": (texts + 0.6 + noise[3]) * metrics,
    }
    return write_run(folder, values, ["aopc", "log_odds"])
