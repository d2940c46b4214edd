"""One explanation minus another of the same text: why this answer, and not that one?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenlight.results.explanation import Explanation


def contrast_pairs(results: Sequence[Explanation], counts: Iterable[int]) -> list[Explanation]:
    """Where there are two for a text, the first minus the second."""
    rest = iter(results)
    groups = [[next(rest) for _ in range(count)] for count in counts]
    return [group[0] if len(group) == 1 else minus(*group) for group in groups]


def minus(one: Explanation, other: Explanation) -> Explanation:
    """Scores and all numbers about them are differences."""
    return replace(
        one,
        scores=one.scores - other.scores,
        score=one.score - other.score,
        foil=other.target,
        foil_indices=other.indices,
        signed=True,
        extras=differences(one.extras, other.extras),
        maps=differences(one.maps, other.maps),
        notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
    )


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value - other[name] for name, value in one.items()}
