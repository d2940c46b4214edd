"""Methods on one batch: one recording for each rule table, however many methods read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tokenlight.batch import Batch
from tokenlight.methods import Attribution, Method, Pass
from tokenlight.record import Probe, Recording, record
from tokenlight.rules import RuleTable
from tokenlight.targets import Settled, Target
from tokenlight.twin import Twin

Key = tuple[int, bool, bool, bool, bool]  # table, unit, split, double, reads below the blocks: same key, same pass
Planned = dict[Key, tuple[Pass, RuleTable | None, set[str]]]


@dataclass(frozen=True)
class Job:
    """A method with its options, and the user's own rule table if there is one."""

    method: Method
    options: Mapping[str, Any]
    rules: RuleTable | None = None

    def __post_init__(self) -> None:
        self.method.check_options(self.options)
        if self.rules is not None and not any(one.rules for one in self.method.passes):
            raise TypeError(f"method '{self.method.name}' has no rule table that could be replaced")

    @cached_property
    def passes(self) -> list[tuple[Pass, RuleTable | None]]:
        """The method's passes, each with the table that the options or the user say."""
        passes = []
        for one in self.method.passes:
            table = one.rules_with(self.full_options)
            if table is not None and self.rules is not None:  # only our own tables can mix precisions
                one, table = replace(one, double=False), self.rules
            passes.append((one, table))
        return passes

    @property
    def full_options(self) -> dict[str, Any]:
        return {**self.method.options, **self.options}


def run_jobs(twin: Twin, batch: Batch, target: Target, jobs: Sequence[Job]) -> tuple[Recording, list[Attribution]]:
    """Record every distinct pass once, then let the methods read; those that ask the model again come last."""
    # The caller's inference mode or autocast must not change what is computed.
    with torch.inference_mode(False), torch.autocast(twin.device.type, enabled=False):
        return run_undisturbed(twin, batch.map(Tensor.clone), target, jobs)


def run_undisturbed(
    twin: Twin, batch: Batch, target: Target, jobs: Sequence[Job]
) -> tuple[Recording, list[Attribution]]:
    planned, keys = plan(target, jobs)
    goal: Target | Settled = target
    recordings: dict[Key, Recording] = {}
    said = None
    if not planned or (any(one.double for one, _, _ in planned.values()) and twin.dtype.itemsize < 4):
        said = record(twin, batch, target)  # what the model says in its own precision decides
        goal = Settled(said.choices)
    for key, (one, table, needs) in planned.items():
        recordings[key] = record(twin, batch, goal, needs, rules=table, split=key[2], unit=one.unit, double=one.double)
        goal = Settled(recordings[key].choices)  # the same target in every pass, even where rounding ties
    first = said or next(iter(recordings.values()))
    probe = Probe(twin, batch, first.choices)
    return first, [run_job(job, [recordings[key] for key in own], probe) for job, own in zip(jobs, keys, strict=True)]


def plan(target: Target, jobs: Sequence[Job]) -> tuple[Planned, list[list[Key]]]:
    """The distinct passes with all that is needed of each, and for every job the keys of those it reads."""
    foiled = any(wanted.foil is not None or wanted.foil_span is not None for wanted in target.wanted)
    planned: Planned = {}
    keys: list[list[Key]] = []
    for job in jobs:
        split = job.method.explains_apart(target.task, foiled)
        keys.append([])
        for one, table in job.passes:
            needs = one.needs_with(job.full_options)
            # Under rules, relevance that is lost below the blocks counts only for those who read below them.
            below = table is not None and "embeddings.grad" in needs
            key = (id(table), one.unit, split, one.double, below)
            keys[-1].append(key)
            planned.setdefault(key, (one, table, set()))[2].update(needs)
    return planned, keys


def run_job(job: Job, recordings: list[Recording], probe: Probe) -> Attribution:
    """Scores are added over the parts of the target, minus those of a foil; padding is exactly 0."""
    with torch.no_grad():
        if recordings:
            groups = list(zip(*(recording.traces for recording in recordings), strict=True))
            signs = [group[0].sign for group in groups]
            parts = [as_attribution(job.method.function(*group, **job.options)) for group in groups]
        else:
            signs, parts = [1], [as_attribution(job.method.function(probe, **job.options))]
    real = probe.batch.attention_mask.bool()
    scores = add_up([part.scores for part in parts], signs)
    scores = torch.where(real, scores.to(real.device), 0.0)
    if not torch.isfinite(scores).all():
        raise ValueError(f"method '{job.method.name}' gave scores that are not finite on this input")
    extras = {name: add_up([part.extras[name] for part in parts], signs) for name in parts[0].extras}
    maps = {name: add_up([part.maps[name] for part in parts], signs) for name in parts[0].maps}
    return Attribution(scores, extras, maps)


def add_up(tensors: list[Tensor], signs: list[int]) -> Tensor:
    return torch.stack([sign * tensor for sign, tensor in zip(signs, tensors, strict=True)]).sum(0)


def as_attribution(result: Tensor | Attribution) -> Attribution:
    return result if isinstance(result, Attribution) else Attribution(result)
