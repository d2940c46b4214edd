"""The instrumented model: a private copy of the user's model that shares its weights and carries our hooks.

Hooks, attention functions, frozen weights and eval mode are set on modules and a configuration of the copy's own, so
the user's model never changes, not even temporarily, and threads cannot interfere. A copy takes a few milliseconds and
no memory for weights. It is made for one call, or reused after every module of the user's model was found unchanged.

Errors that our hooks cause inside modeling code become refusals; errors in our own lines stay as they are.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import begin_signal, is_out_of_memory, keeping_what_was_computed
from tokenlight._compat.transformers_internals import knows_fused_attention, set_attention, written_attention_of
from tokenlight.common.error_location import is_own_bug
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.common.progress import report_forward_pass
from tokenlight.model import config as model_config
from tokenlight.model import private_copy as model_private_copy
from tokenlight.model.attention import FUSED, FUSED_HIDING, WRITTEN_OUT, CannotFuse, UnknownTerm
from tokenlight.model.attention_detection import AttentionDetector
from tokenlight.model.block_hooks import BlockHooks
from tokenlight.model.capture import BlockCall, Capture
from tokenlight.model.layout import DISCOVERED_LAYOUTS, Layout, discover_layout, is_usual, plain_layout
from tokenlight.model.module_ops import has_states, is_written_out, make_recurrences_replaceable
from tokenlight.model.precision import KeepDouble
from tokenlight.model.private_copy import configs_of, embedding_layers, private_copy, refuse_inexact, unwrap
from tokenlight.rules.custom_ops import activation
from tokenlight.rules.mode import RuleMode
from tokenlight.text.batch import Batch

KINDS = (RuntimeError, AttributeError, LookupError, TypeError)


@contextmanager
def refusing_what_we_break(model: nn.Module, plainly: Callable[[], Any] | None = None) -> Iterator[None]:
    """Refuse a model that stops here, but not where it is called `plainly`. None: it has already run that far."""
    try:
        yield
    except KINDS as error:
        if is_out_of_memory(error) or is_own_bug(error) or (plainly is not None and not runs(plainly)):
            raise
        raise UnsupportedModelError(
            f"{type(model).__name__} runs, but not as this method runs it ({type(error).__name__}: {error})"
        ) from error


def runs(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:  # whatever it is, it is the model's own
        return False
    return True


COMPUTED_AGAIN = (
    "the model computes a part again in the backward pass (torch.utils.checkpoint), where no rule sees it: switch "
    "checkpointing off, for example while the model is in eval mode; low_memory=True saves memory, too"
)


class InstrumentedModel:
    """Runs the model on a batch and returns its output together with the capture."""

    model: PreTrainedModel
    capture: Capture
    layout: Layout  # what is expected of every run

    def __init__(self, model: PreTrainedModel):
        model = unwrap(model)
        refuse_inexact(model)
        with torch.inference_mode(False):  # of the caller: its tensors could not take part in a backward pass
            self.model = private_copy(model)
        self._original = ref(model)
        self._configs = configs_of(self.model)
        self._own_attention = [written_attention_of(config) for config in self._configs]
        self._scans = has_states(self.model)
        self._fusable = knows_fused_attention(self.model)
        self._accepted = model_config.accepted_inputs(self.model)
        self.capture = Capture()
        self._prepare_modules()
        self._hooks: BlockHooks | None = None
        self._layout_discovered = False
        known = DISCOVERED_LAYOUTS.get(model)
        if known is not None and known.container is not None:
            known = None  # a hook since then may lead past the states between blocks that are no modules
        if known is None and not is_usual(self.model):
            self._discover_layout()
        else:
            self._follow(known or plain_layout(self.model))
        self.rest()

    @property
    def original(self) -> PreTrainedModel:
        """The model that it is an instrumented model of."""
        original = self._original()
        assert original is not None, "the model is gone"
        return original

    @property
    def device(self) -> torch.device:
        return model_private_copy.device_of(self.model.get_input_embeddings())

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def fusable(self) -> bool:
        """Whether attention can be one operation, as far as is known before it runs."""
        return self._fusable and not self.layout.watched

    def run(
        self,
        batch: Batch,
        capture: Capture,
        rules: AbstractContextManager[Any] | None = None,
        *,
        read_at: Tensor | None = None,
    ) -> Any:
        """One forward pass, under a rule mode if given; the capture holds what it was asked to keep.

        With `read_at` [batch], a causal language model computes the logits of these positions alone, if its forward
        allows that; they are then [batch, vocabulary]. With [batch, step] they are always [batch, step, vocabulary].
        """
        report_forward_pass()
        return self.run_uncounted(batch, capture, rules, read_at=read_at)

    def run_uncounted(
        self,
        batch: Batch,
        capture: Capture,
        rules: AbstractContextManager[Any] | None = None,
        *,
        read_at: Tensor | None = None,
    ) -> Any:
        """The same, for passes that are no part of anybody's work."""
        inputs = {name: tensor for name, tensor in batch.inputs().items() if name in self._accepted}
        place = None if read_at is None or read_at.ndim == 1 else read_at
        if read_at is not None and "logits_to_keep" in self._accepted:
            # Every version of transformers takes positions that all texts share: those that any of them is read at.
            inputs["logits_to_keep"], place = read_at.unique(return_inverse=True)
        capture.hides, capture.hidden = batch.hides, batch.hidden_in_attention
        capture.key_factors, capture.shift_scores = batch.key_factors, batch.shift_scores
        capture.fused = capture.fused and batch.key_factors is None  # the fused operation gives nobody its scores
        output = self._run_as_expected(inputs, capture, rules)
        if place is not None:
            with torch.set_grad_enabled(capture.differentiable):
                output["logits"] = pick(output["logits"], place)
        capture.refuse_overwritten()
        return output

    def fuses(self, capture: Capture) -> bool:
        """Whether attention is one operation in a run with this capture."""
        return capture.may_fuse and self.fusable

    def run_block(
        self, number: int, call: BlockCall, capture: Capture, rules: AbstractContextManager[Any] | None = None
    ) -> Tensor:
        """One block on its own, as it was called before."""
        capture.block = number - 1
        with self._writing(capture, rules):
            call = call.with_state(self.layout.to_batch_first(call.state))
            output = self.model.get_submodule(self.layout.blocks[number])(*call.args, **call.kwargs)
            if isinstance(rules, RuleMode):
                rules.look_at_output(output)
            state = self.layout.to_batch_first(output if isinstance(output, Tensor) else output[0])
        if capture.attentions != [self.layout.attentions[number]]:
            raise UnsupportedModelError(f"block {number} of {type(self.model).__name__} runs differently a second time")
        return state

    @contextmanager
    def _writing(self, capture: Capture, rules: AbstractContextManager[Any] | None) -> Iterator[None]:
        """Inside, hooks write to this capture."""
        self.capture = capture
        watched, fused = self.layout.watched, FUSED_HIDING if capture.hides else FUSED
        if watched:
            self._attend_as_loaded()
        else:
            self._attend_by(fused if self.fuses(capture) else WRITTEN_OUT)
        try:
            with (
                torch.set_grad_enabled(capture.differentiable),
                KeepDouble() if capture.double or self.dtype == torch.float64 else nullcontext(),
                keeping_what_was_computed(COMPUTED_AGAIN) if isinstance(rules, RuleMode) else nullcontext(),
                rules or nullcontext(),
                AttentionDetector(capture)
                if watched
                else nullcontext(),  # the last one in sees what is called before the others
            ):
                yield
        finally:
            self.capture = (
                Capture()
            )  # an instrumented model holds itself through its modules: what it has recorded must not wait for that

    def note_projections(self, projections: Iterable[nn.Module]) -> None:
        """From now on, captures that keep "projected" hold what these modules read."""
        if self._hooks is not None:
            self._hooks.note_projections(projections)

    def rest(self) -> None:
        """As after it was made."""
        self._attend_by(WRITTEN_OUT)

    def _attend_by(self, name: str) -> None:
        for config in self._configs:
            set_attention(config, name)

    def _attend_as_loaded(self) -> None:
        for config, name in zip(self._configs, self._own_attention, strict=True):
            set_attention(config, name)

    def embed(self, input_ids: Tensor) -> Tensor:
        """[batch, token] -> [batch, token, dim]: what the embedding layer gives for these ids."""
        self.capture = Capture()
        with torch.no_grad():
            return self.model.get_input_embeddings()(input_ids)

    def _run_as_expected(
        self, inputs: dict[str, Tensor], capture: Capture, rules: AbstractContextManager[Any] | None
    ) -> Any:
        """A block, an attention call or an embedding that went past the capture would be missing from the result."""
        self.layout.refuse_missing(self.model, capture.reads, beside_attention=self._scans)
        if rules is not None and not self.layout.by_text:
            raise UnsupportedModelError(
                f"the blocks of {type(self.model).__name__} do not read states [batch, token, dim]: relevance cannot "
                "be kept apart by text; methods that use plain gradients work"
            )
        capture.shape = (inputs["input_ids"].shape[0], inputs["input_ids"].shape[1])
        try:
            output = self._forward(inputs, capture, rules)
        except UnknownTerm:
            if self._layout_discovered:
                raise
        else:
            found, expected = capture.found(), self.layout.expected()
            if found == expected:
                return output
            if self._layout_discovered:
                raise UnsupportedModelError(
                    f"{type(self.model).__name__} does not run as expected: saw {found}, expected {expected}"
                )
        self._discover_layout()  # it is none of the usual ones
        capture.clear()
        return self._run_as_expected(inputs, capture, rules)

    def _discover_layout(self) -> None:
        DISCOVERED_LAYOUTS[self.original] = discover_layout(self.original)
        self._layout_discovered = True
        self._follow(DISCOVERED_LAYOUTS[self.original])

    def _follow(self, layout: Layout) -> None:
        if self._hooks is not None:
            self._hooks.remove()
        self.layout = DISCOVERED_LAYOUTS[self.model] = layout
        self._hooks = BlockHooks(self, self.model, layout)

    def _forward(self, inputs: dict[str, Tensor], capture: Capture, rules: AbstractContextManager[Any] | None) -> Any:
        try:
            with refusing_what_we_break(self.model, lambda: self._run_plainly(inputs)), self._writing(capture, rules):
                output = self._call(inputs)
                if isinstance(rules, RuleMode):
                    rules.look_at_output(output)
                return output
        except CannotFuse:  # the first attention of the model said so
            self._fusable = False
        capture.clear()
        return self._forward(inputs, capture, rules)

    def _run_plainly(self, inputs: dict[str, Tensor]) -> None:
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
        for layer in embedding_layers(self.model):
            if not isinstance(layer, nn.Module):
                raise UnsupportedModelError(f"{type(self.model).__name__} has no layer that embeds token ids")
            layer.register_forward_hook(self._on_embeddings)

    def _on_embeddings(self, module: nn.Module, args: Any, output: Any) -> Tensor:
        capture = self.capture
        if not isinstance(output, Tensor) or output.ndim != 3:
            raise UnsupportedModelError(f"the embedding layer {type(module).__name__} does not give one vector a token")
        tensor = (
            self.layout.to_batch_first(output) if capture.embeddings_instead is None else capture.embeddings_instead
        )
        if capture.double:
            tensor = tensor.double()
        if capture.differentiable and not capture.head_only and not capture.last_block:
            tensor = begin_signal(tensor.detach())  # the leaf: everything after it has a gradient
        capture.embedded += 1
        tensor = capture.add("embeddings", tensor)
        ours = capture.embeddings_instead is not None or tensor.requires_grad
        tensor = self.layout.to_batch_first(tensor)
        return tensor.clone(memory_format=torch.contiguous_format) if ours else tensor  # some models write into it


def pick(logits: Tensor, places: Tensor) -> Tensor:
    """[batch, token, index] at places [batch], or [batch, step]."""
    texts = torch.arange(len(places), device=logits.device)
    return logits[texts if places.ndim == 1 else texts[:, None], places.to(logits.device)]
