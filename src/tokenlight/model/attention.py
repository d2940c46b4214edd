"""The two attention functions, registered with transformers.

Both compute what eager attention computes, for every family: grouped-query heads, any mask. The one writes the weights
out, which some methods read and some rules need. The other leaves them to torch's fused kernels, whose memory grows
with the length of a text, not with its square. What both see goes to the capture of the instrumented model they run
in (`twin.py`).
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from tokenlight._compat.transformers_internals import additive_mask, boolean_mask, looks_everywhere
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.capture import Capture
from tokenlight.rules.custom_ops import add_sinks, attend, mask_scores, mix_values, query_key
from tokenlight.rules.tags import mark_heads

WRITTEN_OUT, FUSED, FUSED_HIDING = "tokenlight", "tokenlight_fused", "tokenlight_fused_hiding"
MASKED = -4000.0  # no score is as low; what models add to hide a token is lower, or far lower
HARMLESS = {"position_ids", "cache_position", "position_embeddings", "token_type_ids", "mm_token_type_ids"}


class UnknownTerm(UnsupportedModelError):
    """The model adds something to its attention that the functions here do not know."""


class CannotHide(UnsupportedModelError):
    """Keys are no tokens, so tokens cannot be hidden among them."""


class CannotFuse(Exception):
    """Attention has a term that the fused operation does not know: it must be written out."""


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
    context, weights = attend_written_out(capture, query, key, value, attention_mask, scaling, softcap, s_aux)
    return finish(capture, context), weights


def attend_written_out(
    capture: Capture,
    query: Tensor,
    key: Tensor,  # [batch, head, key, dim]
    value: Tensor,
    mask: Tensor | None,  # added to the scores: 0, or the least number where a token may not look
    scaling: float | None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    bias: Tensor | None = None,  # a mask with other numbers in it, such as distances, which take shares of relevance
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
        weights = weights[..., :-1]  # the rest goes nowhere: a row adds up to less than 1
    weights = note_weights(capture, weights.to(value.dtype))
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
    """The same in one operation, which has rules of its own. Without a mask, a module says itself if it looks ahead."""
    computed = attention_mask is not None and attention_mask.requires_grad  # from the input: a signal beside the scores
    if softcap is not None or s_aux is not None or computed:
        raise CannotFuse
    capture, key, value = prepare(module, query, key, value, kwargs)
    capture.count_attention()
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask = None if attention_mask is None else made_once(attention_mask).to(query.dtype)
    causal = causal and mask is None and query.shape[2] > 1
    if capture.hidden is not None:
        mask = hide_keys(capture, causal_mask(query, key) if causal else mask, query)
        causal = False
    return finish(capture, attend(query, key, value, mask, scale_of(query, scaling), causal)), None


def prepare(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, others: dict[str, Any]
) -> tuple[Capture, Tensor, Tensor]:
    """The capture, keys and values, one for every head."""
    refuse_unknown_terms(module, others)
    capture = module.__dict__["tokenlight"].capture
    refuse_other_keys(module, capture, query.shape[2], key.shape[2])
    key, value = one_per_head(query, key, value)
    return capture, key, capture.add("values", value)


def one_per_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [batch, head, key, dim], where several query heads share them."""
    groups = query.shape[1] // key.shape[1]
    return (key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)) if groups > 1 else (key, value)


def hide_keys(capture: Capture, mask: Tensor | None, like: Tensor) -> Tensor | None:
    """The mask [batch, 1, query, key] that is added to scores, with the hidden tokens of the capture among the keys."""
    if capture.hidden is None:
        return mask
    mask = like.new_zeros(1, 1, 1, capture.hidden.shape[1]) if mask is None else mask
    return fill_hidden(capture.hidden, mask)


def fill_hidden(hidden: Tensor, scores: Tensor) -> Tensor:
    """Scores, or a mask of them, [batch, head, query, key] or [batch x head, query, key], least at hidden tokens."""
    keys = at_keys(hidden, scores)
    return scores.masked_fill(keys, torch.finfo(scores.dtype).min)


