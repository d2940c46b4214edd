"""The two attention functions, registered with transformers.

Both compute what eager attention computes, for every family: grouped-query heads, any mask. `attention` writes the
weights out, which some methods read and some rules need. `fused_attention` calls torch's fused kernels, whose memory
grows linearly with the length of a text. Both add their signals to the capture of the instrumented model in which they
run (`instrumented.py`).
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from tokenlight._compat.transformers_internals import additive_mask, bidirectional_mask, boolean_mask
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.capture import Capture
from tokenlight.rules.custom_ops import add_sinks, attend, mask_scores, mix_values, query_key
from tokenlight.rules.tags import tag_head_outputs

WRITTEN_OUT, FUSED, FUSED_HIDING = "tokenlight", "tokenlight_fused", "tokenlight_fused_hiding"
MASKED = -4000.0  # below every score, and above what models add to a score to mask a token
HARMLESS = {"position_ids", "cache_position", "position_embeddings", "token_type_ids", "mm_token_type_ids"}


class UnknownTerm(UnsupportedModelError):
    """The model adds a term to its attention that the functions of this file do not implement."""


class CannotHide(UnsupportedModelError):
    """The keys of an attention are not the tokens of the text, so no token can be hidden among them."""


class CannotFuse(Exception):
    """Attention has a term that the fused operation does not support: it must be written out."""


def attention(
    module: nn.Module,
    query: Tensor,  # [batch, head, query, dim]
    key: Tensor,  # [batch, key/value head, key, dim]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,  # [head] attention sinks
    **kwargs: Any,  # transformers owns this signature
) -> tuple[Tensor, Tensor]:
    """Softmax attention, written out in operations that relevance rules can replace."""
    capture, key, value = prepare(module, query, key, value, kwargs)
    head_outputs, weights = attend_written_out(capture, query, key, value, attention_mask, scaling, softcap, s_aux)
    return finish(capture, head_outputs), weights


def attend_written_out(
    capture: Capture,
    query: Tensor,
    key: Tensor,  # [batch, head, key, dim]
    value: Tensor,
    mask: Tensor | None,  # added to the scores: 0, or the least number of the dtype where a token is masked
    scaling: float | None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    bias: Tensor | None = None,  # a mask with other numbers in it, such as distances, which absorb relevance
) -> tuple[Tensor, Tensor]:
    """Head outputs [batch, head, query, dim] and weights [batch, head, query, key], which are recorded."""
    scores = query_key(query, key) * scale_of(query, scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores if bias is None else scores + bias
    mask = hide_keys(capture, mask, scores)
    scores = suppress_keys(capture, scores, mask)
    if mask is not None:
        scores = mask_scores(scores, mask)
    if s_aux is not None:
        scores = add_sinks(scores, s_aux)
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    if s_aux is not None:
        weights = weights[..., :-1]  # without the sink, the weights of a query add up to less than 1
    weights = capture_weights(capture, weights.to(value.dtype))
    return mix_values(weights, value), weights


def fused_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Softmax attention in one operation, which has rules of its own.

    Without a mask, the module's `is_causal` decides whether a token may attend to later ones.
    """
    depends_on_input = attention_mask is not None and attention_mask.requires_grad
    if softcap is not None or s_aux is not None or depends_on_input:
        raise CannotFuse
    capture, key, value = prepare(module, query, key, value, kwargs)
    capture.count_attention()
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask = None if attention_mask is None else without_repeated_queries(attention_mask).to(query.dtype)
    causal = causal and mask is None and query.shape[2] > 1
    if capture.keys.hidden is not None:
        mask = hide_keys(capture, causal_mask(query, key) if causal else mask, query)
        causal = False
    return finish(capture, attend(query, key, value, mask, scale_of(query, scaling), causal)), None


def prepare(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any]
) -> tuple[Capture, Tensor, Tensor]:
    """The capture; keys and values repeated for every query head; refuses terms and keys that are not supported."""
    refuse_unknown_terms(module, kwargs)
    capture = module.__dict__["tokenlight"].capture
    refuse_other_keys(module, capture, query.shape[2], key.shape[2])
    key, value = repeat_for_heads(query, key, value)
    return capture, key, capture.add("values", value)


def repeat_for_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [batch, head, key, dim] of every query head (grouped-query attention)."""
    groups = query.shape[1] // key.shape[1]
    return (key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)) if groups > 1 else (key, value)


def hide_keys(capture: Capture, mask: Tensor | None, like: Tensor) -> Tensor | None:
    """The additive mask [batch, 1, query, key], with the batch's hidden tokens masked as keys."""
    if capture.keys.hidden is None:
        return mask
    mask = like.new_zeros(1, 1, 1, capture.keys.hidden.shape[1]) if mask is None else mask
    return unmask_self_of_fully_masked_queries(fill_hidden(capture.keys.hidden, mask))


def unmask_self_of_fully_masked_queries(mask: Tensor) -> Tensor:
    """The additive mask [batch, 1, query, key], where a query whose keys are all masked attends to itself.

    In a window or a chunk, all keys of a hidden token may be hidden. Its attention would be uniform over all keys of
    the batch, padding and later tokens included. Its own state is in the residual stream anyway.
    """
    if mask.shape[-2] != mask.shape[-1]:  # the same keys for all queries
        return mask
    blind = (mask <= MASKED).all(-1)
    mask.diagonal(dim1=-2, dim2=-1).masked_fill_(blind, 0.0)
    return mask


