"""A private twin of the user's model: the same weights in memory, modules and configuration of its own.

Everything tokenlight does to a model (hooks, attention function, frozen weights, eval mode) it does to a twin.
So the user's model is never touched, not even for a moment, and threads cannot disturb each other.
A twin costs a few milliseconds and no memory; it is made for one call and thrown away, so it is never out of date.
"""

import copy
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight import anatomy
from tokenlight.attention import NAME
from tokenlight.batch import Batch
from tokenlight.errors import UnsupportedModelError
from tokenlight.gates import Gates
from tokenlight.precision import KeepDouble
from tokenlight.primitives import LEDGER
from tokenlight.progress import pass_begins
from tokenlight.rules import activation

INTERFACE = (
    "tokenlight explains families whose blocks call attention through transformers' AttentionInterface: "
    "BERT, RoBERTa, XLM-R, DistilBERT, ELECTRA, GPT-2, OPT, GPT-NeoX, Llama, Mistral, Qwen, Gemma, Phi-3, OLMo2"
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
SIGNALS = ("embeddings", "hidden", "attention", "values", "context", "gated", "second_norm")


@dataclass
class Tape:
    """What the twin writes while it runs; filled by its hooks and by the attention function."""

    keep: frozenset[str] = frozenset()
    differentiable: bool = False
    double: bool = (
        False  # values in double precision from the embeddings on; only rules can follow weights that are not
    )
    embeddings_instead: Tensor | None = None  # goes in place of the embedding layer's output
    gates: Gates | None = None  # which heads relevance flows through
    signals: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in SIGNALS})
    calls: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, tensor: Tensor) -> Tensor:
        """Note a tensor on its way; the caller goes on with what comes back."""
        self.calls[name] += 1
        if name in self.keep:
            if self.differentiable and not tensor.requires_grad:
                tensor = tensor.detach().requires_grad_()
            self.signals[name].append(tensor)
        return tensor


