"""Block structure: output projections, norms, and the matrices of linear layers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tokenlight._compat.torch_internals import hooks_on
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.layout import layout_of
from tokenlight.model.private_copy import Dequantized

Affine = tuple[Tensor, Tensor | None]  # x @ weight [in, out] + bias [out]


def affine_map(module: nn.Module, width: int) -> Affine | None:
    """Of a module that reads vectors of this width; None where it is not affine.

    An adapter or a hook around a linear layer is a part of what it does, so the weights inside are not all of it.
    """
    plain = isinstance(module, nn.Linear | Conv1D | Dequantized) and not hooks_on(module)
    found = stored(module) if plain else seen(module, width)
    return found if found is not None and reproduces(module, found, width) else None


def stored(module: Any) -> Affine:
    weight = module.weight if isinstance(module, Conv1D) else module.weight.T  # GPT-2 stores [in, out]
    return weight, module.bias


def seen(module: nn.Module, width: int) -> Affine | None:
    """What the unit vectors become."""
    like = next((weight for weight in module.parameters() if weight.is_floating_point()), None)
    if like is None:
        return None
    with torch.no_grad():
        bias = answer(module, like.new_zeros(1, width))
        rows = answer(module, torch.eye(width, dtype=like.dtype, device=like.device))
    return None if bias is None or rows is None or bias.shape[1:] != rows.shape[1:] else (rows - bias, bias[0])


def reproduces(module: nn.Module, found: Affine, width: int) -> bool:
    """Whether a module computes this map: on two vectors that nobody has chosen."""
    weight, bias = found
    if weight.ndim != 2 or len(weight) != width:
        return False
    x = torch.linspace(1, 40, 2 * width, device=weight.device).sin().view(2, width).to(weight.dtype)
    with torch.no_grad():
        y, expected = answer(module, x), x @ weight + (0 if bias is None else bias)
    if y is None or y.shape != expected.shape:
        return False
    # Sums of `width` terms, in single precision at least, rounded in the end.
    rounding = 8 * torch.finfo(weight.dtype).eps + width * torch.finfo(torch.float32).eps
    return bool((y - expected).norm() <= rounding * (y.norm() + expected.norm()))


def answer(module: nn.Module, x: Tensor) -> Tensor | None:
    """To rows of numbers, where it can read them at all."""
    try:
        y = module(x)
    except Exception:  # whatever a module of unknown kind says
        return None
    return y if isinstance(y, Tensor) and y.ndim == 2 and len(y) == len(x) else None


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The Transformer blocks in the order of their calls."""
    return layout_of(model).modules(model)


@dataclass(frozen=True)
class BlockStructure:
    """Where a block keeps what decompositions need, as paths inside the block."""

    projection: str  # the attention's output projection
    norm: str | None = None  # post-norm families: after the attention joined the residual stream ...
    second_norm: str | None = None  # ... and after the MLP did
    branch_norm: str | None = None  # normalizes the attention's output before it joins
    scale: float = 1.0  # ... times this
    residual_scale: float = 1.0  # the stream's own factor where they join
    heads_norm: str | None = None  # normalizes the heads' outputs, all together, before they are projected
    gated: bool = False  # the heads' outputs are multiplied with a gate, number by number, before they are projected


BERT_LIKE = BlockStructure("attention.output.dense", "attention.output.LayerNorm", "output.LayerNorm")
BERT_COPIES = ("ernie", "data2vec-text", "layoutlm", "markuplm", "deberta", "deberta-v2")
LLAMA_LIKE = BlockStructure("self_attn.o_proj")
SANDWICH = BlockStructure("self_attn.o_proj", branch_norm="post_attention_layernorm")
BLOCK_STRUCTURES = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", *BERT_COPIES), BERT_LIKE),
    "albert": BlockStructure("attention.dense", "attention.LayerNorm", "full_layer_layer_norm"),
    "mpnet": BlockStructure("attention.attn.o", "attention.LayerNorm", "output.LayerNorm"),
    "distilbert": BlockStructure("attention.out_lin", "sa_layer_norm", "output_layer_norm"),
    "gpt2": BlockStructure("attn.c_proj"),
    "opt": BlockStructure("self_attn.out_proj"),
    "opt, post-norm": BlockStructure("self_attn.out_proj", "self_attn_layer_norm", "final_layer_norm"),
    "gpt_neox": BlockStructure("attention.dense"),
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "phi3"), LLAMA_LIKE),
    **dict.fromkeys(("olmo2", "gemma2", "gemma3_text"), SANDWICH),
}


