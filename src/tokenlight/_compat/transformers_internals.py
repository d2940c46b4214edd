"""Private interfaces of transformers."""

from typing import Any

import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import bidirectional_mask_function, eager_mask, sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

additive_mask = eager_mask  # makes the mask that eager attention adds to its scores
boolean_mask = sdpa_mask  # makes the mask of fused attention: True where a token may attend; None if none is needed
bidirectional_mask = bidirectional_mask_function  # the mask function of encoders, without padding
EAGER = "eager"  # the name under which a family computes attention itself, in plain torch operations
FUSED_BY_TORCH = "sdpa"  # the name under which it calls torch's scaled_dot_product_attention
RECURRENT_GEMMA_SCAN = "_rnn_scan"  # the method of RecurrentGemma's module that computes the recurrence
XLSTM_SCAN = "_inference_fn"  # the same in xLSTM
CONFIG_PATH_KEY = "_name_or_path"  # the key of the model's folder in a configuration's dictionary


def is_block(module: nn.Module) -> bool:
    """Whether a module is a Transformer block: families derive their blocks from one class."""
    return isinstance(module, GradientCheckpointingLayer)


def attention_of(config: PreTrainedConfig) -> str | None:
    """The name of the attention function that a model runs with."""
    return config._attn_implementation


def set_attention(config: PreTrainedConfig, name: str) -> None:
    """Set the attention function that modules with this configuration call, by its name."""
    config._attn_implementation = name


def plain_attention_of(config: PreTrainedConfig) -> str:
    """The implementation in plain torch operations that is equivalent to the one in this configuration.

    Families with attention code of their own may have a version for each implementation, with different results.
    """
    own = attention_of(config)
    return own if own == FUSED_BY_TORCH else EAGER


def takes_attention_functions(model: PreTrainedModel) -> bool:
    """Whether transformers lists the family as one that calls the attention function that its configuration names."""
    return model._can_set_attn_implementation()


def set_experts(config: PreTrainedConfig) -> None:
    """Select the eager implementation of experts, in plain torch operations, for modules with this configuration."""
    if getattr(config, "_experts_implementation", None) is not None:
        config._experts_implementation = "eager"


def supports_fused_attention(model: PreTrainedModel) -> bool:
    """Whether the family supports torch's fused attention, where a module's `is_causal` replaces a causal mask."""
    return model._supports_sdpa


def tokenizer_json(tokenizer: Any) -> str:
    """The full definition of a fast tokenizer, as the text of its tokenizer.json."""
    return tokenizer.backend_tokenizer.to_str()


def model_types(auto_class: str) -> list[str]:
    """The model types that one of transformers' auto classes can make."""
    return list(getattr(transformers, auto_class)._model_mapping._model_mapping)


def class_names(auto_class: str) -> set[str]:
    """The names of the classes that one of transformers' auto classes can make."""
    entries = getattr(transformers, auto_class)._model_mapping._model_mapping.values()
    return {name for entry in entries for name in ((entry,) if isinstance(entry, str) else entry)}


def config_class(model_type: str) -> type[PreTrainedConfig]:
    return CONFIG_MAPPING[model_type]
