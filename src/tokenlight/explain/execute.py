"""Runs the methods of a plan on one batch, each in its contexts; methods with equal contexts share their passes."""

from collections.abc import Sequence

from tokenlight.common.errors import RefusedValue
from tokenlight.explain.contexts import run_in_contexts
from tokenlight.explain.passes import run_passes
from tokenlight.explain.plan import PassPlan, plan_passes
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_cache import PassCache
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, PassOutput, RecordOptions
from tokenlight.text.batch import Batch
from tokenlight.text.context_draws import Contexts


def execute_plan(
    instrumented: InstrumentedModel,
    batch: Batch,
    plan: PassPlan,
    *,
    pass_cache: PassCache | None = None,
    graph: bool = False,
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
) -> tuple[PassOutput, list[Attribution]]:
    """The model's output with what is explained of it, and the attribution of each method of the plan.

    With `graph`, scores can be differentiated for the strengths of a head mask whose tensors require gradients.
    """
    groups = group_by_contexts(plan.method_configs) or {None: []}
    if graph and any(groups):
        raise RefusedValue("scores over contexts cannot be differentiated: leave contexts out")
    pass_output: PassOutput | None = None
    attributions: dict[int, Attribution] = {}
    with instrumented.guard(batch) as batch:
        for contexts, numbers in groups.items():
            group_plan = plan
            if len(groups) > 1:
                group_plan = plan_passes(plan.target, [plan.method_configs[number] for number in numbers])
            if pass_output is not None:  # all groups explain what the first pass has selected
                group_plan = group_plan.with_selectors(pass_output.selectors)
            group_output, group_attributions = run_passes(
                instrumented, batch, group_plan, pass_cache=pass_cache, graph=graph, record_options=record_options
            )
            if contexts is not None:
                group_plan = group_plan.with_selectors(group_output.selectors)
                group_attributions = run_in_contexts(
                    instrumented, batch, group_plan, contexts, group_attributions, record_options
                )
            pass_output = pass_output or group_output
            attributions |= zip(numbers, group_attributions, strict=True)
    assert pass_output is not None, "there is at least one group"
    return pass_output, [attributions[number] for number in range(len(plan.method_configs))]


def group_by_contexts(method_configs: Sequence[MethodConfig]) -> dict[Contexts | None, list[int]]:
    """The numbers of the methods with equal contexts; those without contexts come first."""
    groups: dict[Contexts | None, list[int]] = {}
    for number in sorted(range(len(method_configs)), key=lambda number: method_configs[number].contexts is not None):
        groups.setdefault(method_configs[number].contexts, []).append(number)
    return groups
