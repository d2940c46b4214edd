"""Methods on one batch, each in the contexts that it is asked in; those that are asked alike share their passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenlight.common.errors import RefusedValue
from tokenlight.explain.contexts import run_in_contexts
from tokenlight.explain.execute import run_once
from tokenlight.explain.plan import PassPlan, plan_passes
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_cache import PassMemory
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, Answer, RecordOptions
from tokenlight.text.batch import Batch
from tokenlight.text.removal import Contexts


@dataclass(frozen=True)
class RunOptions:
    """How jobs run over many texts."""

    batch_size: int = 32
    low_memory: bool = False  # blocks are computed again in the backward pass: less memory, more time, the same scores
    progress: bool = True
    fused: bool | None = None  # attention as one operation; None: wherever no method or rule needs its weights
    prepare: Callable[[Batch], Batch] | None = None  # changes what the passes see, as the protocols of some papers do
    memory: PassMemory | None = None  # for those who ask about one text again and again
    instrumented: InstrumentedModel | None = None  # of the explainer's model, where there is one already

    @property
    def record_options(self) -> RecordOptions:
        return RecordOptions(by_block=self.low_memory, last_logits=True, fused=self.fused)


def run_configs(
    instrumented: InstrumentedModel,
    batch: Batch,
    plan: PassPlan,
    *,
    memory: PassMemory | None = None,
    graph: bool = False,
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
    each: bool = False,
) -> tuple[Answer, list[Attribution]]:
    """What the model answers, and what every job of the plan finds. `graph` and `each` are as in `run_once`."""
    groups = by_contexts(plan.method_configs) or {None: []}
    if graph and any(groups):
        raise RefusedValue("scores over contexts cannot be differentiated: leave contexts out")
    answer: Answer | None = None
    found: dict[int, Attribution] = {}
    with instrumented.guard(batch) as batch:
        for contexts, numbers in groups.items():
            some = (
                plan
                if len(groups) == 1
                else plan_passes(plan.target, [plan.method_configs[number] for number in numbers])
            )
            chosen = None if answer is None else answer.selectors
            said, results = run_once(
                instrumented,
                batch,
                some,
                memory=memory,
                graph=graph,
                record_options=record_options,
                each=each,
                chosen=chosen,
            )
            if contexts is not None:
                results = run_in_contexts(
                    instrumented, batch, some, contexts, said.selectors, results, record_options, each
                )
            answer = answer or said
            found |= zip(numbers, results, strict=True)
    assert answer is not None, "there is a group"
    return answer, [found[number] for number in range(len(plan.method_configs))]


def by_contexts(method_configs: Sequence[MethodConfig]) -> dict[Contexts | None, list[int]]:
    """The numbers of the jobs that are asked in the same contexts; those that are asked in none come first."""
    groups: dict[Contexts | None, list[int]] = {}
    for number in sorted(range(len(method_configs)), key=lambda number: method_configs[number].contexts is not None):
        groups.setdefault(method_configs[number].contexts, []).append(number)
    return groups
