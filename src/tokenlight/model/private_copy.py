"""A private copy of a model that shares its weights, also where these are spread over devices or packed."""

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
    offloaded_weights,
    reaches_below,
    runs_on,
    tied_weights,
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
    """Offloaded weights, with the module whose hook loads them when it runs."""
    for module in model.modules():
        for hook in hooks_of(module):
            if brings_weights(hook):
                for weight in module.parameters(recurse=reaches_below(hook)):
                    yield module, weight


def shared_with_copy(module: nn.Module, known: Mapping[int, Any]) -> dict[int, Any]:
    """The memo of `copy.deepcopy` for offloading hooks: stores of weights are shared, maps of tied weights are copied
    with the same tensors."""
    memo: dict[int, Any] = {}
    for hook in hooks_of(module):
        offloaded, tied = offloaded_weights(hook), tied_weights(hook)
        if offloaded is not None:
            memo[id(offloaded)] = offloaded
        if tied is not None and id(tied) not in known:
            memo[id(tied)] = {address: dict(copies) for address, copies in tied.items()}
    return memo


def device_of(module: nn.Module) -> torch.device:
    """The device that a module runs on: that of its weights, or that to which they are loaded."""
    weight = next(module.parameters())
    if not weight.is_meta:
        return weight.device
    return next(torch.device(device) for hook in hooks_of(module) if (device := runs_on(hook)) is not None)


REMEDY = "load the model in floating point, or pass the result of model.dequantize()"


class Dequantized(nn.Module):
    """A linear layer that computes the same as a layer with packed weights and unquantized activations.

    It reads the user's layer and changes nothing in it. Weights are unpacked at every access, so that those of one
    layer at a time are in memory, unless a graph keeps them.
    """

    unpack: Callable[[], Tensor]
    computed_in: torch.dtype | None

    def __init__(self, layer: nn.Module, unpack: Callable[[], Tensor], computed_in: torch.dtype | None):
        super().__init__()
        self.__dict__["layer"] = layer  # not registered as a submodule
        self.unpack, self.computed_in = unpack, computed_in

    @property
    def weight(self) -> Tensor:
        """[out, in]"""
        return self.unpack().detach()

    @property
    def bias(self) -> Tensor | None:
        bias = self.__dict__["layer"].bias
        return None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        cast = x if self.computed_in is None else x.to(self.computed_in)
        weight, bias = (cast_parameter(tensor, cast.dtype) for tensor in (self.weight, self.bias))
        return F.linear(cast, weight, bias).to(x.dtype)  # type: ignore[arg-type]


