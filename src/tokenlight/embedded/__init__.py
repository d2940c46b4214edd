"""The sentiment model that ships inside the package, and the small format its weights are stored in."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from tokenlight.common.errors import RefusedValue
from tokenlight.common.samples import EMBEDDED

FILES = Path(__file__).parent / "files"
SCALE = ".row_scale"  # the int8 matrix `name` has its scales under `name + SCALE`


def load_embedded(folder: Path = FILES) -> tuple[BertForSequenceClassification, BertTokenizer]:
    """The packaged classifier (labels negative, positive) and its tokenizer, from files alone."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"the embedded model's file {folder / name} is missing: reinstall tokenlight")
    weights = folder / "model.safetensors"
    try:
        config = BertConfig.from_pretrained(folder)
        config.name_or_path = EMBEDDED  # instead of the folder of the installation
        model = BertForSequenceClassification(config)
        model.load_state_dict(widen(load_file(weights)))
    except (SafetensorError, RuntimeError, KeyError) as error:
        raise RefusedValue(f"the embedded model's file {weights} is damaged ({error}): reinstall tokenlight") from error
    return model.eval(), BertTokenizer.from_pretrained(folder)


def compress(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Quantize matrices to int8 with one float scale per row; other tensors are unchanged."""
    stored = {}
    for name, weight in weights.items():
        if weight.ndim != 2:
            stored[name] = weight.clone()
            continue
        scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127  # [row, 1]
        stored[name] = (weight / scale).round().to(torch.int8)
        stored[name + SCALE] = scale
    return stored


def widen(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Dequantize the tensors of `compress`."""
    return {
        name: weight * stored[name + SCALE] if weight.dtype == torch.int8 else weight
        for name, weight in stored.items()
        if not name.endswith(SCALE)
    }
