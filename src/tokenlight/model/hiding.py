"""Hiding of tokens: no token attends to them, and nothing else changes.

A zero in attention_mask has further effects in some families. BLOOM and Falcon compute the distances of ALiBi from the
mask, so the positions of all later tokens change; Llama 4 treats hidden tokens at the beginning as padding and shifts
its chunks of attention; DeBERTa, ESM and XLM also mask the hidden token as a query. So the attention_mask that the
model gets is 1 at hidden tokens, and the attention functions skip them as keys. Where information flows between tokens
outside of attention (a recurrence, a convolution, a mean over tokens, an index that selects keys), only attention_mask
can hide them, so there it is used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tokenlight.model.attention import CannotHide
from tokenlight.model.behavior_probes import (
    LONG,
    SHORT,
    difference_between_texts,
    has_token_axis,
    output_tensors,
    plain_ids,
    precision_of,
    relative_difference,
)
from tokenlight.model.capture import Capture
from tokenlight.model.config import padding_id
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.model_facts import once_per_model
from tokenlight.model.precision import without_caller_modes
from tokenlight.text.batch import Batch

HIDDEN = 2  # index of the token that the probes hide


def hide_tokens(instrumented: InstrumentedModel, batch: Batch, removed: Tensor) -> Batch:
    """The batch with these tokens [batch, token] hidden, by the attention functions if that is exact for this model."""
    removed = removed & batch.attention_mask.bool()
    return hidden_by(batch, removed, in_attention=hides_in_attention(instrumented))


def hidden_by(batch: Batch, removed: Tensor, in_attention: bool) -> Batch:
    """The batch with these tokens hidden by the attention functions, or else by attention_mask."""
    attention_mask = batch.attention_mask.masked_fill(removed, 0)
    return replace(
        batch, attention_mask=attention_mask, hides=True, hidden_in_attention=removed if in_attention else None
    )


@once_per_model
def hides_in_attention(instrumented: InstrumentedModel) -> bool:
    """Whether a token has no effect on others once the attention functions skip it as a key."""
    selection = KeySelection(LONG)
    try:
        with selection:
            has_effect = affects_others(instrumented, in_attention=True)
    except CannotHide:
        has_effect = True
    return not has_effect and not selection.selects_tokens


@once_per_model
def hidden_tokens_affect_others(instrumented: InstrumentedModel) -> bool:
    """Whether a hidden token still has an effect on others: some recurrences ignore the mask."""
    return not hides_in_attention(instrumented) and affects_others(instrumented, in_attention=False)


def affects_others(instrumented: InstrumentedModel, in_attention: bool) -> bool:
    """Whether two texts that differ only in a hidden token have different outputs at other tokens."""
    with without_caller_modes(instrumented.device):
        *text, another_id = plain_ids(instrumented.model, LONG + 1)
        ids = torch.tensor([text, text], device=instrumented.device)
        ids[1, HIDDEN] = another_id
        removed = torch.zeros_like(ids, dtype=torch.bool)
        removed[:, HIDDEN] = True
        output = instrumented.run_uncounted(
            hidden_by(Batch(ids, torch.ones_like(ids)), removed, in_attention), Capture()
        )
    outputs = {
        name: without_hidden_token(tensor) if has_token_axis(instrumented, tensor) else tensor
        for name, tensor in output_tensors(output)
    }
    return difference_between_texts(outputs) > 0


@once_per_model
def shifts_scores_with_length(instrumented: InstrumentedModel) -> bool:
    """Whether attention scores hold a constant that depends on the length of the batch, such as ALiBi in MPT.

    The softmax ignores a constant that all keys of a query share; factors of scores do not.
    """
    with without_caller_modes(instrumented.device):
        ids = torch.tensor([plain_ids(instrumented.model, LONG)] * 2, device=instrumented.device)
        ids[:, SHORT:] = max(0, padding_id(instrumented.model) or 0)
        mask, factors = torch.ones_like(ids), torch.ones(ids.shape, device=ids.device)
        mask[:, SHORT:] = 0
        factors[:, HIDDEN] = 0.5
        whole = Batch(ids, mask, key_factors=factors)
        batches = [whole.map(lambda tensor, width=width: tensor[:, :width]) for width in (SHORT, LONG)]
        unpadded, padded = (instrumented.run_uncounted(batch, Capture()) for batch in batches)
    return largest_difference_of_real_tokens(instrumented, unpadded, padded) > (precision_of(unpadded) ** 0.5)


def largest_difference_of_real_tokens(instrumented: InstrumentedModel, unpadded: Any, padded: Any) -> float:
    """The largest relative difference between the outputs for texts of SHORT tokens, unpadded and padded to LONG."""
    others = dict(output_tensors(padded))
    differences = [
        relative_difference(
            output, others[name][:, :SHORT] if has_token_axis(instrumented, others[name]) else others[name]
        )
        for name, output in output_tensors(unpadded)
        if name in others
    ]
    return max(differences, default=0.0)


def without_hidden_token(output: Tensor) -> Tensor:
    """Outputs [batch, token, ...] of all tokens but the hidden one."""
    return torch.cat([output[:, :HIDDEN], output[:, HIDDEN + 1 :]], 1)


class KeySelection(TorchFunctionMode):
    """Detects whether a model selects tokens by a top-k of scores, as sparse attention does with its keys.

    Texts of a few tokens are shorter than k, so their outputs do not reveal it.
    """

    def __init__(self, tokens: int):
        super().__init__()
        self.tokens: int = tokens
        self.selects_tokens: bool = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in (torch.topk, Tensor.topk) and args and args[0].ndim > 2 and args[0].shape[-1] == self.tokens:
            self.selects_tokens = True
        return func(*args, **(kwargs or {}))


def reads_padding_at_hidden(instrumented: InstrumentedModel) -> bool:
    """Whether the output at a hidden token depends on padding: a query whose keys are all masked attends to all keys.

    Each text hides one of its tokens, without and with padding. In a decoder, the first token has no other key when it
    is hidden, but no output is read there: its outputs are left out.
    """
    with without_caller_modes(instrumented.device):
        ids = torch.tensor([plain_ids(instrumented.model, LONG)] * SHORT, device=instrumented.device)
        ids[:, SHORT:] = max(0, padding_id(instrumented.model) or 0)
        mask = torch.ones_like(ids)
        mask[:, SHORT:] = 0
        removed = torch.eye(SHORT, LONG, dtype=torch.bool, device=instrumented.device)
        hidden_batch = hide_tokens(instrumented, Batch(ids, mask), removed)
        batches = [hidden_batch.map(lambda tensor, width=width: tensor[:, :width]) for width in (SHORT, LONG)]
        unpadded, padded = (
            dict(output_tensors(instrumented.run_uncounted(batch, Capture()), SHORT)) for batch in batches
        )
    differences = [
        relative_difference(output[:, 1:], padded[name][:, 1:SHORT])
        if has_token_axis(instrumented, padded[name])
        else relative_difference(output, padded[name])
        for name, output in unpadded.items()
        if name in padded
    ]
    return max(differences, default=0.0) > precision_of(unpadded, SHORT) ** 0.5
