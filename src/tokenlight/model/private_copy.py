"""A private copy of a model that shares its weights, also if these are spread over devices or packed."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel

from tokenlight._compat.accelerate_internals import (
    brings_weights,
    hooks_of,
    reaches_below,
    runs_on,
    tied_weights,
    waiting_weights,
)
from tokenlight._compat.torch_internals import (
    compiled_forward,
    drop_backward_hooks,
    hooks_on,
    inside_compiled,
    weights_in,
)
from tokenlight._compat.transformers_internals import set_experts
from tokenlight.common.errors import RefusedType, UnsupportedModelError
from tokenlight.model import config as model_config
from tokenlight.model.config import padding_id


def brought_weights(model: nn.Module) -> Iterator[tuple[nn.Module, Tensor]]:
    """The weights that are brought to memory when their module runs, and the module whose hook does so."""
    for module in model.modules():
        for hook in hooks_of(module):
            if brings_weights(hook):
                for weight in module.parameters(recurse=reaches_below(hook)):
                    yield module, weight


def shared_with_copy(module: nn.Module, known: Mapping[int, Any]) -> dict[int, Any]:
    """What a copy of the module takes over as it is (where weights wait), or as its own around the same tensors."""
    found: dict[int, Any] = {}
    for hook in hooks_of(module):
        waiting, tied = waiting_weights(hook), tied_weights(hook)
        if waiting is not None:
            found[id(waiting)] = waiting
        if tied is not None and id(tied) not in known:
            found[id(tied)] = {place: dict(copies) for place, copies in tied.items()}
    return found


def device_of(module: nn.Module) -> torch.device:
    """Where a module runs: where its weights are, or are brought to."""
    weight = next(module.parameters())
    if not weight.is_meta:
        return weight.device
    return next(torch.device(device) for hook in hooks_of(module) if (device := runs_on(hook)) is not None)


WAY_OUT = "load the model in floating point, or give what model.dequantize() makes of it"


class Dequantized(nn.Module):
    """The same function as a layer whose weights are packed and whose values are not rounded.

    It reads the user's layer and changes nothing in it. Weights are unpacked whenever they are asked for, so that those
    of one layer exist at a time, except where a graph keeps them.
    """

    unpack: Callable[[], Tensor]
    computed_in: torch.dtype | None

    def __init__(self, layer: nn.Module, unpack: Callable[[], Tensor], computed_in: torch.dtype | None):
        super().__init__()
        self.__dict__["layer"] = layer  # not a module of the instrumented model
        self.unpack, self.computed_in = unpack, computed_in

    @property
    def weight(self) -> Tensor:
        """[out, in]"""
        return self.unpack().detach()

    @property
    def bias(self) -> Tensor | None:
        found = self.__dict__["layer"].bias
        return None if found is None else found.detach()

    def forward(self, x: Tensor) -> Tensor:
        inside = x if self.computed_in is None else x.to(self.computed_in)
        weight, bias = (fitting(part, inside.dtype) for part in (self.weight, self.bias))
        return F.linear(inside, weight, bias).to(x.dtype)  # type: ignore[arg-type]


def fitting(part: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """In the precision of the values, as the layer has it; beside doubles, as the rules want it: in its own."""
    return part if part is None or dtype == torch.float64 else part.to(dtype)


def is_packed(tensor: Any) -> bool:
    """A tensor of a class of its own that can be unpacked, as torchao makes them."""
    return isinstance(tensor, Tensor) and type(tensor).dequantize is not Tensor.dequantize


def unpacked(tensor: Tensor) -> Tensor:
    """The numbers that a tensor stands for."""
    return tensor.dequantize() if is_packed(tensor) else tensor


def is_quantized(module: nn.Module) -> bool:
    """Whether its own weights are packed."""
    kind = type(module).__module__
    own = weights_in(module).values()
    return kind.startswith("bitsandbytes.") or any(is_packed(w) or w.dtype in PACKED for w in own if w is not None)


PACKED = (torch.uint8, torch.int8)


def unpacked_weights(model: nn.Module) -> int:
    """How many numbers the packed weights stand for: of a model, or of its instrumented model."""
    layers: list[Any] = [m.__dict__["layer"] for m in model.modules() if isinstance(m, Dequantized)]
    layers += [module for module in model.modules() if is_quantized(module)]
    return sum(layer.in_features * layer.out_features for layer in layers)


def dequantized(module: nn.Module) -> Dequantized:
    """A plain layer for a quantized one, or the reason why there is none."""
    name = type(module).__name__
    if hooks_on(module) or "forward" in vars(module):
        raise UnsupportedModelError(f"there are hooks on {name}, which is quantized: remove them, or {WAY_OUT}")
    weight: Any = weights_in(module).get("weight")
    if type(module) is nn.Linear and is_packed(weight):
        if getattr(weight, "act_quant_kwargs", None) is not None:
            raise UnsupportedModelError(
                f"{name} is quantized and rounds its input, too, which has no gradient: {WAY_OUT}"
            )
        return Dequantized(module, weight.dequantize, None)
    if name == "Linear4bit" and getattr(weight, "quant_state", None) is not None:
        return four_bits(module, weight)
    raise UnsupportedModelError(f"{name} is quantized in a way that is more than packed weights: {WAY_OUT}")


def four_bits(module: Any, weight: Any) -> Dequantized:
    """A layer of bitsandbytes."""
    from bitsandbytes.functional import dequantize_4bit  # type: ignore[import-not-found]

    if getattr(weight.quant_state, "packing_format_for_cpu", False):
        raise UnsupportedModelError(
            "a pass of the model has packed its 4-bit weights for this processor, from where they cannot be read: load "
            "it again and explain before you run it, or give what model.dequantize() makes of it"
        )
    computed_in = module.compute_dtype if module.compute_type_is_set else None
    return Dequantized(module, lambda: dequantize_4bit(weight.data, weight.quant_state), computed_in)


COMPILED = torch.jit.ScriptFunction  # cannot be copied, and holds nothing that a copy would change


def unwrap(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a PEFT, data-parallel or compiling wrapper, where that is the same function."""
    model = inside_wrappers(model)
    peft = getattr(model, "peft_config", None)
    if peft is not None and hasattr(model, "get_base_model"):
        if any(config.is_prompt_learning or config.is_adaption_prompt for config in peft.values()):
            raise UnsupportedModelError(
                "a PEFT prompt adds virtual tokens that no text has; use an adapter such as LoRA"
            )
        model = inside_wrappers(model.get_base_model())  # type: ignore[operator]  # its layers hold the adapters
    if not isinstance(model, PreTrainedModel):
        raise RefusedType(f"expected a transformers model, found {type(model).__name__}")
    return model


