"""A model whose embeddings are a little off: how fast scores change with them says how much rounding may move them"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.model.copying import private_copy


def nudge(precision: torch.dtype) -> float:
    """Much more than rounding, and too little to bend anything."""
    return torch.finfo(precision).eps ** 0.5


def nudged(model: PreTrainedModel) -> PreTrainedModel:
    """A copy around the same weights, whose embeddings are a little off."""
    copy = private_copy(model)
    part = nudge(model.dtype)

    def change(module: Any, args: Any, embeddings: Tensor) -> Tensor:
        generator = torch.Generator(embeddings.device).manual_seed(0)
        # The same for every row: who compares rows must find no other difference.
        noise = torch.randn(embeddings.shape[1:], generator=generator, device=embeddings.device)
        return embeddings * (1 + part * noise.to(embeddings))

    copy.get_input_embeddings().register_forward_hook(change)
    return copy
