"""Classifiers that find the end of a text by its padding."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.model.settings import padding_id
from tokenlight.text.batches import Batch

NO_PADDING = -1  # an id that no token has


def classifies(model: PreTrainedModel) -> bool:
    """One answer for a whole text; where it is read, `habits.py` finds out."""
    return type(model).__name__.endswith("ForSequenceClassification")


def end_by_padding(model: PreTrainedModel, batch: Batch) -> Tensor:
    """[batch] the token that a classifier takes for the last of a text."""
    pad = padding_id(model)
    if pad is None:
        return torch.full_like(batch.last, batch.input_ids.shape[1] - 1)
    steps = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    return (steps * (batch.input_ids != pad)).argmax(1)  # transformers looks at the ids, not at the mask
