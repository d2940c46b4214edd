"""What methods will need on a model, before anything runs; then every method tried on a short input."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenlight.explain.explainer import Explainer
from tokenlight.explain.footprint import Shape, need_of_plan
from tokenlight.explain.free_memory import describe_bytes, free_memory, largest_batch
from tokenlight.explain.jobs import Job
from tokenlight.explain.passes import plan_passes
from tokenlight.foundation.progress import track
from tokenlight.methods import METHODS
from tokenlight.model.twin import Twin
from tokenlight.record.recording import Saving
from tokenlight.tasks.targets import Target, Wanted
from tokenlight.text.rows import Text as Input

BATCH, LONG, MANY = 32, 512, 9999  # texts of a batch and their tokens in the outlook; more than that is "many"


@dataclass(frozen=True)
class Finding:
    """How one method did."""

    method: str
    seconds: float
    held: int  # bytes that autograd held for the backward pass
    error: str | None = None


def examine(explainer: Explainer) -> list[Finding]:
    text, target = explainer.task.sample
    explainer.explain(text, target=target, method="gradient_x_input")  # the first pass is always slow
    return [try_method(explainer, name, text, target) for name in track(list(METHODS), "trying methods")]


def try_method(explainer: Explainer, name: str, text: Input, target: Any) -> Finding:
    storages: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {parameter.untyped_storage().data_ptr() for parameter in explainer.model.parameters()}
    began = time.perf_counter()
    try:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            explainer.explain(text, name, target=target, progress=False)
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:
        return Finding(name, 0.0, 0, str(error))
    seconds = time.perf_counter() - began
    return Finding(name, seconds, sum(size for place, size in storages.items() if place not in weights))


@dataclass(frozen=True)
class Outlook:
    """What a method will need on texts of some length: bytes for a batch, and how many texts fit at once."""

    method: str
    need: int
    need_low: int  # with low_memory=True
    fitting: int | None  # None where nobody says what is free
    fitting_low: int | None


def foresee(explainer: Explainer, tokens: int, batch_size: int = BATCH) -> list[Outlook]:
    """From the model's shape alone."""
    twin = Twin(explainer.model)
    model, shape, free = twin.model, Shape.of(twin.model), free_memory(twin.device)
    target = Target(explainer.task, (Wanted(),) * batch_size)
    found = []
    for entry in METHODS.values():
        if not entry.fits(model):
            continue
        job = Job(entry, {"heads": None} if "heads" in entry.options else {})  # masks change no size
        plan = plan_passes(target, [job])
        ways = [Saving(by_block=low, last_logits=True) for low in (False, True)]
        needs = [need_of_plan(shape, plan, batch_size, tokens, way) for way in ways]
        fits = [None if free is None else largest_batch(shape, plan, tokens, way, free) for way in ways]
        found.append(Outlook(entry.name, needs[0], needs[1], fits[0], fits[1]))
    return found


def outlook_report(explainer: Explainer, tokens: int | None = None) -> RenderableType:
    """A table of needs, methods with equal needs in one row."""
    twin = Twin(explainer.model)
    limit = explainer.task.max_length
    if tokens is not None and limit is not None and tokens > limit:
        raise ValueError(f"the model reads {limit} tokens at most, found {tokens}: give fewer tokens")
    tokens = tokens or min(limit or LONG, LONG)
    free = free_memory(twin.device)
    groups: dict[tuple[Any, ...], list[str]] = {}
    for one in foresee(explainer, tokens):
        groups.setdefault((one.need, one.need_low, one.fitting, one.fitting_low), []).append(one.method)
    known = "unknown" if free is None else describe_bytes(free)
    header = Text(
        f"Memory beside the weights ({describe_bytes(Shape.of(twin.model).weights)}) for texts of {tokens} tokens, "
        f"estimated; free on {twin.device}: {known}"
    )
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in (f"{BATCH} texts", "low_memory", "fit at once", "low_memory", "method"):
        table.add_column(
            column, style="cyan" if column == "method" else "", justify="left" if column == "method" else "right"
        )
    for (need, low, fitting, fitting_low), names in sorted(groups.items(), key=lambda item: item[0][0]):
        counts = ("?" if count is None else describe_count(count) for count in (fitting, fitting_low))
        table.add_row(describe_bytes(need), describe_bytes(low), *counts, ", ".join(names))
    return Group(header, table, Text())


def describe_count(count: int) -> str:
    return f"> {MANY}" if count > MANY else str(count)


def report(explainer: Explainer, findings: list[Finding]) -> RenderableType:
    inner = explainer.model
    count = sum(parameter.numel() for parameter in inner.parameters())
    size = sum(parameter.numel() * parameter.element_size() for parameter in inner.parameters())
    text, _ = explainer.task.sample
    tokens = len(explainer.encode([text])[0])
    header = Text(
        f"{type(inner).__name__}, {explainer.task.name}, {count / 1e6:.1f} M weights "
        f"({size / 1e6:.0f} MB, {inner.dtype}); one text of {tokens} tokens on {inner.device}"
    )
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("method", "works", "time", "held for backward"):
        table.add_column(column, style="cyan" if column == "method" else "")
    for finding in findings:
        if finding.error is not None:
            table.add_row(finding.method, Text(f"no: {finding.error}", style="yellow"), "", "")
        else:
            held = f"{finding.held / 1e6:.1f} MB" if finding.held else "nothing"
            table.add_row(finding.method, "yes", f"{finding.seconds * 1e3:.0f} ms", held)
    return Group(header, table)