def inside_wrappers(model: nn.Module) -> nn.Module:
    """Wrappers may lie around one another."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif (inside := inside_compiled(model)) is not None:
            refuse_hooks_around(model)
            model = inside
        else:
            return model


def refuse_hooks_around(compiled: nn.Module) -> None:
    """What torch.compile gives is left out, and its own hooks with it."""
    if hooks_on(compiled):
        raise UnsupportedModelError(
            "there are hooks on what torch.compile returned: register them on the module inside"
        )


def refuse_inexact(model: PreTrainedModel) -> None:
    """Models whose hooks, gradients or numbers would not be the model's own."""
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(f"{name} is an encoder-decoder; tokenlight explains encoders and decoders")
    if model.device.type == "mps":
        raise UnsupportedModelError(
            f"{name} is on an Apple GPU (mps), which has no double precision, and tokenlight needs it: model.to('cpu')"
        )
    for module in model.modules():
        if inside_compiled(module) is not None:
            refuse_hooks_around(module)
            continue  # its own forward leads to the module inside, which comes next
        forward = compiled_forward(module)
        if forward is not None and getattr(forward, "__func__", None) is not type(module).forward:
            raise UnsupportedModelError(
                f"the forward of {type(module).__name__} was replaced by a compiled function: tokenlight runs a "
                "model's own code; delete module.forward, or compile the module itself"
            )
        if getattr(module, "max_norm", None) is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            raise UnsupportedModelError(
                f"an embedding of {name} has max_norm={module.max_norm}: it rewrites its own weights whenever it runs, "
                "and yours must stay as they are. Apply the norm once, and set max_norm to None"
            )
        if type(module).__module__.startswith("torch.ao."):
            raise UnsupportedModelError(f"{type(module).__name__} is quantized: load the model in floating point")
    packed = {id(p) for module in model.modules() if is_quantized(module) for p in module.parameters(recurse=False)}
    plain = [p for p in model.parameters() if id(p) not in packed]
    if (getattr(model, "is_quantized", False) and not packed) or not all(p.is_floating_point() for p in plain):
        raise UnsupportedModelError(f"{name} is quantized: load it in floating point, for example dtype=torch.bfloat16")
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise UnsupportedModelError(
            f"{name} was made in torch.inference_mode(), so it has no gradients: load it outside"
        )
    brought = {id(weight) for _, weight in brought_weights(model)}
    if any(parameter.is_meta and id(parameter) not in brought for parameter in model.parameters()):
        raise UnsupportedModelError(f"some weights of {name} are not in memory (device 'meta'): load the whole model")


