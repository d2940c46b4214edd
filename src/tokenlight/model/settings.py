"""Numbers of a configuration: families spell them differently, and some have one for each layer."""

from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel


def largest(config: PreTrainedConfig, *names: str) -> int:
    """The largest number under the first of these names that has any; 0 where none does."""
    for name in names:
        if found := max(numbers_in(config, name), default=0):
            return found
    return 0


def numbers_in(config: PreTrainedConfig, name: str) -> Iterator[int]:
    """One, or one for each layer."""
    try:
        found: Any = getattr(config, name, None)
    except RuntimeError:  # transformers: "a per-layer attribute", which the whole model has no answer for
        found = [getattr(layer, name, None) for layer in config.per_layer_config]
    for number in found if isinstance(found, list | tuple) else [found]:
        if isinstance(number, int):
            yield number


def has_windows(model: PreTrainedModel) -> bool:
    """Whether a token attends to the tokens near it alone, in any layer."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list | tuple) and set(kinds) <= {"full_attention"}:
        return False
    return largest(config, "sliding_window", "attention_window", "window_size", "attention_chunk_size") > 0


def padding_id(model: PreTrainedModel) -> int | None:
    """None: the model knows none, or has no embedding for it."""
    found = getattr(model.config.get_text_config(), "pad_token_id", None)
    return None if found is not None and found >= embedding_rows(model) else found


def embedding_rows(model: PreTrainedModel) -> int:
    """How many token ids the model has an embedding for: a tokenizer may have more, and so may the configuration."""
    try:
        rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # refused elsewhere, where embeddings are needed
        rows = None
    return rows if isinstance(rows, int) else model.config.get_text_config().vocab_size


def layers_and_heads(model: PreTrainedModel) -> tuple[int, int]:
    """No heads: a model without attention."""
    config = model.config.get_text_config()
    return largest(config, "num_hidden_layers"), largest(config, "num_attention_heads")
