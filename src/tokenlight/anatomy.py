"""The few facts about a model that transformers does not tell."""

import inspect
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from tokenlight.batch import Batch
from tokenlight.errors import UnsupportedModelError

# The end of a model class's name tells its head. Tasks are named as in transformers' pipelines.
TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
}


def task_of_class(name: str) -> str:
    """'BertForMaskedLM' -> 'fill-mask'."""
    for ending, task in TASKS.items():
        if name.endswith(ending):
            return task
    raise UnsupportedModelError(
        f"{name} has no head that tokenlight can explain; load one of the classes *{', *'.join(TASKS)}"
    )


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The Transformer blocks in order; every family derives them from GradientCheckpointingLayer."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def accepts(model: PreTrainedModel, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


def pools_last_token(model: PreTrainedModel) -> bool:
    """Decoder classifiers read the last token through a layer called `score`; encoders read the first."""
    return isinstance(getattr(model, "score", None), nn.Linear)


def pooled_position(model: PreTrainedModel, batch: Batch) -> Tensor:
    """[batch] the token whose state the classification head reads."""
    if not pools_last_token(model):
        return torch.zeros_like(batch.last)
    pad = model.config.get_text_config().pad_token_id
    if pad is None:
        return torch.full_like(batch.last, batch.input_ids.shape[1] - 1)
    steps = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    return (steps * (batch.input_ids != pad)).argmax(1)  # transformers looks at the ids, not at the mask


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
