"""Private interfaces of transformers."""

from typing import Any

import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import bidirectional_mask_function, eager_mask, sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

additive_mask = eager_mask  # makes the mask that eager attention adds to its scores
boolean_mask = sdpa_mask  # makes the mask of fused attention: True where a token may look; None if there need be none
looks_everywhere = bidirectional_mask_function  # how the masks of encoders begin, before padding is hidden
EAGER = "eager"  # the name under which a family computes attention itself, in plain torch operations
FUSED_BY_TORCH = "sdpa"  # the name under which it calls torch's scaled_dot_product_attention
RECURRENT_GEMMA_SCAN, XLSTM_SCAN = "_rnn_scan", "_inference_fn"  # what their modules call for a recurrence
WHERE_IT_LAY = "_name_or_path"  # the key under which a configuration's dictionary notes its folder


def is_block(module: nn.Module) -> bool:
    """Whether a module is a Transformer block; every family derives them from one class."""
    return isinstance(module, GradientCheckpointingLayer)


def attention_of(config: PreTrainedConfig) -> str | None:
    """The name of the attention function that a model runs with."""
    return config._attn_implementation


def set_attention(config: PreTrainedConfig, name: str) -> None:
    """From now on, modules with this configuration call the attention function of this name."""
    config._attn_implementation = name


def written_attention_of(config: PreTrainedConfig) -> str:
    """The implementation in plain torch operations that computes what a model with this configuration computes.

    Families that write attention themselves may do it in one way for each implementation, and these need not agree.
    """
    own = attention_of(config)
    return own if own == FUSED_BY_TORCH else EAGER


def takes_attention_functions(model: PreTrainedModel) -> bool:
    """Whether a family calls whatever attention function its configuration names, as far as transformers knows."""
    return model._can_set_attn_implementation()


def set_experts(config: PreTrainedConfig) -> None:
    """From now on, experts of modules with this configuration run as their own code says, in operations of torch."""
    if getattr(config, "_experts_implementation", None) is not None:
        config._experts_implementation = "eager"


def knows_fused_attention(model: PreTrainedModel) -> bool:
    """Whether the family runs with torch's fused attention, where a module says itself if it looks ahead."""
    return model._supports_sdpa


def tokenizer_json(tokenizer: Any) -> str:
    """All that a fast tokenizer does, as the file that would be saved."""
    return tokenizer.backend_tokenizer.to_str()


def model_types(auto_class: str) -> list[str]:
    """The model types that one of transformers' auto classes can make."""
    return list(getattr(transformers, auto_class)._model_mapping._model_mapping)


def class_names(auto_class: str) -> set[str]:
    """The names of the classes that one of transformers' auto classes can make."""
    made = getattr(transformers, auto_class)._model_mapping._model_mapping.values()
    return {name for one in made for name in ((one,) if isinstance(one, str) else one)}


def config_class(model_type: str) -> type[PreTrainedConfig]:
    return CONFIG_MAPPING[model_type]