class Twin:
    """Runs the model on a batch and returns its output together with the tape."""

    def __init__(self, model: PreTrainedModel):
        model = unwrap(model)
        refuse_inexact(model)
        with torch.inference_mode(False):  # of the caller: its tensors could not take part in a backward pass
            self.model = private_copy(model)
        self.task = anatomy.task_of_class(type(model).__name__)
        self._blocks = anatomy.blocks(self.model)
        self._accepted = anatomy.accepted_inputs(self.model)
        self.tape = Tape()
        self._install_hooks()

    @property
    def device(self) -> torch.device:
        return next(self.model.get_input_embeddings().parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def run(self, batch: Batch, tape: Tape, rules: AbstractContextManager[Any] | None = None) -> Any:
        """One forward pass, under a rule mode if given; the tape holds what it was asked to keep."""
        pass_begins()
        self.tape = tape
        inputs = {name: tensor for name, tensor in batch.inputs().items() if name in self._accepted}
        try:
            with (
                torch.set_grad_enabled(tape.differentiable),
                KeepDouble() if tape.double or self.dtype == torch.float64 else nullcontext(),
                rules or nullcontext(),
            ):
                output = self._call(inputs)
        finally:
            self.tape = Tape()  # a twin holds itself through its modules: what it has recorded must not wait for that
        self._refuse_unseen_parts(tape)
        return output

    def embed(self, input_ids: Tensor) -> Tensor:
        """[batch, token] -> [batch, token, dim]: what the embedding layer gives for these ids."""
        self.tape = Tape()
        with torch.no_grad():
            return self.model.get_input_embeddings()(input_ids)

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
        if seen != expected:
            raise UnsupportedModelError(
                f"{type(self.model).__name__} does not run as expected: saw {seen}, expected {expected}. " + INTERFACE
            )

    def _install_hooks(self) -> None:
        for module in self.model.modules():
            module.__dict__["tokenlight"] = self  # how the attention function finds the tape
            if type(module).__module__ == "transformers.activations":
                module.forward = partial(activation, formula=module.forward)  # one operation for the rules
        if not self._blocks:
            raise UnsupportedModelError(f"{type(self.model).__name__} has no blocks that can be hooked. " + INTERFACE)
        self.model.get_input_embeddings().register_forward_hook(self._on_embeddings)
        for block in self._blocks:
            block.register_forward_pre_hook(self._on_block, with_kwargs=True)
            block.register_forward_hook(lambda *_: inside_block(False))
            if norm := anatomy.second_norm(self.model, block):
                norm.register_forward_pre_hook(self._on_second_norm)
        self._blocks[-1].register_forward_hook(self._on_last_block)

    def _on_embeddings(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        tape = self.tape
        tensor = output if tape.embeddings_instead is None else tape.embeddings_instead
        if tape.double:
            tensor = tensor.double()
        if tape.differentiable:
            tensor = tensor.detach().requires_grad_()  # the leaf: everything after it has a gradient
        return tape.add("embeddings", tensor)

    def _on_block(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inside_block(True)
        self.tape.add("hidden", args[0] if args else kwargs["hidden_states"])

    def _on_second_norm(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.tape.add("second_norm", args[0])

    def _on_last_block(self, module: nn.Module, args: Any, output: Any) -> None:
        self.tape.add("hidden", output if isinstance(output, Tensor) else output[0])


def inside_block(inside: bool) -> None:
    """Tell the rules, if there are any, that a block begins or ends."""
    ledger = LEDGER.get()
    if ledger is not None:
        ledger.inside_block = inside


def unwrap(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a PEFT or data-parallel wrapper, where that is exactly the same function."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    peft = getattr(model, "peft_config", None)
    if peft is not None and hasattr(model, "get_base_model"):
        if any(config.is_prompt_learning or config.is_adaption_prompt for config in peft.values()):
            raise UnsupportedModelError(
                "a PEFT prompt adds virtual tokens that no text has; use an adapter such as LoRA"
            )
        model = model.get_base_model()  # type: ignore[operator]  # the adapters live inside its layers
    if hasattr(model, "_orig_mod"):
        raise UnsupportedModelError("the model is compiled: pass the original, which is model._orig_mod")
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"expected a transformers model, found {type(model).__name__}")
    return model


def refuse_inexact(model: PreTrainedModel) -> None:
    """Models whose hooks, gradients or numbers would not be the model's own."""
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(f"{name} is an encoder-decoder; tokenlight explains encoders and decoders")
    if model.is_gradient_checkpointing:
        raise UnsupportedModelError("gradient checkpointing is on: call model.gradient_checkpointing_disable() first")
    for module in model.modules():
        if module._compiled_call_impl is not None or hasattr(
            module.__dict__.get("forward"), "_torchdynamo_orig_callable"
        ):
            raise UnsupportedModelError(f"{type(module).__name__} is compiled: load the model without compiling it")
        if type(module).__module__.startswith("torch.ao."):
            raise UnsupportedModelError(f"{type(module).__name__} is quantised: load the model in floating point")
    if getattr(model, "is_quantized", False) or not all(p.is_floating_point() for p in model.parameters()):
        raise UnsupportedModelError(f"{name} is quantised: load it in floating point, for example dtype=torch.bfloat16")
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise UnsupportedModelError(
            f"{name} was made in torch.inference_mode(), so it has no gradients: load it outside"
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise UnsupportedModelError(f"some weights of {name} are not in memory (device 'meta'): load the whole model")


def private_copy(model: PreTrainedModel) -> PreTrainedModel:
    """New modules and a new configuration around frozen views of the same weights, in eval mode."""
    shared: dict[int, Any] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    inside = {id(module) for module in model.modules()}
    for module in model.modules():
        # What is not structure is shared as it is: buffers, tensors kept on a module, owners of the user's hooks.
        owners = [getattr(hook, "__self__", hook) for kind in HOOKS for hook in getattr(module, kind).values()]
        shared |= {id(x): x for x in [*module._buffers.values(), *vars(module).values()] if isinstance(x, Tensor)}
        shared |= {id(owner): owner for owner in owners if id(owner) not in inside}
        # Most of a module is a dozen empty collections; handing out new ones is much faster than copying them.
        shared |= {id(x): type(x)() for x in vars(module).values() if isinstance(x, dict | set) and not x}
    twin = copy.deepcopy(model, shared).eval()
    for module in twin.modules():  # forward hooks are part of what the model computes, backward hooks are not
        module._backward_hooks.clear()
        module._backward_pre_hooks.clear()
    for name, setting in {"output_attentions": False, "output_hidden_states": False, "use_cache": False}.items():
        setattr(twin.config, name, setting)
    settings = twin.config.get_text_config()
    if anatomy.pools_last_token(twin) and settings.pad_token_id is None:
        settings.pad_token_id = anatomy.NO_PADDING  # otherwise transformers takes such texts one at a time only
    twin.set_attn_implementation(NAME)
    if twin.config._attn_implementation != NAME:
        raise UnsupportedModelError(f"{type(model).__name__} does not use the attention interface. " + INTERFACE)
    return twin
