"""What tokenlight uses of transformers although transformers does not promise it. Nobody else in the package does."""

from typing import Any

from torch import nn
from transformers import PreTrainedConfig
from transformers.masking_utils import eager_mask
from transformers.modeling_layers import GradientCheckpointingLayer

additive_mask = eager_mask  # makes the mask that eager attention adds to its scores
WHERE_IT_LAY = "_name_or_path"  # the key under which a configuration's dictionary notes its folder


def is_block(module: nn.Module) -> bool:
    """Whether a module is a Transformer block; every family derives them from one class."""
    return isinstance(module, GradientCheckpointingLayer)


def attention_of(config: PreTrainedConfig) -> str | None:
    """The name of the attention function that a model runs with."""
    return config._attn_implementation


def tokenizer_json(tokenizer: Any) -> str:
    """All that a fast tokenizer does, as the file that would be saved."""
    return tokenizer.backend_tokenizer.to_str()
