"""Why this answer, and not that one? Where the model has to read each for itself: one explanation minus another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenlight.explain.assembling import assemble
from tokenlight.explain.in_batches import explain_in_batches
from tokenlight.explain.inquiry import Request
from tokenlight.explain.jobs import MethodConfig
from tokenlight.explain.running import RunOptions
from tokenlight.results.explanation import Explanation

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


def explain_requests(
    explainer: "Explainer",
    requests: Sequence[Request],
    method_configs: Mapping[str, MethodConfig],
    run_options: RunOptions,
) -> dict[str, list[Explanation]]:
    """For every job its explanations of all texts."""
    split_foil = [one.split_foil(explainer.task) for one in requests]
    found = explain_in_batches(
        explainer, [one for parts in split_foil for one in parts], method_configs, run_options, assemble
    )
    return {name: differences_of(results, map(len, split_foil)) for name, results in found.items()}


def differences_of(results: Sequence[Explanation], counts: Iterable[int]) -> list[Explanation]:
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
