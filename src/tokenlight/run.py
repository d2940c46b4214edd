"""Methods on one batch: those that read the same pass share it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenlight.batch import Batch
from tokenlight.methods import Attribution, Method
from tokenlight.record import Probe, Recording, record
from tokenlight.targets import Target
from tokenlight.twin import Twin


@dataclass(frozen=True)
class Job:
    """A method with its options."""

    method: Method
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.method.check_options(self.options)


def run_jobs(twin: Twin, batch: Batch, target: Target, jobs: Sequence[Job]) -> tuple[Recording, list[Attribution]]:
    """One recording for all methods that read a trace, then the methods that ask the model again."""
    needs = frozenset().union(*(job.method.needs_with(job.options) for job in jobs))
    recording = record(twin, batch, target, needs)
    probe = Probe(twin, batch, recording.choices)
    return recording, [run_job(job, recording, probe) for job in jobs]


def run_job(job: Job, recording: Recording, probe: Probe) -> Attribution:
    """Scores are added over the parts of the target; padding is exactly 0."""
    with torch.no_grad():
        sources = [probe] if job.method.asks_model else recording.traces
        parts = [as_attribution(job.method.function(source, **job.options)) for source in sources]
    real = probe.batch.attention_mask.bool()
    scores = torch.stack([part.scores for part in parts]).sum(0)
    scores = torch.where(real, scores.to(real.device), 0.0)
    if not torch.isfinite(scores).all():
        raise ValueError(f"method '{job.method.name}' gave scores that are not finite on this input")
    extras: dict[str, Tensor] = {}
    for part in parts:
        extras |= {name: extras.get(name, 0) + value for name, value in part.extras.items()}
    return Attribution(scores, extras)


def as_attribution(result: Tensor | Attribution) -> Attribution:
    return result if isinstance(result, Attribution) else Attribution(result)
