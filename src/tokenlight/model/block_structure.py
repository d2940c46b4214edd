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
    """The affine map of a module that reads vectors of this width; None where it is not affine.

    Adapters and hooks around a linear layer belong to the map, so the weights of the layer alone may not describe it.
    """
    plain = isinstance(module, nn.Linear | Conv1D | Dequantized) and not hooks_on(module)
    affine = stored_affine(module) if plain else probed_affine(module, width)
    return affine if affine is not None and computes(module, affine, width) else None


def stored_affine(module: Any) -> Affine:
    weight = module.weight if isinstance(module, Conv1D) else module.weight.T  # GPT-2 stores [in, out]
    return weight, module.bias


def probed_affine(module: nn.Module, width: int) -> Affine | None:
    """The map as the module's outputs for 0 and the unit vectors give it; None where it has no such outputs."""
    like = next((weight for weight in module.parameters() if weight.is_floating_point()), None)
    if like is None:
        return None
    with torch.no_grad():
        bias = output_for(module, like.new_zeros(1, width))
        rows = output_for(module, torch.eye(width, dtype=like.dtype, device=like.device))
    return None if bias is None or rows is None or bias.shape[1:] != rows.shape[1:] else (rows - bias, bias[0])


def computes(module: nn.Module, affine: Affine, width: int) -> bool:
    """Whether a module computes this affine map, tested on two arbitrary vectors."""
    weight, bias = affine
    if weight.ndim != 2 or len(weight) != width:
        return False
    x = torch.linspace(1, 40, 2 * width, device=weight.device).sin().view(2, width).to(weight.dtype)
    with torch.no_grad():
        y, expected = output_for(module, x), x @ weight + (0 if bias is None else bias)
    if y is None or y.shape != expected.shape:
        return False
    # Sums of `width` terms in at least single precision; the result is rounded to the dtype.
    rounding = 8 * torch.finfo(weight.dtype).eps + width * torch.finfo(torch.float32).eps
    return bool((y - expected).norm() <= rounding * (y.norm() + expected.norm()))


def output_for(module: nn.Module, x: Tensor) -> Tensor | None:
    """The module's output [n, out] for vectors [n, in]; None where it does not read or return such."""
    try:
        y = module(x)
    except Exception:  # an unknown module may raise anything
        return None
    return y if isinstance(y, Tensor) and y.ndim == 2 and len(y) == len(x) else None


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The Transformer blocks, in the order of their calls."""
    return layout_of(model).modules(model)


@dataclass(frozen=True)
class BlockStructure:
    """The modules of a block that decompositions need, as paths inside the block.

    After attention, the residual stream is residual_scale * input + scale * (projected head outputs).
    """

    projection: str  # the attention's output projection
    norm: str | None = None  # post-norm families: after the attention's residual addition ...
    second_norm: str | None = None  # ... and after the MLP's
    branch_norm: str | None = None  # normalizes the attention's output before the residual addition
    scale: float = 1.0
    residual_scale: float = 1.0
    heads_norm: str | None = None  # normalizes the concatenated heads' outputs before they are projected
    gated: bool = False  # the heads' outputs are multiplied elementwise with a gate before they are projected


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
    """The structure of a family that is in the table, without a probe (`block_structure_discovery.py`)."""
    kind = model.config.model_type
    if kind == "opt" and not model.config.do_layer_norm_before:
        kind = "opt, post-norm"
    return BLOCK_STRUCTURES.get(kind)


def known_structure(model: PreTrainedModel) -> BlockStructure:
    """The listed structure; refuses families that are not listed and weights that cannot be read."""
    structure = listed_structure(model)
    if structure is None:
        raise UnsupportedModelError(f"'{model.config.model_type}' is not listed in tokenlight/model/block_structure.py")
    refuse_spread(model)
    return structure


def refuse_spread(model: PreTrainedModel) -> None:
    """Refuse a model whose weights are spread over devices."""
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or torch.device("meta") in devices:
        raise UnsupportedModelError(
            f"decompositions read the weights, which device_map has spread over {len(devices)} devices "
            "('meta' stands for disk or memory outside the device): load the whole model on one device"
        )


def second_norm(model: PreTrainedModel, block: nn.Module) -> nn.Module | None:
    structure = listed_structure(model)
    return block.get_submodule(structure.second_norm) if structure and structure.second_norm else None


def projection(block: nn.Module, path: str, heads: int, width: int) -> tuple[Tensor, Tensor | None]:
    """Weight [head, head dim, dim] and bias [dim] of the attention's output projection; `width` is the head dim."""
    module = block.get_submodule(path)
    affine = affine_map(module, heads * width)
    if affine is None:
        raise UnsupportedModelError(
            f"decompositions need the matrix of the attention's output projection, and what {type(module).__name__} "
            "computes is not linear (with its hooks and adapters)"
        )
    weight, bias = affine
    return weight.reshape(heads, width, -1), bias


@dataclass(frozen=True)
class Norm:
    """A norm as a linear map with a scale per position: y = weight * center(x) / size(x) + bias."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    centered: bool  # LayerNorm subtracts the mean, RMSNorm does not

    def linear(self, x: Tensor) -> Tensor:
        """weight * center(x)"""
        return self.weight * (x - x.mean(-1, keepdim=True) if self.centered else x)

    def linear_before(self, weight: Tensor) -> Tensor:
        """`linear` and a following layer as one matrix M [in, out]: linear(x) @ weight = x @ M."""
        scaled = self.weight[:, None] * weight
        return scaled - scaled.mean(0) if self.centered else scaled

    def size(self, x: Tensor) -> Tensor:
        """[..., 1] sqrt(mean(center(x)^2) + eps)"""
        x = x - x.mean(-1, keepdim=True) if self.centered else x
        return (x.square().mean(-1, keepdim=True) + self.eps).sqrt()

    def __call__(self, x: Tensor) -> Tensor:
        y = self.linear(x) / self.size(x)
        return y if self.bias is None else y + self.bias


def norm_at(block: nn.Module, path: str) -> Norm:
    module = block.get_submodule(path)
    width = next((parameter.shape[-1] for parameter in block.parameters() if parameter.ndim == 1), 8)
    norm = probed_norm(module, getattr(module, "weight", torch.empty(width)).shape[-1])
    if norm is None:
        raise UnsupportedModelError(f"{type(module).__name__} is not a norm that decompositions know")
    return norm


def probed_norm(module: Any, width: int) -> Norm | None:
    """The module as a `Norm` with the same outputs, or None. Families store a norm's weights in different ways."""
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
    except Exception:  # an unknown module may raise anything
        return None
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return None
    # Some compute in float32, whatever the dtype of their weights.
    near = 100 * max(torch.finfo(y.dtype).eps, torch.finfo(torch.float32).eps) * (y.abs().max() + 1)
    for centered in (True, False):
        for offset in (0, 1) if weight is not None else (0,):  # Gemma stores the weight minus 1
            norm = Norm(like if not offset else like + offset, bias, eps, centered)
            if bool(((norm(x) - y).abs() <= near).all()):
                return norm
    return None