def listed_structure(model: PreTrainedModel) -> BlockStructure | None:
    """Of families whose blocks are not found out (`dissecting.py`)."""
    kind = model.config.model_type
    if kind == "opt" and not model.config.do_layer_norm_before:
        kind = "opt, post-norm"
    return BLOCK_STRUCTURES.get(kind)


def known_structure(model: PreTrainedModel) -> BlockStructure:
    """Of a family that is listed, whose weights can be read."""
    found = listed_structure(model)
    if found is None:
        raise UnsupportedModelError(f"'{model.config.model_type}' is not listed in tokenlight/model/block_structure.py")
    refuse_spread(model)
    return found


def refuse_spread(model: PreTrainedModel) -> None:
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or torch.device("meta") in devices:
        raise UnsupportedModelError(
            f"decompositions read the weights themselves, which device_map has spread over {len(devices)} places "
            "('meta' stands for disk or memory outside the device): load the whole model on one device"
        )


def second_norm(model: PreTrainedModel, block: nn.Module) -> nn.Module | None:
    found = listed_structure(model)
    return block.get_submodule(found.second_norm) if found and found.second_norm else None


def projection(block: nn.Module, path: str, heads: int, width: int) -> tuple[Tensor, Tensor | None]:
    """Weight [head, head dim, dim] and bias [dim] of the attention's output projection, whose heads have a `width`."""
    module = block.get_submodule(path)
    found = affine_map(module, heads * width)
    if found is None:
        raise UnsupportedModelError(
            f"decompositions need the matrix of the attention's output projection, and what {type(module).__name__} "
            "does is not linear (hooks and adapters are a part of it)"
        )
    weight, bias = found
    return weight.reshape(heads, width, -1), bias


@dataclass(frozen=True)
class Norm:
    """A norm as a linear map with a scale per position: weight * center(x) / size(x) + bias."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    centered: bool  # LayerNorm takes the mean away, RMSNorm does not

    def linear(self, x: Tensor) -> Tensor:
        """The part that does not depend on the size of x."""
        return self.weight * (x - x.mean(-1, keepdim=True) if self.centered else x)

    def linear_before(self, weight: Tensor) -> Tensor:
        """`linear` and a layer behind it in one matrix, [in, out] as `weight`: linear(x) @ weight = x @ this."""
        scaled = self.weight[:, None] * weight
        return scaled - scaled.mean(0) if self.centered else scaled

    def size(self, x: Tensor) -> Tensor:
        """[..., 1]"""
        x = x - x.mean(-1, keepdim=True) if self.centered else x
        return (x.square().mean(-1, keepdim=True) + self.eps).sqrt()

    def __call__(self, x: Tensor) -> Tensor:
        y = self.linear(x) / self.size(x)
        return y if self.bias is None else y + self.bias


def norm_at(block: nn.Module, path: str) -> Norm:
    module = block.get_submodule(path)
    width = next((parameter.shape[-1] for parameter in block.parameters() if parameter.ndim == 1), 8)
    found = probed_norm(module, getattr(module, "weight", torch.empty(width)).shape[-1])
    if found is None:
        raise UnsupportedModelError(f"{type(module).__name__} is not a norm that decompositions know")
    return found


def probed_norm(module: Any, width: int) -> Norm | None:
    """The module as a `Norm`, if that gives what the module gives; families store weights in different ways."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if any(x is not None and (not isinstance(x, Tensor) or x.shape != (width,)) for x in (weight, bias)):
        return None
    like = weight if weight is not None else torch.ones(width)
    sizes = [getattr(module, name, None) for name in ("eps", "variance_epsilon", "epsilon", "norm_eps")]
    eps = next((size for size in sizes if isinstance(size, float)), torch.finfo(like.dtype).eps)
    try:
        with torch.no_grad():
            x = torch.linspace(-1, 2, width, device=like.device, dtype=like.dtype).sin().expand(1, 2, -1) + 0.5
            y = module(x)
    except Exception:  # whatever a module of unknown kind says to a state
        return None
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return None
    # Some compute in float32 whatever the weights are in.
    near = 100 * max(torch.finfo(y.dtype).eps, torch.finfo(torch.float32).eps) * (y.abs().max() + 1)
    for centered in (True, False):
        for offset in (0, 1) if weight is not None else (0,):  # Gemma stores the weight minus 1
            norm = Norm(like if not offset else like + offset, bias, eps, centered)
            if bool(((norm(x) - y).abs() <= near).all()):
                return norm
    return None
