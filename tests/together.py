"""Many methods in one run, as explain_all has them: those with the same rules share their passes."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from tests import models
from tokenlight.explain.attribute_ids import raw_batch
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS, Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, RecordOptions
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget, shared_function, spread


def together(
    model: PreTrainedModel,
    names: Sequence[str],
    ids: Tensor,
    mask: Tensor | None = None,
    *,
    target: Any,
    foil: Any = None,
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
    **options: Mapping[str, Any],
) -> dict[str, Attribution]:
    """What `tl.attribute` finds for each of the methods; options of one are given under its name."""
    with borrowed_model(model) as instrumented:
        chosen = {name: {**models.quick_options(name), **options.get(name, {})} for name in names}
        method_configs = [MethodConfig.for_model(METHODS[name], chosen[name], instrumented.model) for name in names]
        targets, foils = (spread(x, len(ids), n) for x, n in ((target, "target"), (foil, "foil")))
        function, task = shared_function(targets, foils), task_of(instrumented.model)
        resolved = [
            ResolvedTarget(kind="function", function=function) if function else task.resolve_target_ids(t, f)
            for t, f in zip(targets, foils, strict=True)
        ]
        plan = plan_passes(BatchTarget(task, tuple(resolved)), method_configs)
        found = execute_plan(
            instrumented, raw_batch(ids, mask, None, instrumented), plan, record_options=record_options
        )[1]
    return dict(zip(names, found, strict=True))
