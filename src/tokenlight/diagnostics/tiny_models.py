"""Tiny models with random weights of every family of transformers."""

from contextlib import suppress
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from tokenlight._compat.transformers_internals import config_class, model_types
from tokenlight.diagnostics.reference_model import PlainModel, target_of
from tokenlight.tasks import TASKS
from tokenlight.text.batch import Batch

WIDTH, INNER, LAYERS, HEADS, GROUPS, HEAD, EXPERTS = 32, 48, 2, 4, 2, 8, 4  # GROUPS: heads of keys and values
VOCABULARY, POSITIONS, WINDOW = 64, 64, 4  # a window shorter than the texts, so that it has an effect
MAX_LAYERS = 4
LAYER_COUNT = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}

# Sizes, and the names of settings that have them in many families.
NAMES: tuple[tuple[int, str], ...] = (
    (
        WIDTH,
        "hidden_size d_model n_embd dim emb_dim embed_dim embedding_size pooler_hidden_size word_embed_proj_dim "
        "hidden_size_global output_dim out_hidden_size projection_dim input_embedding_size output_embedding_size "
        "attention_hidden_size lru_width d_latents pronunciation_embed_dim shape_embed_dim entity_emb_size "
        "dim_model_base true_hidden_size intra_bottleneck_size backbone_hidden_size projector_output_dim "
        "cross_attention_hidden_size",
    ),
    (
        INNER,
        "intermediate_size ffn_dim d_ff d_inner dff hidden_dim encoder_ffn_dim decoder_ffn_dim ffn_hidden_size "
        "feed_forward_size dim_ff inner_dim n_inner shared_intermediate_size dense_intermediate_size "
        "expert_ffn_hidden_size",
    ),
    (
        32,
        "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size "
        "intermediate_size_mlp latent_size moe_latent_size",
    ),
    (
        LAYERS,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
        "num_encoder_layers num_blocks num_layers_per_stack depth l_layers x_layers r_layers "
        "num_self_attends_per_block",
    ),
    (
        HEADS,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
        "num_encoder_attention_heads num_decoder_attention_heads num_self_attention_heads "
        "num_cross_attention_heads swa_num_attention_heads linear_num_heads linear_num_value_heads index_n_heads "
        "indexer_n_heads num_query_groups",
    ),
    (
        GROUPS,
        "num_key_value_heads num_kv_heads kv_n_heads swa_num_key_value_heads linear_num_key_heads "
        "num_global_key_value_heads num_experts_per_tok num_experts_per_token moe_topk moe_k moe_top_k "
        "top_k_experts n_shared_experts num_shared_experts moe_num_shared_experts zero_expert_num "
        "altup_num_inputs hc_mult indexer_kv_heads indexer_compress_ratio block_multiple_of o_groups",
    ),
    (
        HEAD,
        "head_dim d_kv d_head v_head_dim qk_rope_head_dim qk_nope_head_dim kv_channels dim_head "
        "attention_head_size linear_head_dim linear_key_head_dim linear_value_head_dim index_head_dim "
        "indexer_head_dim indexer_budget swa_head_dim global_head_dim rotary_dim swa_v_head_dim "
        "query_pre_attn_scalar d_rel rel_extent mamba_d_state state_size ssm_state_size mamba_dt_rank "
        "time_step_rank laurel_rank adapter_rank hidden_size_per_layer_input router_hidden_size embedding_rank "
        "segment_size num_latents xpath_unit_hidden_size ffn_round_up_to_multiple_of classifier_proj_size "
        "num_centroids",
    ),
    (16, "kv_lora_rank q_lora_rank o_lora_rank"),
    (EXPERTS, "num_experts num_local_experts n_routed_experts moe_num_experts index_topk"),
    (
        VOCABULARY,
        "vocab_size vocab_size_per_layer_input decoder_vocab_size entity_vocab_size pronunciation_vocab_size "
        "shape_vocab_size audio_vocab_size",
    ),
    (
        POSITIONS,
        "max_position_embeddings n_positions max_seq_len context_length model_max_length seq_length "
        "max_target_positions max_source_positions max_2d_position_embeddings max_encoder_position_embeddings "
        "max_decoder_position_embeddings",
    ),
    (
        WINDOW,
        "sliding_window attention_window window_size attention_window_size sliding_window_size local_attention "
        "attention_chunk_size centroid_intermediate_top_k",
    ),
    (
        0,
        "attention_dropout dropout num_nextn_predict_layers num_kv_shared_layers image_token_id image_token_index "
        "audio_token_id video_token_id",
    ),
    (
        1,
        "n_group topk_group num_expert_group moe_layer_start_index first_k_dense_replace num_dense_layers scale_depth_",
    ),
)
SIZES: dict[str, Any] = {name: size for size, names in NAMES for name in names.split()}
# Settings that are None in the default configuration, but set in every checkpoint.
NEEDED = {
    *("vocab_size", "head_dim", "num_key_value_heads", "n_routed_experts", "n_shared_experts", "num_experts_per_tok"),
    *("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio"),
}
IDS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2, "pad_index": 1}

MROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
ZAMBA: dict[str, Any] = {
    "layers_block_type": ["linear_attention", "hybrid"] * 2,
    "attention_hidden_size": 2 * WIDTH,
    "attention_head_dim": 2 * WIDTH // HEADS,
}
# Settings of single families, which cannot be derived from names.
FAMILY_SETTINGS: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 16, "attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 64, "encoder_hash_byte_group_size": [3, 4]},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": MROPE, "full_attention": MROPE},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": GROUPS, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": WIDTH, "moe_num_experts": EXPERTS, "moe_top_k": GROUPS, "hidden_size": WIDTH},
    },
    "esmc": {"num_key_value_heads": HEADS},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 16, "layer_types": ["mamba", "attention"]},
    "falcon_h1": {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64},
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "lilt": {"hidden_size": 48, "channel_shrink_ratio": 4},
    "longcat_flash": {"head_dim": HEAD},
    "mamba2": {"head_dim": 16, "n_groups": 1},
    "neomme": {"head_dim": 16},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "qwen4_exp_text": {"indexer_kv_heads": 1},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8], "attn_layers": ["local", "local"]},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
    "zamba": {**ZAMBA, "num_hidden_layers": 4},
    "zamba2": {**ZAMBA, "num_hidden_layers": 4, "mamba_headdim": 16, "n_mamba_heads": 4},
}
# Settings of published models that run other code of the family.
VARIANTS: dict[str, dict[str, Any]] = {
    "big_bird[full]": {"attention_type": "original_full"},
    "falcon[alibi]": {"alibi": True},
    "falcon[new decoder]": {"new_decoder_architecture": True},
    "gemma3_text[bidirectional]": {"use_bidirectional_attention": True},
    "gpt_bigcode[multi head]": {"multi_query": False},
    "gpt_neox[sequential]": {"use_parallel_residual": False},
    "modernbert[mean]": {"classifier_pooling": "mean"},
    "olmo[clip]": {"clip_qkv": 0.5},
    "opt[post norm]": {"do_layer_norm_before": False},
    "phi[qk norm]": {"qk_layernorm": True},
    "qwen2[sliding]": {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]},
    "stablelm[parallel]": {"use_parallel_residual": True},
}


def small_settings(config: PreTrainedConfig) -> dict[str, Any]:
    """Settings of a tiny configuration of the same class."""
    layers = representative_layers(config)
    settings: dict[str, Any] = {}
    for name, value in own_settings(config).items():
        if isinstance(value, PreTrainedConfig):
            settings[name] = type(value)(**small_settings(value))
        elif name in IDS:
            settings[name] = IDS[name]
        elif is_per_layer(value, config):
            settings[name] = [small_size(name, value[layer]) for layer in layers]
        else:
            settings[name] = small_size(name, value)
        if settings[name] is value:
            del settings[name]
    if LAYER_COUNT & set(settings):
        settings |= dict.fromkeys(LAYER_COUNT & set(settings), len(layers))
    if "kv_lora_rank" in settings:  # latent attention has keys for every head, whose size follows from other settings
        settings["num_key_value_heads"] = HEADS
        settings.pop("head_dim", None)
    return settings | FAMILY_SETTINGS.get(config.model_type, {})


def small_size(name: str, value: Any) -> Any:
    """The tiny size for a setting that is a size; otherwise its value."""
    is_size = isinstance(value, int) and not isinstance(value, bool)
    return SIZES[name] if name in SIZES and (is_size or (value is None and name in NEEDED)) else value


def representative_layers(config: PreTrainedConfig) -> list[int]:
    """Indices of a few layers that include every type of layer."""
    lists = [value for value in own_settings(config).values() if is_per_layer(value, config)]
    chosen: list[int] = []
    for values in lists:
        for kind in dict.fromkeys(map(str, values)):
            if not any(str(values[layer]) == kind for layer in chosen):
                chosen.append(list(map(str, values)).index(kind))
    others = [layer for layer in range(LAYERS) if layer not in chosen]
    return sorted([*chosen, *others][: max(LAYERS, min(len(chosen), MAX_LAYERS))])


