"""Methods on one batch: one recording for each rule table, however many methods read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.masks.choosing import choose_heads
from tokenlight.masks.head_mask import HeadMask
from tokenlight.methods import METHODS, Attribution, Method, Pass
from tokenlight.model.twin import Twin
from tokenlight.record.choices import Settled
from tokenlight.record.pass_memory import PassMemory
from tokenlight.record.probe import Probe
from tokenlight.record.recording import NO_SAVING, Recording, Saving, record
from tokenlight.record.rows import NoSingleRow
from tokenlight.rules.gates import Gates
from tokenlight.rules.mode import RuleTable
from tokenlight.tasks.targets import Target
from tokenlight.text.batches import Batch

Key = tuple[Any, ...]  # of a planned pass: same key, same pass


@dataclass(frozen=True)
class PlannedPass:
    """A pass to record, and all that the methods which read it need of it."""

    needs: set[str]
    rules: RuleTable | None
    gates: Gates | None
    split: bool
    unit: bool
    double: bool

    @property
    def key(self) -> Key:
        # Under rules, relevance that is lost below the blocks counts only for those who read below them.
        below = self.rules is not None and "embeddings.grad" in self.needs
        return (id(self.rules), self.gates and self.gates.key, self.split, self.unit, self.double, below)

    def record(
        self,
        twin: Twin,
        batch: Batch,
        goal: Target | Settled,
        memory: PassMemory | None = None,
        graph: bool = False,
        saving: Saving = NO_SAVING,
    ) -> Recording:
        """The pass, or the same from memory; only plain ones are remembered, which masks and rules do not touch."""
        if memory is None or self.rules is not None or self.gates is not None:
            return self._record(twin, batch, goal, graph, saving)
        known = memory.recall(self.key, self.needs)
        if known is None:
            known = self._record(twin, batch, goal, graph, saving)
            memory.keep(self.key, self.needs, known)
        return known

    def _record(self, twin: Twin, batch: Batch, goal: Target | Settled, graph: bool, saving: Saving) -> Recording:
        how = {"split": self.split, "unit": self.unit, "double": self.double, "graph": graph, "saving": saving}
        return record(twin, batch, goal, self.needs, rules=self.rules, gates=self.gates, **how)


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

    def passes(self, split: bool) -> list[PlannedPass]:
        """The method's passes, each with what the options or the user say."""
        return [self._plan(one, split) for one in self.method.passes]

    def _plan(self, one: Pass, split: bool) -> PlannedPass:
        options = self.full_options
        table, double = one.rules_with(options), one.double
        if table is not None and self.rules is not None:  # only our own tables can mix precisions
            table, double = self.rules, False
        needs = set(one.needs_with(options))
        return PlannedPass(needs, table, one.gates_with(options), split, one.unit, double)

    @classmethod
    def for_model(
        cls, method: Method, options: Mapping[str, Any], model: PreTrainedModel, rules: RuleTable | None = None
    ) -> "Job":
        """With the heads that the options name, or that the method takes by default, looked up and checked."""
        method.check_options(options)
        if "heads" in method.options:
            options = {**options, "heads": choose_heads(options.get("heads", method.options["heads"]), model)}
        return cls(method, options, rules)

    @property
    def full_options(self) -> dict[str, Any]:
        return {**self.method.options, **self.options}

    @property
    def described_options(self) -> dict[str, Any]:
        """As a result keeps them: in words where they are objects."""
        return {name: str(v) if isinstance(v, HeadMask) else v for name, v in self.full_options.items()}


def run_jobs(
    twin: Twin,
    batch: Batch,
    target: Target,
    jobs: Sequence[Job],
    memory: PassMemory | None = None,
    graph: bool = False,
    saving: Saving = NO_SAVING,
) -> tuple[Recording, list[Attribution]]:
    """Record every distinct pass once, then let the methods read; those that ask the model again come last.

    With `graph`, scores can be differentiated for the strengths of a head mask whose tensors ask for it.
    """
    # The caller's inference mode or autocast must not change what is computed.
    with torch.inference_mode(False), torch.autocast(twin.device.type, enabled=False):
        return run_undisturbed(twin, batch.map(Tensor.clone), target, jobs, memory, graph, saving)


def run_undisturbed(
    twin: Twin,
    batch: Batch,
    target: Target,
    jobs: Sequence[Job],
    memory: PassMemory | None,
    graph: bool,
    saving: Saving,
) -> tuple[Recording, list[Attribution]]:
    if memory is not None:
        memory.open(twin.model, batch, target)
    planned, keys = plan(target, jobs)
    goal: Target | Settled = target
    recordings: dict[Key, Recording] = {}
    said = None
    if not planned or (any(one.double for one in planned.values()) and twin.dtype.itemsize < 4):
        said = record(twin, batch, target, saving=saving)  # what the model says in its own precision decides
        goal = Settled(said.choices)
    for key, one in planned.items():
        try:
            recordings[key] = one.record(twin, batch, goal, memory, graph, saving)
        except NoSingleRow as error:
            raise ValueError(f"{error}. {describe_readers(jobs)}") from error
        goal = Settled(recordings[key].choices)  # the same target in every pass, even where rounding ties
    first = said or next(iter(recordings.values()))
    probe = Probe(twin, batch, first.choices, saving, at_once=len(batch.input_ids) if saving.by_block else None)
    with torch.set_grad_enabled(graph):
        found = [run_job(job, [recordings[key] for key in own], probe) for job, own in zip(jobs, keys, strict=True)]
    return first, found


def describe_readers(jobs: Sequence[Job]) -> str:
    """What to do where there is no row to read."""
    readers = [job.method.name for job in jobs if any("row" in one.needs for one in job.passes(split=False))]
    others = [name for name, entry in METHODS.items() if not entry.reads_row]
    return (
        f"{', '.join(readers)} need the one token whose output is explained: give a function that reads one token, or "
        f"choose a method that needs none: {', '.join(others)}"
    )


def plan(target: Target, jobs: Sequence[Job]) -> tuple[dict[Key, PlannedPass], list[list[Key]]]:
    """The distinct passes with all that is needed of each, and for every job the keys of those it reads."""
    planned: dict[Key, PlannedPass] = {}
    keys: list[list[Key]] = []
    for job in jobs:
        split = job.method.explains_apart(target.task, target.foiled)
        keys.append([])
        for one in job.passes(split):
            key = one.key
            keys[-1].append(key)
            planned.setdefault(key, one).needs.update(one.needs)
    return planned, keys


def run_job(job: Job, recordings: list[Recording], probe: Probe) -> Attribution:
    """Scores are added over the parts of the target, minus those of a foil; padding is exactly 0."""
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
