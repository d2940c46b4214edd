"""How a call runs: the caller's options, and what callers inside the package lend to a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from transformers import PreTrainedModel

from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_cache import PassMemory
from tokenlight.record.recorder import RecordOptions
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class RunOptions:
    """How methods run over texts. The scores are the same with all settings, up to rounding."""

    batch_size: int = 32  # texts per batch
    low_memory: bool = False  # blocks are computed again in the backward pass: less memory, more time
    fused: bool | None = None  # attention as one operation; None: unless a method or rule needs its weights
    progress: bool = True  # show a progress bar for calls that take long

    @property
    def record_options(self) -> RecordOptions:
        return RecordOptions(by_block=self.low_memory, last_logits=True, fused=self.fused)


DEFAULT_RUN_OPTIONS = RunOptions()


@dataclass(frozen=True)
class Resources:
    """What a run uses instead of making its own."""

    instrumented: InstrumentedModel | None = None  # the explainer's model, already instrumented
    pass_cache: PassMemory | None = None  # passes of earlier calls for the same text
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
