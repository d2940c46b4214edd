"""Tiny models with random weights of every family that transformers has."""

from contextlib import suppress
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from tokenlight.explain.plain_model import PlainModel, target_of
from tokenlight.families.small_sizes import IDS, VARIANTS, small_settings
from tokenlight.foundation.transformers_internals import config_class, model_types
from tokenlight.tasks import TASKS
from tokenlight.text.batches import Batch

MOST_WEIGHTS = 20_000_000  # more is no tiny model: a size was not found
GAINS = (1.6, 0.8, 0.4)  # how much a layer stretches what it reads: attention is sharp, and no activation dead
SENSES = ("vision", "audio", "vq", "image", "speech", "depth_decoder")  # how configurations of other senses begin
OTHER = {"bros", "git", "layoutlm", "layoutlmv2", "layoutlmv3", "lilt", "lxmert", "markuplm", "trocr", "whisper"}
TINY = 1e-6
MOVED = 0.1  # norms and biases start as 1 and 0: they are moved, or nothing tests them


class NotBuilt(Exception):
    """No tiny model could be made; says why."""


def all_types() -> dict[str, list[str]]:
    """Every model type with a head that tokenlight explains -> the names of these tasks."""
    found: dict[str, list[str]] = {}
    for task in TASKS.values():
        for kind in model_types(task.auto_class):
            found.setdefault(kind, []).append(task.name)
    found |= {variant: found[family_of(variant)] for variant in VARIANTS}
    return dict(sorted(found.items()))


def family_of(kind: str) -> str:
    """Without the variant."""
    return kind.partition("[")[0]


def is_text(kind: str) -> bool:
    """Whether the family was made for text, and not for its part in pictures, pages or sounds."""
    parts: Any = config_class(family_of(kind)).sub_configs
    return family_of(kind) not in OTHER and not any(part.startswith(SENSES) for part in parts)


def tiny_model(kind: str, task: str) -> PreTrainedModel:
    """The same weights every time, in float32."""
    config = tiny_config(kind, task)
    auto: Any = getattr(transformers, TASKS[task].auto_class)
    weights = count_weights(auto, config)
    if weights > MOST_WEIGHTS:
        raise NotBuilt(f"{weights / 1e6:.0f} M weights although its sizes are small")
    torch.manual_seed(0)
    model = auto.from_config(config, attn_implementation="eager").eval()
    for gain in GAINS:
        sharpen(model, gain)
        if has_gradient(model):
            break
    with torch.no_grad(), suppress(Exception):
        model(torch.arange(5, 17)[None])  # some write into their weights in their first run
    return model


def count_weights(auto: Any, config: PreTrainedConfig) -> int:
    """Without making them; 0 where a family reads its weights while it makes them."""
    try:
        with torch.device("meta"):
            return sum(one.numel() for one in auto.from_config(config).parameters())
    except NotImplementedError:
        return 0


def has_gradient(model: PreTrainedModel) -> bool:
    """Whether what the model says depends smoothly on the tokens; a model that cannot run is found out by others."""
    ids = torch.arange(5, 17)[None]
    batch = Batch(ids, torch.ones_like(ids))
    try:
        products = PlainModel.of(model).gradient_x_input(batch, target_of(model, 8, 1))
    except Exception:
        return True
    return bool(torch.isfinite(products).all()) and float(products.abs().max()) > TINY


def tiny_config(kind: str, task: str) -> PreTrainedConfig:
    made = config_class(family_of(kind))
    whole = made()
    wanted = {"use_cache": False, "num_labels": 3, "use_mamba_kernels": False, **TASKS[task].trial_settings}
    asked = {name: value for name, value in wanted.items() if hasattr(whole, name)}
    if not hasattr(whole, "pad_token_id"):  # the first configurations of transformers 5, whose models still ask for it
        asked["pad_token_id"] = IDS["pad_token_id"]
    if whole.is_encoder_decoder:
        asked["decoder_start_token_id"] = IDS["decoder_start_token_id"]  # not every family has one from the start
    return made(**{**small_settings(whole), **asked, **VARIANTS.get(kind, {})})


def sharpen(model: PreTrainedModel, gain: float) -> None:
    """Weights drawn anew, so that attention is far from even and every token moves the answer."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * gain / parameter.shape[-1] ** 0.5)
            else:
                parameter.copy_(parameter.nan_to_num().clamp(-10, 10) + noise * MOVED)