def cast_parameter(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A parameter in the dtype of the input, as the packed layer casts it; unchanged for doubles, which rules cast."""
    return tensor if tensor is None or dtype == torch.float64 else tensor.to(dtype)


def is_packed(tensor: Any) -> bool:
    """Whether a tensor is of a subclass that can be dequantized, such as torchao's."""
    return isinstance(tensor, Tensor) and type(tensor).dequantize is not Tensor.dequantize


def unpacked(tensor: Tensor) -> Tensor:
    """A tensor in floating point."""
    return tensor.dequantize() if is_packed(tensor) else tensor


def is_quantized(module: nn.Module) -> bool:
    """Whether a module's own weights are packed."""
    kind = type(module).__module__
    own = weights_in(module).values()
    return kind.startswith("bitsandbytes.") or any(is_packed(w) or w.dtype in PACKED for w in own if w is not None)


PACKED = (torch.uint8, torch.int8)


def unpacked_weights(model: nn.Module) -> int:
    """The number of weights that are packed, in a model or its instrumented copy."""
    layers: list[Any] = [m.__dict__["layer"] for m in model.modules() if isinstance(m, Dequantized)]
    layers += [module for module in model.modules() if is_quantized(module)]
    return sum(layer.in_features * layer.out_features for layer in layers)


def dequantized(module: nn.Module) -> Dequantized:
    """A plain layer for a quantized one; refuses those that have none."""
    name = type(module).__name__
    if hooks_on(module) or "forward" in vars(module):
        raise UnsupportedModelError(f"there are hooks on {name}, which is quantized: remove them, or {REMEDY}")
    weight: Any = weights_in(module).get("weight")
    if type(module) is nn.Linear and is_packed(weight):
        if getattr(weight, "act_quant_kwargs", None) is not None:
            raise UnsupportedModelError(
                f"{name} is quantized and rounds its input, too, which has no gradient: {REMEDY}"
            )
        return Dequantized(module, weight.dequantize, None)
    if name == "Linear4bit" and getattr(weight, "quant_state", None) is not None:
        return four_bits(module, weight)
    raise UnsupportedModelError(f"{name} is quantized in a way that is more than packed weights: {REMEDY}")


def four_bits(module: Any, weight: Any) -> Dequantized:
    """A plain layer for a 4-bit layer of bitsandbytes."""
    from bitsandbytes.functional import dequantize_4bit  # type: ignore[import-not-found]

    if getattr(weight.quant_state, "packing_format_for_cpu", False):
        raise UnsupportedModelError(
            "a pass of the model has packed its 4-bit weights for this processor, in a format that cannot be read: "
            "load it again and explain before you run it, or pass the result of model.dequantize()"
        )
    computed_in = module.compute_dtype if module.compute_type_is_set else None
    return Dequantized(module, lambda: dequantize_4bit(weight.data, weight.quant_state), computed_in)


COMPILED = torch.jit.ScriptFunction  # cannot be copied, and has no state that a copy would change


def unwrap(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a PEFT, data-parallel or compiling wrapper, where that is the same function."""
    model = inside_wrappers(model)
    peft = getattr(model, "peft_config", None)
    if peft is not None and hasattr(model, "get_base_model"):
        if any(config.is_prompt_learning or config.is_adaption_prompt for config in peft.values()):
            raise UnsupportedModelError(
                "a PEFT prompt adds virtual tokens, which are not part of the text; use an adapter such as LoRA"
            )
        model = inside_wrappers(model.get_base_model())  # type: ignore[operator]  # its layers hold the adapters
    if not isinstance(model, PreTrainedModel):
        raise RefusedType(f"expected a transformers model, found {type(model).__name__}")
    return model


def inside_wrappers(model: nn.Module) -> nn.Module:
    """The module inside data-parallel and compiling wrappers, which may be nested."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif (inside := inside_compiled(model)) is not None:
            refuse_hooks_around(model)
            model = inside
        else:
            return model


def refuse_hooks_around(compiled: nn.Module) -> None:
    """Refuse hooks on the wrapper of torch.compile, which the copy leaves out."""
    if hooks_on(compiled):
        raise UnsupportedModelError(
            "there are hooks on the module that torch.compile returned: register them on the module inside"
        )


def refuse_inexact(model: PreTrainedModel) -> None:
    """Refuse models whose copy would have other hooks, gradients or numbers."""
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
            continue  # its forward calls the module inside, which comes next
        forward = compiled_forward(module)
        if forward is not None and getattr(forward, "__func__", None) is not type(module).forward:
            raise UnsupportedModelError(
                f"the forward of {type(module).__name__} was replaced by a compiled function: tokenlight runs a "
                "model's own code; delete module.forward, or compile the module itself"
            )
        if getattr(module, "max_norm", None) is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            raise UnsupportedModelError(
                f"an embedding of {name} has max_norm={module.max_norm}: it rewrites its weights whenever it runs, "
                "and your model must not change. Apply the norm once, and set max_norm to None"
            )
        if type(module).__module__.startswith("torch.ao."):
            raise UnsupportedModelError(f"{type(module).__name__} is quantized: load the model in floating point")
    packed = {id(p) for module in model.modules() if is_quantized(module) for p in module.parameters(recurse=False)}
    plain = [parameter for parameter in model.parameters() if id(parameter) not in packed]
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

    Experts run one by one, in plain torch operations, or with `own_experts` in the model's own implementation.
    """
    quantized = [module for module in model.modules() if is_quantized(module)]
    packed = {id(p) for module in quantized for p in module.parameters(recurse=False)}
    shared: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters() if id(p) not in packed
    }
    inside = {id(module) for module in model.modules()}
    for module in model.modules():
        # Shared, not copied: buffers, tensors stored on a module, owners of the user's hooks.
        owners = [getattr(hook, "__self__", hook) for hook in hooks_on(module)]
        tensors = (x for x in vars(module).values() if isinstance(x, Tensor | COMPILED))
        shared |= {id(x): x for x in (*module.buffers(recurse=False), *tensors)}
        shared |= {id(owner): owner for owner in owners if id(owner) not in inside}
        # A module has a dozen empty collections; making new ones here is much faster than copying them.
        shared |= {id(x): type(x)() for x in vars(module).values() if isinstance(x, dict | set) and not x}
        shared |= shared_with_copy(module, shared)
    shared |= {id(module): dequantized(module) for module in quantized}
    for module in reversed(list(model.modules())):  # the innermost first: wrappers may be nested
        if (inside := inside_compiled(module)) is not None:
            shared[id(module)] = copy.deepcopy(inside, shared)
    instrumented = copy.deepcopy(model, shared).eval()
    for module in instrumented.modules():  # forward hooks belong to the model's function, backward hooks do not
        drop_backward_hooks(module)
        if compiled_forward(module) is not None:
            del module.__dict__["forward"]  # the class has the same function
        if getattr(module, "chunk_size_feed_forward", 0):  # chunks would limit the length of a text
            module.chunk_size_feed_forward = 0  # type: ignore[assignment]
        if getattr(module, "gradient_checkpointing", False):
            module.gradient_checkpointing = False  # type: ignore[assignment]
        if isinstance(config := getattr(module, "config", None), PreTrainedConfig) and not own_experts:
            set_experts(config)
    for config in configs_of(instrumented):  # the language model inside a larger one reads its own configuration
        for name in ("output_attentions", "output_hidden_states", "use_cache"):
            if config is instrumented.config or hasattr(config, name):
                setattr(config, name, False)
    settings = instrumented.config.get_text_config()
    if model_config.classifies(instrumented) and padding_id(instrumented) is None:
        settings.pad_token_id = model_config.NO_PADDING  # without one, transformers accepts one text at a time only
    return instrumented


def configs_of(model: PreTrainedModel) -> list[PreTrainedConfig]:
    """The configurations of all modules, each once."""
    configs: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    return list({id(config): config for config in configs}.values())


def embedding_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The input embedding layer, and those that share its weights, one of which may run in its place."""
    try:
        layer = model.get_input_embeddings()
    except NotImplementedError as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no get_input_embeddings(), which tokenlight needs to find the embedding layer"
        ) from error
    weight = getattr(layer, "weight", None)
    tied = [module for module in model.modules() if isinstance(module, nn.Embedding) and module.weight is weight]
    return list(dict.fromkeys([layer, *tied]))
