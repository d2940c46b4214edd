"""Many texts: similar lengths together, every job on each batch, results in the order of the texts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from tokenlight.explain.footprint import shape_of
from tokenlight.explain.free_memory import refuse_too_large
from tokenlight.explain.inquiry import Inquiry
from tokenlight.explain.jobs import Job
from tokenlight.explain.passes import plan_passes
from tokenlight.explain.running import Running, run_jobs
from tokenlight.foundation.progress import track
from tokenlight.methods import Attribution
from tokenlight.model.kept_twins import borrowed_twin
from tokenlight.model.twin import Twin
from tokenlight.record.recording import Answer
from tokenlight.tasks.targets import Target
from tokenlight.text.batches import with_units

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


Result = TypeVar("Result")
# Makes a result of what was found for one text: its place in the batch comes last.
Assemble = Callable[["Explainer", Inquiry, Job, Answer, Attribution, int], Result]


def explain_in_batches(
    explainer: "Explainer",
    inquiries: Sequence[Inquiry],
    jobs: Mapping[str, Job],
    running: Running,
    assemble: Assemble[Result],
) -> dict[str, list[Result]]:
    """For every job its results for all texts."""
    found: dict[str, dict[int, Result]] = {name: {} for name in jobs}
    with nullcontext(running.twin) if running.twin else borrowed_twin(explainer.model) as twin:
        kinds = [one.kind for one in inquiries]
        batches = explainer.batches([one.read for one in inquiries], running.batch_size, kinds)
        for indices in track(batches, "explaining", map(len, batches), running.progress):
            asked = [inquiries[i] for i in indices]
            answer, attributions = explain_batch(twin, explainer, asked, list(jobs.values()), running)
            for (name, job), attribution in zip(jobs.items(), attributions, strict=True):
                for place, (i, one) in enumerate(zip(indices, asked, strict=True)):
                    found[name][i] = assemble(explainer, one, job, answer, attribution, place)
    return {name: [results[i] for i in range(len(inquiries))] for name, results in found.items()}


def explain_batch(
    twin: Twin, explainer: "Explainer", asked: Sequence[Inquiry], jobs: Sequence[Job], running: Running
) -> tuple[Answer, list[Attribution]]:
    """Texts of one kind, together."""
    target = Target(explainer.task, tuple(one.wanted for one in asked), asked[0].function)
    batch = explainer.collate([one.read for one in asked], twin.device)
    kinds = {job.full_options["units"] for job in jobs if "units" in job.method.options}
    kinds |= {"tokens" for job in jobs if job.contexts}
    batch = with_units(batch, [one.row for one in asked], kinds)
    batch = running.prepare(batch) if running.prepare else batch
    plan = plan_passes(target, jobs)
    refuse_too_large(shape_of(twin), plan, batch.input_ids.shape, running.saving, twin.device)
    each = asked[0].wanted.each
    return run_jobs(twin, batch, plan, memory=running.memory, saving=running.saving, each=each)