def fill_hidden(hidden: Tensor, scores: Tensor) -> Tensor:
    """Scores or additive mask, [batch, head, query, key] or [batch x head, query, key], with hidden keys masked."""
    keys = align_with_keys(hidden, scores)
    return scores.masked_fill(keys, torch.finfo(scores.dtype).min)


def suppress_keys(capture: Capture, scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scores [batch, head, query, key] or [batch x head, query, key], multiplied with the batch's `key_factors`.

    Masked positions stay as they are: those in `mask`, which is added later, and scores that are masked already.
    """
    if capture.keys.factors is None:
        return scores
    factors = align_with_keys(capture.keys.factors, scores).to(scores.dtype)
    seen = scores > MASKED if mask is None else (scores > MASKED) & (mask > MASKED)
    if capture.keys.shift_scores:
        least = scores.masked_fill(~seen, torch.inf).amin(-1, keepdim=True)
        scores = torch.where(seen, scores - least, scores)
    return torch.where(seen, scores * factors, scores)


def align_with_keys(values: Tensor, scores: Tensor) -> Tensor:
    """Values of tokens [batch, token], shaped to broadcast over the keys of these scores."""
    if scores.shape[-1] != values.shape[1]:
        raise CannotHide(f"attention to {scores.shape[-1]} keys in a text of {values.shape[1]} tokens")
    if scores.ndim == 3:
        values = values.repeat_interleave(len(scores) // len(values), 0)
    return values.to(scores.device)[(slice(None), *(None,) * (scores.ndim - 2))]


def causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """The additive causal mask [1, 1, query, key]."""
    later = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).triu(1)
    return query.new_zeros(1, 1, *later.shape).masked_fill_(later, torch.finfo(query.dtype).min)


def capture_weights(capture: Capture, weights: Tensor) -> Tensor:
    """Capture attention weights [batch, head, query, key], and count the attention call."""
    capture.count_attention()
    return capture.add("attention", weights)


def capture_head_outputs(capture: Capture, head_outputs: Tensor) -> Tensor:
    """Capture the heads' outputs [batch, head, query, dim], and apply the head gates."""
    head_outputs = tag_head_outputs(capture.add("context", head_outputs))
    if capture.spec.gates is not None:
        head_outputs = capture.spec.gates(head_outputs, layer=capture.block)
    if capture.spec.head_outputs is not None:
        head_outputs = capture.spec.head_outputs(head_outputs, capture.block)
    return capture.add("gated", head_outputs)


def finish(capture: Capture, head_outputs: Tensor) -> Tensor:
    """Captured and gated head outputs in the order that transformers expects: [batch, query, head, dim]."""
    return capture_head_outputs(capture, head_outputs).transpose(1, 2).contiguous()


def scale_of(query: Tensor, scaling: float | None) -> float:
    return query.shape[-1] ** -0.5 if scaling is None else scaling


def refuse_unknown_terms(module: nn.Module, kwargs: dict[str, Any]) -> None:
    """Refuse tensors that are not implemented here, such as position biases: ignoring them would change the result."""
    for name, term in kwargs.items():
        if isinstance(term, Tensor) and name not in HARMLESS:
            raise UnknownTerm(
                f"{type(module).__name__} adds the term '{name}' to its attention, which tokenlight does not know"
            )


def refuse_other_keys(module: nn.Module, capture: Capture, queries: int, keys: int) -> None:
    """Refuse maps over keys that are not tokens, such as compressed or learned keys: they give no scores of tokens."""
    if queries != keys and capture.spec.keep & {"attention", "values"}:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends to {keys} keys in a text of {queries} tokens: its maps are not "
            "[token, token], which this method reads. Choose a method that reads none, such as gradient_x_input or "
            "attn_lrp"
        )


def fused_mask(
    *,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    dtype: torch.dtype = torch.float32,
    hides: bool = False,
    **settings: Any,
) -> Tensor | None:
    """The additive mask of fused attention, or None where the causal mask alone is enough, which takes no memory.

    Padding on the right comes after all tokens of a text: a causal model needs no mask for it, unless the batch `hides`
    a last token that is read. In an encoder without windows the mask is the same for all queries, and is stored once.
    """
    if attention_mask is not None and allow_is_causal_skip and not hides:
        only_on_the_right = not (attention_mask.long().diff(dim=-1) > 0).any()
        attention_mask = None if only_on_the_right else attention_mask
    if settings.get("mask_function") is bidirectional_mask:
        settings["mask_function"] = lambda batch, head, query, key: key >= 0
    mask = boolean_mask(attention_mask=attention_mask, allow_is_causal_skip=allow_is_causal_skip, **settings)
    if mask is None:
        return None
    shape, mask = mask.shape, without_repeated_queries(mask)
    # Finite, as in transformers: a query whose keys are all masked (padding) attends uniformly instead of giving NaN.
    hidden = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
    return hidden.expand(shape)


def without_repeated_queries(mask: Tensor) -> Tensor:
    """[batch, 1, query, key], or [batch, 1, 1, key] where the mask is expanded along the queries (stride 0)."""
    return mask[:, :, :1] if mask.stride(-2) == 0 else mask


# Both are needed: without the mask function, there would be no causal mask and no padding mask.
AttentionInterface.register(WRITTEN_OUT, attention)
AttentionMaskInterface.register(WRITTEN_OUT, additive_mask)
AttentionInterface.register(FUSED, fused_attention)
AttentionMaskInterface.register(FUSED, fused_mask)
AttentionInterface.register(FUSED_HIDING, fused_attention)
AttentionMaskInterface.register(FUSED_HIDING, partial(fused_mask, hides=True))
