"""A few examples with every method's scores, kept for the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenlight.bench.cases import Case
from tokenlight.foundation.files import write_whole
from tokenlight.results.explanation import Explanation
from tokenlight.results.saved import CONVERSION, expect

FILE = "examples.json"
MOST = 4  # examples
LONGEST = 80  # tokens that can be read at a glance


def keep_shown(folder: Path, cases: Sequence[Case], explained: Mapping[str, Sequence[Explanation]]) -> None:
    """The first short examples of the run, by their row, so that a chunk which is done again changes nothing."""
    path = folder / FILE
    stored = read_stored(path) if path.exists() else {}
    before = len(stored)
    for i, case in enumerate(cases):
        number = str(case.draft.number)
        if len(stored) < MOST and number not in stored and len(case.draft.tokenized_text) <= LONGEST:
            stored[number] = [plain(results[i], label) for label, results in explained.items()]
    if not stored and cases:  # all are long: the shortest is better than none
        i = min(range(len(cases)), key=lambda i: len(cases[i].draft.tokenized_text))
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
    stored = read_stored(path)
    try:
        return [[Explanation.from_dict(plain) for plain in group] for group in stored.values()]
    except CONVERSION as error:
        raise damaged_examples(path, error) from error


def read_stored(path: Path) -> dict[str, list[Any]]:
    """By the number of their row, as `to_dict` gives them."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        expect(isinstance(stored, dict), "examples", "an object", stored)
        for group in stored.values():
            expect(isinstance(group, list), "examples", "a list for each row", group)
    except (ValueError, RecursionError) as error:
        raise damaged_examples(path, error) from error
    return stored


def damaged_examples(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} cannot be used ({error}). It holds examples for the report, and no results: delete it, then the same "
        "call or command goes on without them"
    )
