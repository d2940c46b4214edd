"""The instrumented model: a private copy of the user's model that shares its weights and carries our hooks.

Hooks, attention functions, frozen weights and eval mode are set on the copy's own modules and configuration, so
the user's model never changes, not even temporarily, and threads cannot interfere. A copy takes a few milliseconds and
no memory for weights. It is made for one call, or reused while the user's model is unchanged.

Errors that our hooks cause inside modeling code are raised as UnsupportedModelError; errors in tokenlight's own code
are raised unchanged.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import begin_signal, is_out_of_memory, refusing_checkpointing
from tokenlight._compat.transformers_internals import plain_attention_of, set_attention, supports_fused_attention
from tokenlight.common.error_location import is_own_bug
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.common.progress import report_forward_pass
from tokenlight.model import config as model_config
from tokenlight.model import private_copy as model_private_copy
from tokenlight.model.attention import FUSED, FUSED_HIDING, WRITTEN_OUT, CannotFuse, UnknownTerm
from tokenlight.model.attention_detection import AttentionDetector
from tokenlight.model.block_hooks import BlockHooks
from tokenlight.model.capture import BlockCall, Capture, KeyChanges
from tokenlight.model.layer_norms import call_layer_norm_under_rules
from tokenlight.model.layout import DISCOVERED_LAYOUTS, Layout, discover_layout, is_usual, plain_layout
from tokenlight.model.module_ops import has_states, is_written_out, make_recurrences_replaceable
from tokenlight.model.precision import KeepDouble, without_caller_modes
from tokenlight.model.private_copy import configs_of, embedding_layers, private_copy, refuse_inexact, unwrap
from tokenlight.rules.custom_ops import activation
from tokenlight.rules.mode import RuleMode
from tokenlight.text.batch import Batch

MODELING_ERRORS = (RuntimeError, AttributeError, LookupError, TypeError)  # of modeling code that our hooks make fail


@contextmanager
def refusing_instrumentation_errors(model: nn.Module, run_plain: Callable[[], Any] | None = None) -> Iterator[None]:
    """Refuse a model that fails only when it is instrumented.

    `run_plain` runs the model without instrumentation; if that fails as well, the error is the model's own and is
    raised. None: the model has already run.
    """
    try:
        yield
    except MODELING_ERRORS as error:
        if is_out_of_memory(error) or is_own_bug(error):
            raise
        if run_plain is not None and not runs_without_error(run_plain):
            raise
        raise UnsupportedModelError(
            f"{type(model).__name__} runs, but not with the hooks of this method ({type(error).__name__}: {error})"
        ) from error


def runs_without_error(call: Callable[[], Any]) -> bool:
    """Whether a call raises no exception."""
    try:
        call()
    except Exception:  # any error of the model
        return False
    return True


RECOMPUTES_ACTIVATIONS = (
    "the model recomputes activations in the backward pass (torch.utils.checkpoint), where no rule applies: switch "
    "checkpointing off, for example while the model is in eval mode; low_memory=True saves memory, too"
)


class InstrumentedModel:
    """A private copy of a model, with hooks that fill a capture in every pass."""

    model: PreTrainedModel
    capture: Capture  # of the current pass
    layout: Layout  # the expected calls of blocks and attention in a pass
    facts: dict[str, Any]  # results of functions that run once per instrumented model, by name

    def __init__(self, model: PreTrainedModel):
        model = unwrap(model)
        refuse_inexact(model)
        with without_caller_modes():
            self.model = private_copy(model)
        self._original = ref(model)
        self._configs = configs_of(self.model)
        self._own_attention = [plain_attention_of(config) for config in self._configs]
        self._has_custom_ops = has_states(self.model)
        self._fusable = supports_fused_attention(self.model)
        self._accepted = model_config.accepted_inputs(self.model)
        self.capture = Capture()
        self.facts = {}
        self._prepare_modules()
        self._hooks: BlockHooks | None = None
        self._layout_discovered = False
        discovered = DISCOVERED_LAYOUTS.get(model)
        if discovered is not None and discovered.container is not None:
            discovered = None  # hooks added since may bypass the states between blocks that span several modules
        if discovered is None and not is_usual(self.model):
            self._discover_layout()
        else:
            self._set_layout(discovered or plain_layout(self.model))
        self.reset_attention()

    @property
    def original(self) -> PreTrainedModel:
        """The user's model."""
        original = self._original()
        assert original is not None, "the user's model no longer exists"
        return original

    @property
    def device(self) -> torch.device:
        return model_private_copy.device_of(self.model.get_input_embeddings())

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @contextmanager
    def guard(self, batch: Batch) -> Iterator[Batch]:
        """Turn off the caller's inference mode and autocast; yields the batch to use inside.

        Its tensors are copies, because the caller's may be inference tensors.
        """
        with without_caller_modes(self.device):
            yield batch.map(Tensor.clone)

    @property
    def fusable(self) -> bool:
        """Whether attention can be one operation, as far as is known before a pass."""
        return self._fusable and not self.layout.watched

    def run(
        self,
        batch: Batch,
        capture: Capture,
        rules: AbstractContextManager[Any] | None = None,
        *,
        read_at: Tensor | None = None,
    ) -> Any:
        """One forward pass, under a rule mode if given, which fills the capture; returns the model's output.

        With `read_at` [batch], a causal language model computes only the logits of these positions, if its forward
        supports that; they are then [batch, vocabulary]. With [batch, step] they are always [batch, step, vocabulary].
        """
        report_forward_pass()
        return self.run_uncounted(batch, capture, rules, read_at=read_at)

    def predict(self, batch: Batch, capture: Capture | None = None) -> Any:
        """The model's output in inference mode, without the caller's autocast."""
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            return self.run(batch, Capture() if capture is None else capture)

    def run_uncounted(
        self,
        batch: Batch,
        capture: Capture,
        rules: AbstractContextManager[Any] | None = None,
        *,
        read_at: Tensor | None = None,
    ) -> Any:
        """`run` without calling the progress callback."""
        inputs = {name: tensor for name, tensor in batch.inputs().items() if name in self._accepted}
        output_indices = None if read_at is None or read_at.ndim == 1 else read_at
        if read_at is not None and "logits_to_keep" in self._accepted:
            # All versions of transformers accept positions shared by all texts: the union of those that are read.
            inputs["logits_to_keep"], output_indices = read_at.unique(return_inverse=True)
        capture.keys = KeyChanges.of_batch(batch)
        output = self._run_as_expected(inputs, capture, rules)
        if output_indices is not None:
            with torch.set_grad_enabled(capture.spec.differentiable):
                output["logits"] = select_logits(output["logits"], output_indices)
        capture.refuse_overwritten()
        return output

    def fuses(self, capture: Capture) -> bool:
        """Whether attention is one operation in a run with this capture."""
        return capture.may_fuse and self.fusable

    def run_block(
        self, number: int, call: BlockCall, capture: Capture, rules: AbstractContextManager[Any] | None = None
    ) -> Tensor:
        """Run one block on its own, as it was called in an earlier pass; returns its output state."""
        capture.block = number - 1
        with self._capturing(capture, rules):
            call = call.with_state(self.layout.to_batch_first(call.state))
            output = self.model.get_submodule(self.layout.blocks[number])(*call.args, **call.kwargs)
            if isinstance(rules, RuleMode):
                rules.inspect_output(output)
            state = self.layout.to_batch_first(output if isinstance(output, Tensor) else output[0])
        if capture.attentions != [self.layout.attentions[number]]:
            raise UnsupportedModelError(f"block {number} of {type(self.model).__name__} runs differently a second time")
        return state

    @contextmanager
    def _capturing(self, capture: Capture, rules: AbstractContextManager[Any] | None) -> Iterator[None]:
        """Let hooks fill this capture, and set the modes and the attention functions of the pass."""
        self.capture = capture
        watched, fused = self.layout.watched, FUSED_HIDING if capture.keys.hides else FUSED
        if watched:
            self._set_own_attention()
        else:
            self._set_attention(fused if self.fuses(capture) else WRITTEN_OUT)
        try:
            with (
                torch.set_grad_enabled(capture.spec.differentiable),
                KeepDouble() if capture.spec.double or self.dtype == torch.float64 else nullcontext(),
                refusing_checkpointing(RECOMPUTES_ACTIVATIONS) if isinstance(rules, RuleMode) else nullcontext(),
                rules or nullcontext(),
                AttentionDetector(capture) if watched else nullcontext(),  # entered last, it intercepts calls first
            ):
                yield
        finally:
            # The instrumented model is part of a reference cycle: captured tensors must not live until it is collected.
            self.capture = Capture()

    def capture_projections(self, projections: Iterable[nn.Module]) -> None:
        """Hook these modules: captures that keep "projected" store their inputs from now on."""
        if self._hooks is not None:
            self._hooks.capture_projections(projections)

    def reset_attention(self) -> None:
        """Set the attention function of a new instrumented model."""
        self._set_attention(WRITTEN_OUT)

    def _set_attention(self, name: str) -> None:
        for config in self._configs:
            set_attention(config, name)

    def _set_own_attention(self) -> None:
        for config, name in zip(self._configs, self._own_attention, strict=True):
            set_attention(config, name)

    def embed(self, input_ids: Tensor) -> Tensor:
        """[batch, token] -> [batch, token, dim]: the output of the embedding layer."""
        self.capture = Capture()
        with torch.no_grad():
            return self.model.get_input_embeddings()(input_ids)

    def _run_as_expected(
        self, inputs: dict[str, Tensor], capture: Capture, rules: AbstractContextManager[Any] | None
    ) -> Any:
        """A forward pass whose calls are compared with the layout: a call that bypasses the hooks is missing."""
        self.layout.refuse_missing(self.model, capture.reads, beside_attention=self._has_custom_ops)
        if isinstance(rules, RuleMode) and not self.layout.by_text:
            raise UnsupportedModelError(
                f"the blocks of {type(self.model).__name__} do not read states [batch, token, dim]: relevance cannot "
                "be separated by text; methods that use plain gradients work"
            )
        capture.shape = (inputs["input_ids"].shape[0], inputs["input_ids"].shape[1])
        try:
            output = self._forward(inputs, capture, rules)
        except UnknownTerm:
            if self._layout_discovered:
                raise
        else:
            calls, expected = capture.observed(), self.layout.expected()
            if calls == expected:
                return output
            if self._layout_discovered:
                raise UnsupportedModelError(
                    f"{type(self.model).__name__} does not run as expected: found calls {calls}, expected {expected}"
                )
        self._discover_layout()  # the usual layout does not fit
        capture.clear()
        return self._run_as_expected(inputs, capture, rules)

    def _discover_layout(self) -> None:
        layout = DISCOVERED_LAYOUTS.set(self.original, discover_layout(self.original))
        self._layout_discovered = True
        self._set_layout(layout)

    def _set_layout(self, layout: Layout) -> None:
        if self._hooks is not None:
            self._hooks.remove()
        self.layout = DISCOVERED_LAYOUTS.set(self.model, layout)
        self._hooks = BlockHooks(self, self.model, layout)

    def _forward(self, inputs: dict[str, Tensor], capture: Capture, rules: AbstractContextManager[Any] | None) -> Any:
        try:
            with (
                refusing_instrumentation_errors(self.model, lambda: self._run_plain(inputs)),
                self._capturing(capture, rules),
            ):
                output = self._call(inputs)
                if isinstance(rules, RuleMode):
                    rules.inspect_output(output)
                return output
        except CannotFuse:  # raised by the first attention call of the pass
            self._fusable = False
        capture.clear()
        return self._forward(inputs, capture, rules)

    def _run_plain(self, inputs: dict[str, Tensor]) -> None:
        with torch.no_grad():
            self.model(**inputs, return_dict=True)

    def _call(self, inputs: dict[str, Tensor]) -> Any:
        try:
            return self.model(**inputs, return_dict=True)
        except RuntimeError as error:
            if "not implemented for" in str(error) and self.dtype in (torch.float16, torch.bfloat16):
                raise UnsupportedModelError(
                    f"this model in {self.dtype} cannot run on {self.device} ({error}): convert it with model.float()"
                ) from error
            raise

    def _prepare_modules(self) -> None:
        for module in self.model.modules():
            module.__dict__["tokenlight"] = self  # how the attention function finds the capture
            make_recurrences_replaceable(module)
            if is_written_out(module):
                module.forward = partial(activation, formula=module.forward)  # one operation for the rules
            else:
                call_layer_norm_under_rules(module)
        for layer in embedding_layers(self.model):
            if not isinstance(layer, nn.Module):
                raise UnsupportedModelError(f"{type(self.model).__name__} has no layer that embeds token ids")
            layer.register_forward_hook(self._on_embeddings)

    def _on_embeddings(self, module: nn.Module, args: Any, output: Any) -> Tensor:
        capture = self.capture
        if not isinstance(output, Tensor) or output.ndim != 3:
            raise UnsupportedModelError(
                f"the embedding layer {type(module).__name__} does not return one vector per token"
            )
        tensor = self.layout.to_batch_first(output) if capture.spec.embeddings is None else capture.spec.embeddings
        if capture.spec.double:
            tensor = tensor.double()
        if capture.spec.differentiable and not capture.spec.head_only and not capture.spec.last_block:
            tensor = begin_signal(tensor.detach())  # the leaf of the graph
        capture.embedded += 1
        tensor = capture.add("embeddings", tensor)
        keep_unmodified = capture.spec.embeddings is not None or tensor.requires_grad
        tensor = self.layout.to_batch_first(tensor)
        # Some models write into the embeddings in place.
        return tensor.clone(memory_format=torch.contiguous_format) if keep_unmodified else tensor


def select_logits(logits: Tensor, positions: Tensor) -> Tensor:
    """Logits [batch, index] of positions [batch], or [batch, step, index] of positions [batch, step]."""
    texts = torch.arange(len(positions), device=logits.device)
    return logits[texts if positions.ndim == 1 else texts[:, None], positions.to(logits.device)]
