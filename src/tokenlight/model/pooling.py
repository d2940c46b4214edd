"""Where a classification head reads its text."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight.text.batches import Batch

NO_PADDING = -1  # an id that no token has


def pools_last_token(model: PreTrainedModel) -> bool:
    """Decoder classifiers read the last token through a layer called `score`; encoders read the first."""
    classifies = type(model).__name__.endswith("ForSequenceClassification")
    return classifies and isinstance(getattr(model, "score", None), nn.Linear)


def needs_equal_lengths(model: PreTrainedModel) -> bool:
    """Without a padding id such a head cannot tell where a text ends."""
    return pools_last_token(model) and model.config.get_text_config().pad_token_id is None


def pooled_position(model: PreTrainedModel, batch: Batch) -> Tensor:
    """[batch] the token whose state the classification head reads."""
    if not pools_last_token(model):
        return torch.zeros_like(batch.last)
    pad = model.config.get_text_config().pad_token_id
    if pad is None:
        return torch.full_like(batch.last, batch.input_ids.shape[1] - 1)
    steps = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    return (steps * (batch.input_ids != pad)).argmax(1)  # transformers looks at the ids, not at the mask
