"""A few examples with every method's scores, kept for the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenlight.bench.cases import Case
from tokenlight.foundation.files import write_whole
from tokenlight.results.explanation import Explanation

FILE = "examples.json"
MOST = 4  # examples
LONGEST = 80  # tokens that can be read at a glance


def keep_shown(folder: Path, cases: Sequence[Case], explained: Mapping[str, Sequence[Explanation]]) -> None:
    """The first short examples of the run, by their row, so that a chunk which is done again changes nothing."""
    path = folder / FILE
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    before = len(stored)
    for i, case in enumerate(cases):
        number = str(case.draft.number)
        if len(stored) < MOST and number not in stored and len(case.draft.row) <= LONGEST:
            stored[number] = [plain(results[i], label) for label, results in explained.items()]
    if not stored and cases:  # all are long: the shortest is better than none
        i = min(range(len(cases)), key=lambda i: len(cases[i].draft.row))
        stored[str(cases[i].draft.number)] = [plain(results[i], label) for label, results in explained.items()]
    if len(stored) > before:
        write_whole(path, json.dumps(stored, ensure_ascii=False) + "\n")


def plain(explanation: Explanation, label: str) -> dict[str, Any]:
    """Under the method's label; that it does not depend on a target is no news where none was asked for."""
    notes = tuple(note for note in explanation.notes if "does not depend on the target" not in note)
    return replace(explanation, method=label, notes=notes).to_dict()


def read_shown(folder: Path) -> list[list[Explanation]]:
    """For each example the explanations of all methods."""
    path = folder / FILE
    if not path.exists():
        return []
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [[Explanation.from_dict(plain) for plain in group] for group in stored.values()]
