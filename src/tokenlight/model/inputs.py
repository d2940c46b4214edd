"""What goes into a model: the keywords it takes, how it counts positions, how long a text may be."""

import inspect
from dataclasses import replace

from torch import nn
from transformers import PreTrainedModel

from tokenlight.text.batches import Batch


def accepted_inputs(model: PreTrainedModel) -> frozenset[str]:
    return frozenset(inspect.signature(model.forward).parameters)


def fix_positions(model: PreTrainedModel, batch: Batch) -> Batch:
    """Positions written out as the model would count them, so that hiding or replacing a token moves no other."""
    padding = position_padding(model)
    if padding is None:
        return replace(batch, position_ids=(batch.attention_mask.cumsum(1) - 1).clamp_min(0))
    counted = batch.input_ids != padding
    return replace(batch, position_ids=counted.cumsum(1) * counted + padding)


def position_padding(model: PreTrainedModel) -> int | None:
    """RoBERTa and its kin count the ids that are not this one, from the number after it."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.padding_idx
    return None


def max_length(model: PreTrainedModel, tokenizer_limit: int) -> int | None:
    """The longest input in tokens, or None where nothing limits it."""
    limits = [tokenizer_limit] if tokenizer_limit < 10**9 else []  # "no limit" is a huge number in transformers
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is not None:
        offset = position_padding(model)
        limits.append(positions if offset is None else positions - offset - 1)
    return min(limits, default=None)
