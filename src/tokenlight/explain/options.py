"""How a call runs: the caller's options, and what callers inside the package lend to a run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import check_flag
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_cache import PassCache
from tokenlight.record.recorder import RecordOptions
from tokenlight.text.batch import Batch
from tokenlight.text.tokenized_text import is_whole


@dataclass(frozen=True)
class RunOptions:
    """How methods run over texts. The scores are the same with all settings, up to rounding."""

    batch_size: int | None = None  # texts per batch; None: 32, or 8 answers
    low_memory: bool = False  # compute blocks again in the backward pass: less memory, more time
    fused: bool | None = None  # attention as one operation; None: unless a method or rule needs its weights
    progress: bool = True  # show a progress bar for calls that take long

    def __post_init__(self) -> None:
        if self.batch_size is not None and (not is_whole(self.batch_size) or self.batch_size < 1):
            raise RefusedValue(f"batch_size is a positive whole number, found {self.batch_size!r}")
        check_flag("low_memory", self.low_memory)
        check_flag("fused", self.fused, or_none=True)
        check_flag("progress", self.progress)

    @property
    def record_options(self) -> RecordOptions:
        return RecordOptions(by_block=self.low_memory, last_logits=True, fused=self.fused)


DEFAULT_RUN_OPTIONS = RunOptions()


def split_options(options: Mapping[str, Any]) -> tuple[RunOptions, dict[str, Any]]:
    """Run options and options of methods, from keywords that may be either."""
    names = {field.name for field in fields(RunOptions)}
    run_options = RunOptions(**{name: value for name, value in options.items() if name in names})
    return run_options, {name: value for name, value in options.items() if name not in names}


@dataclass(frozen=True)
class Resources:
    """What a run uses instead of making its own."""

    instrumented: InstrumentedModel | None = None  # the explainer's model, already instrumented
    pass_cache: PassCache | None = None  # passes of earlier calls for the same text
    prepare: Callable[[Batch], Batch] | None = None  # changes each batch before it runs, as some papers' protocols do

    @contextmanager
    def instrument(self, model: PreTrainedModel) -> Iterator[InstrumentedModel]:
        """The model of these resources, or else `model` from the cache of instrumented models."""
        if self.instrumented is not None:
            yield self.instrumented
            return
        with borrowed_model(model) as instrumented:
            yield instrumented


NO_RESOURCES = Resources()
