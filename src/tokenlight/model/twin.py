"""A private twin of the user's model: the same weights in memory, modules and configuration of its own.

Everything tokenlight does to a model (hooks, attention function, frozen weights, eval mode) it does to a twin.
So the user's model is never touched, not even for a moment, and threads cannot disturb each other.
A twin costs a few milliseconds and no memory; it is never out of date, because it is made for one call, or used again
after a look at the whole model (`kept_twins.py`).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.foundation.progress import pass_begins
from tokenlight.foundation.transformers_internals import knows_fused_attention, set_attention
from tokenlight.model import anatomy, inputs, placement
from tokenlight.model.activations import is_written_out
from tokenlight.model.attention import FUSED, WRITTEN_OUT, CannotFuse
from tokenlight.model.copying import INTERFACE, private_copy, refuse_inexact, unwrap
from tokenlight.model.precision import KeepDouble
from tokenlight.model.scans import has_scans, make_scans_replaceable
from tokenlight.model.tape import FROM_ATTENTION, BlockCall, Tape, tensors_in, without_graph
from tokenlight.rules.marks import refuse_pending
from tokenlight.rules.points import activation
from tokenlight.rules.primitives import LEDGER
from tokenlight.text.batches import Batch


class Twin:
    """Runs the model on a batch and returns its output together with the tape."""

    model: PreTrainedModel
    tape: Tape

    def __init__(self, model: PreTrainedModel):
        model = unwrap(model)
        refuse_inexact(model)
        with torch.inference_mode(False):  # of the caller: its tensors could not take part in a backward pass
            self.model = private_copy(model)
        self._blocks = anatomy.blocks(self.model)
        found: list[Any] = [module.config for module in self.model.modules() if hasattr(module, "config")]
        self._configs = list({id(config): config for config in found}.values())
        self._scans = has_scans(self.model)
        self._fusable = knows_fused_attention(self.model)
        self._accepted = inputs.accepted_inputs(self.model)
        self.tape = Tape()
        self._install_hooks()

    @property
    def device(self) -> torch.device:
        return placement.device_of(self.model.get_input_embeddings())

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def run(
        self,
        batch: Batch,
        tape: Tape,
        rules: AbstractContextManager[Any] | None = None,
        *,
        read_at: Tensor | None = None,
    ) -> Any:
        """One forward pass, under a rule mode if given; the tape holds what it was asked to keep.

        With `read_at` [batch], a causal language model computes the logits of these positions alone, if its forward
        allows that; they are then [batch, vocabulary].
        """
        pass_begins()
        inputs = {name: tensor for name, tensor in batch.inputs().items() if name in self._accepted}
        place = None
        if read_at is not None and "logits_to_keep" in self._accepted:
            # Every version of transformers takes positions that all texts share: those that any of them is read at.
            inputs["logits_to_keep"], place = read_at.unique(return_inverse=True)
        output = self._forward(inputs, tape, rules)
        if place is not None:
            with torch.set_grad_enabled(tape.differentiable):
                output["logits"] = output["logits"][torch.arange(len(place)), place.to(output["logits"].device)]
        self._refuse_unseen_parts(tape)
        return output

    def fuses(self, tape: Tape) -> bool:
        """Whether attention is one operation in a run with this tape."""
        return tape.may_fuse and self._fusable

    def run_block(
        self, number: int, call: BlockCall, tape: Tape, rules: AbstractContextManager[Any] | None = None
    ) -> Tensor:
        """One block on its own, as it was called before."""
        tape.calls["context"] = number  # head gates are counted by it
        with self._writing(tape, rules):
            return self._blocks[number](*call.args, **call.kwargs)

    @contextmanager
    def _writing(self, tape: Tape, rules: AbstractContextManager[Any] | None) -> Iterator[None]:
        """Inside, hooks write to this tape."""
        self.tape = tape
        self._attend_by(FUSED if self.fuses(tape) else WRITTEN_OUT)
        try:
            with (
                torch.set_grad_enabled(tape.differentiable),
                KeepDouble() if tape.double or self.dtype == torch.float64 else nullcontext(),
                rules or nullcontext(),
            ):
                yield
        finally:
            self.tape = Tape()  # a twin holds itself through its modules: what it has recorded must not wait for that

    def rest(self) -> None:
        """As after it was made."""
        self._attend_by(WRITTEN_OUT)

    def _attend_by(self, name: str) -> None:
        for config in self._configs:
            set_attention(config, name)

    def embed(self, input_ids: Tensor) -> Tensor:
        """[batch, token] -> [batch, token, dim]: what the embedding layer gives for these ids."""
        self.tape = Tape()
        with torch.no_grad():
            return self.model.get_input_embeddings()(input_ids)

    def _forward(self, inputs: dict[str, Tensor], tape: Tape, rules: AbstractContextManager[Any] | None) -> Any:
        try:
            with self._writing(tape, rules):
                return self._call(inputs)
        except CannotFuse:  # the first attention of the model said so
            self._fusable = False
        tape.clear()
        return self._forward(inputs, tape, rules)

    def _call(self, inputs: dict[str, Tensor]) -> Any:
        try:
            return self.model(**inputs, return_dict=True)
        except RuntimeError as error:
            if "not implemented for" in str(error) and self.dtype in (torch.float16, torch.bfloat16):
                raise UnsupportedModelError(
                    f"this model in {self.dtype} cannot run on {self.device} ({error}): convert it with model.float()"
                ) from error
            raise

    def _refuse_unseen_parts(self, tape: Tape) -> None:
        """A block, an attention call or an embedding that went past the tape would be missing from the result."""
        blocks = len(self._blocks)
        expected = {"embeddings": 1, "hidden": blocks + 1, "attention": blocks}
        seen = {name: tape.calls[name] for name in expected}
        fewer = {**expected, "attention": min(seen["attention"], blocks)}
        if (tape.gates is not None or tape.keep & FROM_ATTENTION) and (seen == fewer != expected or self._scans):
            refuse_missing_attention(seen["attention"], blocks)
        if seen != fewer:
            raise UnsupportedModelError(
                f"{type(self.model).__name__} does not run as expected: saw {seen}, expected {expected}. " + INTERFACE
            )

    def _install_hooks(self) -> None:
        for module in self.model.modules():
            module.__dict__["tokenlight"] = self  # how the attention function finds the tape
            make_scans_replaceable(module)
            if is_written_out(module):
                module.forward = partial(activation, formula=module.forward)  # one operation for the rules
        if not self._blocks:
            raise UnsupportedModelError(f"{type(self.model).__name__} has no blocks that can be hooked. " + INTERFACE)
        self.model.get_input_embeddings().register_forward_hook(self._on_embeddings)
        for block in self._blocks:
            # Before hooks of the user's, which are part of the block: they run again with it.
            block.register_forward_pre_hook(self._cut_before_block, with_kwargs=True, prepend=True)
            block.register_forward_pre_hook(self._on_block, with_kwargs=True)
            block.register_forward_hook(leave_block)
            if norm := anatomy.second_norm(self.model, block):
                norm.register_forward_pre_hook(self._on_second_norm)
        self._blocks[-1].register_forward_pre_hook(self._before_last_block, with_kwargs=True, prepend=True)
        self._blocks[-1].register_forward_hook(self._on_last_block)
        for block in self._blocks:
            block.register_forward_hook(self._cut_after_block)

    def _on_embeddings(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        tape = self.tape
        tensor = output if tape.embeddings_instead is None else tape.embeddings_instead
        if tape.double:
            tensor = tensor.double()
        if tape.differentiable and not tape.head_only and not tape.last_block:
            tensor = tensor.detach().requires_grad_()  # the leaf: everything after it has a gradient
        return tape.add("embeddings", tensor)

    def _cut_before_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.tape.cut:
            return None
        call = BlockCall(args, kwargs)
        if any(part is not call.state and part.requires_grad for part in tensors_in([*args, *kwargs.values()])):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} reads more of the input than the state before it; leave it off"
            )
        self.tape.block_calls.append(call)
        bare = call.with_state(without_graph(call.state))  # nothing in the block requires grad: it leaves no graph
        return bare.args, bare.kwargs

    def _cut_after_block(self, module: nn.Module, args: Any, output: Any) -> Tensor | None:
        if not self.tape.cut:
            return None
        if not isinstance(output, Tensor):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} hands on more than one tensor; leave it off"
            )
        self.tape.last_output = without_graph(output).requires_grad_()
        self.tape.block_outputs.append(self.tape.last_output)
        return self.tape.last_output

    def _on_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inside_block(True)
        self.tape.add("hidden", args[0] if args else kwargs["hidden_states"])

    def _on_second_norm(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.tape.add("second_norm", args[0])

    def _before_last_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.tape.in_last_block = True
        if not (self.tape.last_block and self.tape.differentiable):
            return None
        call = BlockCall(args, kwargs)
        bare = call.with_state(without_graph(call.state).requires_grad_())
        return bare.args, bare.kwargs

    def _on_last_block(self, module: nn.Module, args: Any, output: Any) -> Any:
        self.tape.last_output = output if isinstance(output, Tensor) else output[0]
        self.tape.add("hidden", self.tape.last_output)
        if not self.tape.head_only or self.tape.cut:
            return None
        leaf = self.tape.last_output = self.tape.last_output.detach().requires_grad_()
        return leaf if isinstance(output, Tensor) else (leaf, *output[1:])


def refuse_missing_attention(seen: int, blocks: int) -> None:
    """Maps of some blocks only would tell a part of the story as if it were all of it."""
    raise UnsupportedModelError(
        f"{seen} of the model's {blocks} blocks have attention; where there is none, or not it alone, tokens reach "
        "each other by a recurrence or a convolution, which no attention map shows. Choose a method that reads no "
        "attention, such as gradient_x_input or attn_lrp"
    )


def inside_block(inside: bool) -> None:
    """Tell the rules, if there are any, that a block begins or ends."""
    ledger = LEDGER.get()
    if ledger is not None:
        ledger.inside_block = inside


def leave_block(module: nn.Module, args: Any, output: Any) -> None:
    inside_block(False)
    refuse_pending((output,), type(module).__name__)