def suppress_keys(capture: Capture, scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scores [batch, head, query, key] or [batch x head, query, key], times the factors of the capture's keys.

    `mask` will be added to them; where it is in them already, numbers as low as its own are left as they are.
    """
    if capture.key_factors is None:
        return scores
    factors = at_keys(capture.key_factors, scores).to(scores.dtype)
    seen = scores > MASKED if mask is None else (scores > MASKED) & (mask > MASKED)
    if capture.shift_scores:
        least = scores.masked_fill(~seen, torch.inf).amin(-1, keepdim=True)
        scores = torch.where(seen, scores - least, scores)
    return torch.where(seen, scores * factors, scores)


def at_keys(of_tokens: Tensor, scores: Tensor) -> Tensor:
    """What is known of each token [batch, token], of the keys of these scores."""
    if scores.shape[-1] != of_tokens.shape[1]:
        raise CannotHide(f"attention to {scores.shape[-1]} keys in a text of {of_tokens.shape[1]} tokens")
    if scores.ndim == 3:
        of_tokens = of_tokens.repeat_interleave(len(scores) // len(of_tokens), 0)
    return of_tokens.to(scores.device)[(slice(None), *(None,) * (scores.ndim - 2))]


def causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """[1, 1, query, key]: what is added to scores, so that tokens do not look ahead."""
    ahead = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).triu(1)
    return query.new_zeros(1, 1, *ahead.shape).masked_fill_(ahead, torch.finfo(query.dtype).min)


def note_weights(capture: Capture, weights: Tensor) -> Tensor:
    """[batch, head, query, key]"""
    capture.count_attention()
    return capture.add("attention", weights)


def note_context(capture: Capture, context: Tensor) -> Tensor:
    """The heads' outputs [batch, head, query, dim], noted and gated."""
    context = mark_heads(capture.add("context", context))
    if capture.gates is not None:
        context = capture.gates(context, layer=capture.block)
    return capture.add("gated", context)


def finish(capture: Capture, context: Tensor) -> Tensor:
    """The same, as blocks want them: [batch, query, head, dim]."""
    return note_context(capture, context).transpose(1, 2).contiguous()


def scale_of(query: Tensor, scaling: float | None) -> float:
    return query.shape[-1] ** -0.5 if scaling is None else scaling


def refuse_unknown_terms(module: nn.Module, kwargs: dict[str, Any]) -> None:
    """A tensor we do not know (attention sinks, position biases) would make the result silently wrong."""
    for name, term in kwargs.items():
        if isinstance(term, Tensor) and name not in HARMLESS:
            raise UnknownTerm(
                f"{type(module).__name__} adds the term '{name}' to its attention, which tokenlight does not know"
            )


def refuse_other_keys(module: nn.Module, capture: Capture, queries: int, keys: int) -> None:
    """Keys that are no tokens (several compressed into one, learned ones): a map of them says nothing by token."""
    if queries != keys and capture.keep & {"attention", "values"}:
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
    """What is added to the scores; None where nothing is hidden but what lies ahead, which takes no memory.

    Behind a text, padding lies ahead of all its tokens: a causal model needs no mask for it, unless it `hides` a last
    token that is read. Where tokens look at everything but padding, the mask is the same for all of them, and is made
    for one.
    """
    if attention_mask is not None and allow_is_causal_skip and not hides:
        only_behind = not (attention_mask.long().diff(dim=-1) > 0).any()
        attention_mask = None if only_behind else attention_mask
    if settings.get("mask_function") is looks_everywhere:
        settings["mask_function"] = lambda batch, head, query, key: key >= 0
    mask = boolean_mask(attention_mask=attention_mask, allow_is_causal_skip=allow_is_causal_skip, **settings)
    if mask is None:
        return None
    shape, mask = mask.shape, made_once(mask)
    # Finite, as transformers' own: a token that may look nowhere (padding) looks everywhere, and nothing becomes NaN.
    hidden = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
    return hidden.expand(shape)


def made_once(mask: Tensor) -> Tensor:
    """[batch, 1, query, key], or [batch, 1, 1, key] where all queries share one row in memory."""
    return mask[:, :, :1] if mask.stride(-2) == 0 else mask


# Both are needed: without the mask function, decoders would look ahead and padding would be attended to.
AttentionInterface.register(WRITTEN_OUT, attention)
AttentionMaskInterface.register(WRITTEN_OUT, additive_mask)
AttentionInterface.register(FUSED, fused_attention)
AttentionMaskInterface.register(FUSED, fused_mask)
AttentionInterface.register(FUSED_HIDING, fused_attention)
AttentionMaskInterface.register(FUSED_HIDING, partial(fused_mask, hides=True))
