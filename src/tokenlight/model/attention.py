"""The one attention function. Registered with transformers, so no modelling code is copied or patched.

It computes what eager attention computes, for every family: grouped-query heads, soft-capping, any additive mask.
What it sees goes to the tape of the private model copy it runs in (see `twin.py`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.foundation.transformers_internals import additive_mask
from tokenlight.rules.points import mask_scores, mix_values, query_key

NAME = "tokenlight"
HARMLESS = {"position_ids", "cache_position", "position_embeddings", "token_type_ids", "mm_token_type_ids"}


def attention(
    module: nn.Module,
    query: Tensor,  # [batch, head, query, dim]
    key: Tensor,  # [batch, key/value head, key, dim]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,  # transformers owns this signature
) -> tuple[Tensor, Tensor]:
    """Softmax attention, written out in operations that relevance rules can replace."""
    refuse_unknown_terms(module, kwargs)
    tape = module.__dict__["tokenlight"].tape
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    value = tape.add("values", value)
    scores = query_key(query, key) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is not None:
        scores = mask_scores(scores, attention_mask)
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = tape.add("attention", weights.to(value.dtype))
    context = tape.add("context", mix_values(weights, value))
    if tape.gates is not None:
        context = tape.gates(context, layer=tape.calls["context"] - 1)
    context = tape.add("gated", context)
    return context.transpose(1, 2).contiguous(), weights


def refuse_unknown_terms(module: nn.Module, kwargs: dict[str, Any]) -> None:
    """A tensor we do not know (attention sinks, position biases) would make the result silently wrong."""
    for name, term in kwargs.items():
        if isinstance(term, Tensor) and name not in HARMLESS:
            raise UnsupportedModelError(
                f"{type(module).__name__} adds the term '{name}' to its attention, which tokenlight does not know"
            )


# Both are needed: without the mask function, decoders would look ahead and padding would be attended to.
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, additive_mask)
