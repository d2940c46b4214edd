"""Many methods in one run, as explain_all has them: those with the same rules share their passes."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from tests import models
from tokenlight.explain.attribute import raw_batch
from tokenlight.explain.jobs import Job
from tokenlight.explain.passes import plan_passes
from tokenlight.explain.running import run_jobs
from tokenlight.methods import METHODS, Attribution
from tokenlight.model.kept_twins import borrowed_twin
from tokenlight.record.recording import NO_SAVING, Saving
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import Target, Wanted, shared_function, spread


def together(
    model: PreTrainedModel,
    names: Sequence[str],
    ids: Tensor,
    mask: Tensor | None = None,
    *,
    target: Any,
    foil: Any = None,
    saving: Saving = NO_SAVING,
    **options: Mapping[str, Any],
) -> dict[str, Attribution]:
    """What `tl.attribute` finds for each of the methods; options of one are given under its name."""
    with borrowed_twin(model) as twin:
        chosen = {name: {**models.quick_options(name), **options.get(name, {})} for name in names}
        jobs = [Job.for_model(METHODS[name], chosen[name], twin.model) for name in names]
        targets, foils = (spread(x, len(ids), n) for x, n in ((target, "target"), (foil, "foil")))
        function, task = shared_function(targets, foils), task_of(twin.model)
        wanted = [Wanted() if function else task.want_ids(t, f) for t, f in zip(targets, foils, strict=True)]
        plan = plan_passes(Target(task, tuple(wanted), function), jobs)
        found = run_jobs(twin, raw_batch(ids, mask, None, twin), plan, saving=saving)[1]
    return dict(zip(names, found, strict=True))
