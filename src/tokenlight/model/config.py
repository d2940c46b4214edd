"""A model's sizes, input keywords, positions and pooling, read from configurations that name them differently."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.text.batch import Batch


def largest(config: PreTrainedConfig, *names: str) -> int:
    """The largest number under the first of these names that has one; 0 where none does."""
    for name in names:
        if number := max(numbers_in(config, name), default=0):
            return number
    return 0


def numbers_in(config: PreTrainedConfig, name: str) -> Iterator[int]:
    """The integers of a setting that is one number or one for each layer."""
    try:
        value: Any = getattr(config, name, None)
    except RuntimeError:  # transformers: "a per-layer attribute", which the model's own configuration does not have
        value = [getattr(layer, name, None) for layer in config.per_layer_config]
    for number in value if isinstance(value, list | tuple) else [value]:
        if isinstance(number, int):
            yield number


def has_windows(model: PreTrainedModel) -> bool:
    """Whether any layer has windowed attention."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list | tuple) and set(kinds) <= {"full_attention"}:
        return False
    return largest(config, "sliding_window", "attention_window", "window_size", "attention_chunk_size") > 0


def padding_id(model: PreTrainedModel) -> int | None:
    """The configured padding id; None where there is none, or no embedding for it."""
    id_ = getattr(model.config.get_text_config(), "pad_token_id", None)
    return None if id_ is not None and id_ >= embedding_rows(model) else id_


def embedding_rows(model: PreTrainedModel) -> int:
    """The number of token ids that have an embedding: the tokenizer and the configuration may have more."""
    try:
        rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # refused where the embeddings are needed (`embedding_layers`)
        rows = None
    if not isinstance(rows, int):
        rows = getattr(model.config.get_text_config(), "vocab_size", None)
    if rows is None:
        raise UnsupportedModelError(f"{type(model).__name__} does not say which layer embeds its tokens")
    return rows


def layers_and_heads(model: PreTrainedModel) -> tuple[int, int]:
    """The numbers of layers and heads; 0 heads for a model without attention."""
    config = model.config.get_text_config()
    return largest(config, "num_hidden_layers"), largest(config, "num_attention_heads")


INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})  # the model inputs of a batch


def accepted_inputs(model: PreTrainedModel) -> frozenset[str]:
    """The keywords that the model's forward reads.

    Models of transformers name all of theirs. A custom forward with **kwargs may pass on inputs that it does not name:
    it gets those that one of its base classes or of its modules names.
    """
    parameters = inspect.signature(model.forward).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    named = frozenset(parameters)
    if type(model).__module__.startswith("transformers.models."):
        return named
    inside = frozenset().union(*map(named_inputs, {*type(model).__mro__, *map(type, model.modules())}))
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return named | inside
    if inspect.Parameter.VAR_POSITIONAL in kinds and (missing := inside - named):
        raise UnsupportedModelError(
            f"{type(model).__name__}.forward takes inputs by position (*args), and tokenlight passes them by name: "
            f"{', '.join(sorted(missing))} would be left out. Add **kwargs to it, or name them"
        )
    return named


@cache
def named_inputs(kind: type) -> frozenset[str]:
    """The inputs that the forward of a class names."""
    forward = vars(kind).get("forward")
    return INPUTS & set(inspect.signature(forward).parameters) if callable(forward) else frozenset()


def fix_positions(model: PreTrainedModel, batch: Batch) -> Batch:
    """Add the position ids that the model would compute, so that hiding or replacing a token moves no other.

    A batch that has positions keeps them. Most models count all tokens of a text, masked or not.
    """
    if batch.position_ids is not None:
        return batch
    padding = position_padding(model)
    if padding is not None:
        counted = batch.input_ids != padding
        return replace(batch, position_ids=counted.cumsum(1) * counted + padding)
    if counts_by_mask(model):
        return replace(batch, position_ids=(batch.attention_mask.cumsum(1) - 1).clamp_min(0))
    positions = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    return replace(batch, position_ids=positions.expand(batch.input_ids.shape))


def count_from_first(model: PreTrainedModel, batch: Batch) -> Batch:
    """Position ids that padding on the left does not shift: the first real token of a text has the first position."""
    fixed = fix_positions(model, batch)
    if position_padding(model) is not None or counts_by_mask(model) or fixed.position_ids is None:
        return fixed
    return replace(fixed, position_ids=(fixed.position_ids - batch.first[:, None]).clamp_min(0))


def counts_by_mask(model: PreTrainedModel) -> bool:
    """Whether positions count the tokens in the attention mask, as in OPT and BioGPT."""
    kinds = {type(module) for module in model.modules() if isinstance(module, nn.Embedding)}
    return any("attention_mask" in inspect.signature(kind.forward).parameters for kind in kinds)


def position_padding(model: PreTrainedModel) -> int | None:
    """The padding id of models that count positions from it, over the ids that differ from it, as RoBERTa does."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.padding_idx
    return None


def max_length(model: PreTrainedModel, tokenizer_limit: int) -> int | None:
    """The longest input in tokens, or None where it is not limited."""
    limits = [tokenizer_limit] if tokenizer_limit < 10**9 else []  # "no limit" is a huge number in transformers
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is not None and positions > 0:  # XLNet: -1 for no limit
        offset = position_padding(model)
        limits.append(positions if offset is None else positions - offset - 1)
    return min(limits, default=None)


NO_PADDING = -1  # an id that no token has


def classifies(model: PreTrainedModel) -> bool:
    """Whether the model gives one output for a whole text; `behavior_probes.py` finds where it is read."""
    return type(model).__name__.endswith("ForSequenceClassification")


def end_by_padding(model: PreTrainedModel, batch: Batch) -> Tensor:
    """[batch] the position that a classifier of transformers treats as a text's last token."""
    pad = padding_id(model)
    if pad is None:
        return torch.full_like(batch.last, batch.input_ids.shape[1] - 1)
    steps = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    return (steps * (batch.input_ids != pad)).argmax(1)  # transformers compares ids and ignores the mask
