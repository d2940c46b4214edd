"""Methods on one batch: one recording for each rule table, however many methods read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenlight.explain.jobs import Job
from tokenlight.explain.passes import PassPlan
from tokenlight.methods import METHODS, Attribution
from tokenlight.model.twin import Twin
from tokenlight.record.choices import Asked, Settled
from tokenlight.record.pass_memory import PassMemory
from tokenlight.record.planned_pass import Key, PlannedPass
from tokenlight.record.probe import Probe
from tokenlight.record.recording import NO_SAVING, Recording, Saving, record
from tokenlight.record.rows import NoSingleRow
from tokenlight.text.batches import Batch


@dataclass(frozen=True)
class Running:
    """How jobs run over many texts."""

    batch_size: int = 32
    low_memory: bool = False  # blocks are computed again in the backward pass: less memory, more time, the same scores
    progress: bool = True
    fused: bool | None = None  # attention as one operation; None: wherever no method or rule needs its weights
    prepare: Callable[[Batch], Batch] | None = None  # changes what the passes see, as the protocols of some papers do
    memory: PassMemory | None = None  # for those who ask about one text again and again
    twin: Twin | None = None  # of the explainer's model, where there is one already

    @property
    def saving(self) -> Saving:
        return Saving(by_block=self.low_memory, last_logits=True, fused=self.fused)


def run_jobs(
    twin: Twin,
    batch: Batch,
    plan: PassPlan,
    *,
    memory: PassMemory | None = None,
    graph: bool = False,
    saving: Saving = NO_SAVING,
) -> tuple[Recording, list[Attribution]]:
    """Record every distinct pass once, then let the methods read; those that ask the model again come last.

    With `graph`, scores can be differentiated for the strengths of a head mask whose tensors ask for it.
    """
    if saving.fused:
        refuse_to_write_out(plan)
    # The caller's inference mode or autocast must not change what is computed.
    with torch.inference_mode(False), torch.autocast(twin.device.type, enabled=False):
        batch = batch.map(Tensor.clone)
        if memory is not None:
            memory.open(twin.model, batch, plan.target)

        def run(one: PlannedPass, goal: Asked) -> Recording:
            if memory is None or one.rules is not None or one.gates is not None:
                return record(twin, batch, goal, one, graph=graph, saving=saving)
            known = memory.recall(one)  # only plain passes are remembered, which masks and rules do not touch
            if known is None:
                known = record(twin, batch, goal, one, graph=graph, saving=saving)
                memory.keep(one, known)
            return known

        goal: Asked = plan.target
        recordings: dict[Key, Recording] = {}
        said = None
        if not plan.passes or (plan.in_double and twin.dtype.itemsize < 4):
            said = record(twin, batch, goal, saving=saving)  # what the model says in its own precision decides
            goal = Settled(said.choices)
        for key, one in plan.passes.items():
            try:
                recordings[key] = run(one, goal)
            except NoSingleRow as error:
                raise ValueError(f"{error}. {describe_readers(plan.jobs)}") from error
            goal = Settled(recordings[key].choices)  # the same target in every pass, even where rounding ties
        first = said or next(iter(recordings.values()))
        probe = Probe(twin, batch, first.choices, saving, at_once=len(batch.input_ids) if saving.by_block else None)
        with torch.set_grad_enabled(graph):
            found = [run_job(job, [recordings[key] for key in keys], probe) for job, keys in plan.readers]
        return first, found


def refuse_to_write_out(plan: PassPlan) -> None:
    """Attention was to be one operation."""
    readers = [job.method.name for job, keys in plan.readers if not all(plan.passes[key].can_fuse for key in keys)]
    if readers:
        raise ValueError(f"fused=True: {', '.join(readers)} need the attention weights written out; leave fused away")


def describe_readers(jobs: Sequence[Job]) -> str:
    """What to do where there is no row to read."""
    readers = [job.method.name for job in jobs if any(one.reads_row for one in job.passes(split=False))]
    others = [name for name, entry in METHODS.items() if not entry.reads_row]
    return (
        f"{', '.join(readers)} need the one token whose output is explained: give a function that reads one token, or "
        f"choose a method that needs none: {', '.join(others)}"
    )


def run_job(job: Job, recordings: list[Recording], probe: Probe) -> Attribution:
    """Scores are added over the parts of the target, minus those of a foil; padding is exactly 0."""
    if recordings:
        groups = list(zip(*(recording.traces for recording in recordings), strict=True))
        signs = [group[0].sign for group in groups]
        parts = [as_attribution(job.method.function(*group, **job.options)) for group in groups]
    else:
        signs, parts = [1], [as_attribution(job.method.function(probe, **job.options))]
    fused = all(recording.fused for recording in recordings) if recordings else probe.fused
    real = probe.batch.attention_mask.bool()
    scores = add_up([part.scores for part in parts], signs)
    scores = torch.where(real, scores.to(real.device), 0.0)
    if not torch.isfinite(scores).all():
        raise ValueError(f"method '{job.method.name}' gave scores that are not finite on this input")
    extras = {name: add_up([part.extras[name] for part in parts], signs) for name in parts[0].extras}
    maps = {name: add_up([part.maps[name] for part in parts], signs) for name in parts[0].maps}
    return Attribution(scores, extras, maps, fused)


def add_up(tensors: list[Tensor], signs: list[int]) -> Tensor:
    return torch.stack([sign * tensor for sign, tensor in zip(signs, tensors, strict=True)]).sum(0)


def as_attribution(result: Tensor | Attribution) -> Attribution:
    return result if isinstance(result, Attribution) else Attribution(result)