def is_per_layer(value: Any, config: PreTrainedConfig) -> bool:
    layers = getattr(config, "num_hidden_layers", 0)
    return isinstance(value, list | tuple) and len(value) == layers > LAYERS


def own_settings(config: PreTrainedConfig) -> dict[str, Any]:
    """The settings of a configuration, by the names of its constructor's arguments."""
    return {name: value for name, value in vars(config).items() if not name.startswith("_")}


MAX_WEIGHTS = 20_000_000  # more means that a size was not recognized
GAINS = (
    1.6,
    0.8,
    0.4,
)  # scales of weights, tried in this order, so that attention is not uniform and activations are not saturated
MODALITIES = (
    "vision",
    "audio",
    "vq",
    "image",
    "speech",
    "depth_decoder",
)  # prefixes of configurations of other modalities
NOT_TEXT = {"bros", "git", "layoutlm", "layoutlmv2", "layoutlmv3", "lilt", "lxmert", "markuplm", "trocr", "whisper"}
TINY = 1e-6
NOISE = 0.1  # added to norms and biases, which are initialized as 1 and 0 and would not be tested


class NotBuilt(Exception):
    """No tiny model could be made; the message has the reason."""


def all_types() -> dict[str, list[str]]:
    """{model type: tasks that tokenlight supports for it}"""
    tasks_by_type: dict[str, list[str]] = {}
    for task in TASKS.values():
        for kind in model_types(task.auto_class):
            tasks_by_type.setdefault(kind, []).append(task.name)
    tasks_by_type |= {variant: tasks_by_type[family_of(variant)] for variant in VARIANTS}
    return dict(sorted(tasks_by_type.items()))


def family_of(kind: str) -> str:
    """The model type without the name of a variant."""
    return kind.partition("[")[0]


def is_text(kind: str) -> bool:
    """Whether a family is for text alone, not for images, pages or audio."""
    sub_configs: Any = config_class(family_of(kind)).sub_configs
    return family_of(kind) not in NOT_TEXT and not any(name.startswith(MODALITIES) for name in sub_configs)


def tiny_model(kind: str, task: str) -> PreTrainedModel:
    """A tiny model with fixed random weights, in float32."""
    config = tiny_config(kind, task)
    auto: Any = getattr(transformers, TASKS[task].auto_class)
    weights = count_weights(auto, config)
    if weights > MAX_WEIGHTS:
        raise NotBuilt(f"{weights / 1e6:.0f} M weights although its settings are small")
    torch.manual_seed(0)
    model = auto.from_config(config, attn_implementation="eager").eval()
    for gain in GAINS:
        randomize_weights(model, gain)
        if has_gradient(model):
            break
    with torch.no_grad(), suppress(Exception):
        model(torch.arange(5, 17)[None])  # some models write into their weights in the first run
    return model


def count_weights(auto: Any, config: PreTrainedConfig) -> int:
    """The number of weights, without allocating them; 0 if a family reads its weights while it creates them."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in auto.from_config(config).parameters())
    except NotImplementedError:
        return 0


def has_gradient(model: PreTrainedModel) -> bool:
    """Whether the output has a gradient; also True for a model that does not run, which other checks report."""
    ids = torch.arange(5, 17)[None]
    batch = Batch(ids, torch.ones_like(ids))
    try:
        products = PlainModel.of(model).gradient_x_input(batch, target_of(model, 8, 1))
    except Exception:
        return True
    return bool(torch.isfinite(products).all()) and float(products.abs().max()) > TINY


def tiny_config(kind: str, task: str) -> PreTrainedConfig:
    config_type = config_class(family_of(kind))
    default = config_type()
    requested = {"use_cache": False, "num_labels": 3, "use_mamba_kernels": False, **TASKS[task].trial_settings}
    settings = {name: value for name, value in requested.items() if hasattr(default, name)}
    if not hasattr(
        default, "pad_token_id"
    ):  # configurations of transformers 5 without it, although their models read it
        settings["pad_token_id"] = IDS["pad_token_id"]
    if default.is_encoder_decoder:
        settings["decoder_start_token_id"] = IDS["decoder_start_token_id"]  # not every family has a default
    return config_type(**{**small_settings(default), **settings, **VARIANTS.get(kind, {})})


def randomize_weights(model: PreTrainedModel, gain: float) -> None:
    """Draw new weights, so that attention is far from uniform and every token affects the output."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * gain / parameter.shape[-1] ** 0.5)
            else:
                parameter.copy_(parameter.nan_to_num().clamp(-10, 10) + noise * NOISE)