def private_copy(model: PreTrainedModel, *, own_experts: bool = False) -> PreTrainedModel:
    """New modules and a new configuration around frozen views of the same weights, in eval mode, nothing compiled.

    Experts run in operations of torch, one by one, or with `own_experts` as the model runs them.
    """
    quantized = [module for module in model.modules() if is_quantized(module)]
    packed = {id(p) for module in quantized for p in module.parameters(recurse=False)}
    shared: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters() if id(p) not in packed
    }
    inside = {id(module) for module in model.modules()}
    for module in model.modules():
        # What is not structure is shared as it is: buffers, tensors kept on a module, owners of the user's hooks.
        owners = [getattr(hook, "__self__", hook) for hook in hooks_on(module)]
        kept = [*module.buffers(recurse=False), *(x for x in vars(module).values() if isinstance(x, Tensor | COMPILED))]
        shared |= {id(x): x for x in kept}
        shared |= {id(owner): owner for owner in owners if id(owner) not in inside}
        # Most of a module is a dozen empty collections; handing out new ones is much faster than copying them.
        shared |= {id(x): type(x)() for x in vars(module).values() if isinstance(x, dict | set) and not x}
        shared |= shared_with_copy(module, shared)
    shared |= {id(module): dequantized(module) for module in quantized}
    for module in reversed(list(model.modules())):  # from the inside: wrappers may lie around one another
        if (inside := inside_compiled(module)) is not None:
            shared[id(module)] = copy.deepcopy(inside, shared)
    instrumented = copy.deepcopy(model, shared).eval()
    for module in instrumented.modules():  # forward hooks are part of what the model computes, backward hooks are not
        drop_backward_hooks(module)
        if compiled_forward(module) is not None:
            del module.__dict__["forward"]  # what is left is the same function of the class
        if getattr(module, "chunk_size_feed_forward", 0):  # the same in one piece, for a text of any length
            module.chunk_size_feed_forward = 0  # type: ignore[assignment]
        if getattr(module, "gradient_checkpointing", False):
            module.gradient_checkpointing = False  # type: ignore[assignment]
        if isinstance(config := getattr(module, "config", None), PreTrainedConfig) and not own_experts:
            set_experts(config)
    for name, setting in {"output_attentions": False, "output_hidden_states": False, "use_cache": False}.items():
        setattr(instrumented.config, name, setting)
    settings = instrumented.config.get_text_config()
    if model_config.classifies(instrumented) and padding_id(instrumented) is None:
        settings.pad_token_id = model_config.NO_PADDING  # otherwise transformers takes such texts one at a time only
    return instrumented


def configs_of(model: PreTrainedModel) -> list[PreTrainedConfig]:
    """Every configuration that a module of the model reads."""
    found: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    return list({id(config): config for config in found}.values())


def embedding_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layer that turns ids into vectors, and those that share its weights, one of which may run in its place."""
    try:
        found = model.get_input_embeddings()
    except NotImplementedError as error:
        raise UnsupportedModelError(f"{type(model).__name__} does not say which layer embeds its tokens") from error
    weight = getattr(found, "weight", None)
    tied = [one for one in model.modules() if isinstance(one, nn.Embedding) and one.weight is weight]
    return list(dict.fromkeys([found, *tied]))
