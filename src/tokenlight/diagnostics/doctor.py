"""Estimates of the memory that methods need on a model, and a trial of every method on a short input."""

import time
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.common.progress import track
from tokenlight.diagnostics.checks import check_model
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.memory import Shape, free_memory, largest_batch, need_of_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import RecordOptions
from tokenlight.results.model_report import Examination, Finding, Need, Outlook
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.tokenized_text import Text

BATCH, LONG = 32, 512  # defaults of the estimate: texts in a batch, and tokens in each


def foresee(explainer: Explainer, tokens: int | None = None) -> Outlook:
    """Estimate memory from the model's shape; without `tokens`, for its longest texts, up to 512 tokens."""
    limit = explainer.task.max_length
    if tokens is not None and limit is not None and tokens > limit:
        raise RefusedValue(f"the model reads {limit} tokens at most, found {tokens}: give fewer tokens")
    tokens = tokens or min(limit or LONG, LONG)
    instrumented = InstrumentedModel(explainer.model)
    model, shape, free = instrumented.model, Shape.of(instrumented.model), free_memory(instrumented.device)
    target = BatchTarget(explainer.task, (ResolvedTarget(),) * BATCH)
    needs_by_method = []
    for entry in METHODS.values():
        if not entry.fits(model):
            continue
        method_config = MethodConfig(
            entry, {"heads": None} if "heads" in entry.options else {}
        )  # masks do not change sizes
        plan = plan_passes(target, [method_config])
        record_options = [RecordOptions(by_block=low, last_logits=True) for low in (False, True)]
        needs = [need_of_plan(shape, plan, BATCH, tokens, options) for options in record_options]
        fits = [
            None if free is None else largest_batch(shape, plan, tokens, options, free) for options in record_options
        ]
        needs_by_method.append(Need(entry.name, needs[0], needs[1], fits[0], fits[1]))
    return Outlook(tokens, BATCH, shape.weights, str(instrumented.device), free, tuple(needs_by_method))


def examine(explainer: Explainer) -> Examination:
    """Run every method on the task's sample text."""
    text, target = explainer.task.sample
    explainer.explain(text, target=target, method="gradient_x_input")  # a warm-up: the first pass is slow
    findings = [try_method(explainer, name, text, target) for name in track(list(METHODS), "trying methods")]
    parameters = list(explainer.model.parameters())
    return Examination(
        model=type(explainer.model).__name__,
        task=explainer.task.name,
        parameters=sum(parameter.numel() for parameter in parameters),
        weights=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        dtype=str(explainer.model.dtype),
        device=str(explainer.model.device),
        tokens=len(explainer.encode([text])[0]),
        findings=tuple(findings),
        check=check_model(explainer.model, two_rows(explainer, text)),
    )


def two_rows(explainer: Explainer, text: Text) -> tuple[Tensor, Tensor]:
    """The tokens of a text, and a prefix of them, so that a batch of both has padding."""
    ids = torch.tensor(explainer.encode([text])[0].input_ids, device=InstrumentedModel(explainer.model).device)
    return ids, ids[: max(len(ids) * 3 // 4, 1)]


def try_method(explainer: Explainer, name: str, text: Text, target: Any) -> Finding:
    storages: dict[int, int] = {}

    def record_storage(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {parameter.untyped_storage().data_ptr() for parameter in explainer.model.parameters()}
    began = time.perf_counter()
    try:
        with torch.autograd.graph.saved_tensors_hooks(record_storage, lambda tensor: tensor):
            explainer.explain(text, name, target=target, progress=False)
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:
        return Finding(name, 0.0, 0, str(error))
    seconds = time.perf_counter() - began
    return Finding(name, seconds, sum(size for address, size in storages.items() if address not in weights))
