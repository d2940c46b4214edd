"""The few facts about a model that transformers does not tell."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.model.layout import layout_of


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The Transformer blocks in the order of their calls."""
    return layout_of(model).modules(model)


@dataclass(frozen=True)
class Anatomy:
    """Where a block keeps what decompositions need, as paths inside the block."""

    projection: str  # the attention's output projection
    norm: str | None = None  # post-norm families: after the attention joined the residual stream ...
    second_norm: str | None = None  # ... and after the MLP did
    branch_norm: str | None = None  # normalises the attention's output before it joins


BERT_LIKE = Anatomy("attention.output.dense", "attention.output.LayerNorm", "output.LayerNorm")
LLAMA_LIKE = Anatomy("self_attn.o_proj")
SANDWICH = Anatomy("self_attn.o_proj", branch_norm="post_attention_layernorm")
ANATOMIES = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), BERT_LIKE),
    "distilbert": Anatomy("attention.out_lin", "sa_layer_norm", "output_layer_norm"),
    "gpt2": Anatomy("attn.c_proj"),
    "opt": Anatomy("self_attn.out_proj"),
    "opt, post-norm": Anatomy("self_attn.out_proj", "self_attn_layer_norm", "final_layer_norm"),
    "gpt_neox": Anatomy("attention.dense"),
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "phi3"), LLAMA_LIKE),
    **dict.fromkeys(("olmo2", "gemma2", "gemma3_text"), SANDWICH),
}


def anatomy_of(model: PreTrainedModel) -> Anatomy | None:
    kind = model.config.model_type
    if kind == "opt" and not model.config.do_layer_norm_before:
        kind = "opt, post-norm"
    return ANATOMIES.get(kind)


def known_anatomy(model: PreTrainedModel) -> Anatomy:
    found = anatomy_of(model)
    if found is None:
        raise UnsupportedModelError(
            f"decompositions need to know where '{model.config.model_type}' keeps its output projection and norms, "
            f"one line in tokenlight/model/anatomy.py; known: {', '.join(ANATOMIES)}"
        )
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or torch.device("meta") in devices:
        raise UnsupportedModelError(
            f"decompositions read the weights themselves, which device_map has spread over {len(devices)} places "
            "('meta' stands for disk or memory outside the device): load the whole model on one device"
        )
    return found


def second_norm(model: PreTrainedModel, block: nn.Module) -> nn.Module | None:
    found = anatomy_of(model)
    return block.get_submodule(found.second_norm) if found and found.second_norm else None


def projection(block: nn.Module, path: str, heads: int) -> tuple[Tensor, Tensor | None]:
    """Weight [head, head dim, dim] and bias [dim] of the attention's output projection."""
    module = block.get_submodule(path)
    weight: Any = module.weight
    weight = weight if isinstance(module, Conv1D) else weight.T  # GPT-2 stores [in, out]
    bias: Any = module.bias
    return weight.reshape(heads, -1, weight.shape[-1]), bias


@dataclass(frozen=True)
class Norm:
    """A norm as a linear map with a scale per position: weight * centre(x) / size(x) + bias."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    centred: bool  # LayerNorm takes the mean away, RMSNorm does not

    def linear(self, x: Tensor) -> Tensor:
        """The part that does not depend on the size of x."""
        return self.weight * (x - x.mean(-1, keepdim=True) if self.centred else x)

    def size(self, x: Tensor) -> Tensor:
        """[..., 1]"""
        x = x - x.mean(-1, keepdim=True) if self.centred else x
        return (x.square().mean(-1, keepdim=True) + self.eps).sqrt()

    def __call__(self, x: Tensor) -> Tensor:
        y = self.linear(x) / self.size(x)
        return y if self.bias is None else y + self.bias


def norm_at(block: nn.Module, path: str) -> Norm:
    module: Any = block.get_submodule(path)
    if isinstance(module, nn.LayerNorm):
        return Norm(module.weight, module.bias, module.eps, centred=True)
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    offset = 1 if type(module).__name__.startswith("Gemma") else 0  # Gemma stores the weight minus 1
    return Norm(module.weight + offset, None, eps, centred=False)
