"""Hides tokens of a text: no token attends to them, and nothing else changes.

A zero in attention_mask would do more in some families. BLOOM and Falcon count the distances of ALiBi by the mask, so
all later tokens move; Llama 4 takes hidden tokens at the beginning for padding and moves its chunks of attention;
DeBERTa, ESM and XLM leave out what a hidden token itself reads. So the model gets a mask with the hidden tokens in it,
and the attention functions skip them. Where tokens meet in other places than attention (a recurrence, a convolution, a
mean over tokens, an index that selects keys), only the mask hides them there, and it is used after all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tokenlight.model.attention import CannotHide
from tokenlight.model.behavior_probes import (
    LONG,
    SHORT,
    answers_in,
    bypass,
    for_each_token,
    plain_ids,
    precision_of,
    relative,
)
from tokenlight.model.capture import Capture
from tokenlight.model.config import padding_id
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.text.batch import Batch

HIDDEN = 2  # the token that is hidden in the probes
IN_ATTENTION: WeakKeyDictionary[InstrumentedModel, bool] = WeakKeyDictionary()
SEES_HIDDEN: WeakKeyDictionary[InstrumentedModel, bool] = WeakKeyDictionary()


def hide_tokens(instrumented: InstrumentedModel, batch: Batch, gone: Tensor) -> Batch:
    """The batch with these tokens [batch, token] hidden, in the way that is exact for this model."""
    gone = gone & batch.attention_mask.bool()
    return hidden_by(batch, gone, in_attention=hides_in_attention(instrumented))


def hidden_by(batch: Batch, gone: Tensor, in_attention: bool) -> Batch:
    """The batch with these tokens hidden by the attention functions, or else by attention_mask."""
    seen = batch.attention_mask.masked_fill(gone, 0)
    return replace(batch, attention_mask=seen, hides=True, hidden_in_attention=gone if in_attention else None)


def hides_in_attention(instrumented: InstrumentedModel) -> bool:
    """Whether tokens have no effect on others once the attention functions skip them."""
    if instrumented not in IN_ATTENTION:
        selection = KeySelection(LONG)
        try:
            with selection:
                sees = tells_others(instrumented, in_attention=True)
        except CannotHide:
            sees = True
        IN_ATTENTION[instrumented] = not sees and not selection.found
    return IN_ATTENTION[instrumented]


def sees_hidden(instrumented: InstrumentedModel) -> bool:
    """Whether a hidden token still has an effect on others: some recurrences never look at the mask."""
    if instrumented not in SEES_HIDDEN:
        SEES_HIDDEN[instrumented] = not hides_in_attention(instrumented) and tells_others(
            instrumented, in_attention=False
        )
    return SEES_HIDDEN[instrumented]


def tells_others(instrumented: InstrumentedModel, in_attention: bool) -> bool:
    """Of two texts that differ in a hidden token alone, the answers must be equal, but for those at that token."""
    with torch.inference_mode(False), torch.autocast(instrumented.device.type, enabled=False):
        *text, other = plain_ids(instrumented.model, LONG + 1)
        ids = torch.tensor([text, text], device=instrumented.device)
        ids[1, HIDDEN] = other
        gone = torch.zeros_like(ids, dtype=torch.bool)
        gone[:, HIDDEN] = True
        output = instrumented.run_uncounted(hidden_by(Batch(ids, torch.ones_like(ids)), gone, in_attention), Capture())
    answers = {
        name: elsewhere(part) if for_each_token(instrumented, part) else part for name, part in answers_in(output)
    }
    return bypass(answers) > 0


def elsewhere(answers: Tensor) -> Tensor:
    """Without the answers at the hidden token."""
    return torch.cat([answers[:, :HIDDEN], answers[:, HIDDEN + 1 :]], 1)


class KeySelection(TorchFunctionMode):
    """Notes whether a model selects some of the tokens by a score, as sparse attention does with its keys.

    Texts of a few tokens are shorter than what is selected, so the answers alone would not show it.
    """

    def __init__(self, tokens: int):
        super().__init__()
        self.tokens: int = tokens
        self.found: bool = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in (torch.topk, Tensor.topk) and args and args[0].ndim > 2 and args[0].shape[-1] == self.tokens:
            self.found = True
        return func(*args, **(kwargs or {}))


def reads_padding_at_hidden(instrumented: InstrumentedModel) -> bool:
    """Whether what is read at a hidden token depends on padding: where it may look nowhere, it looks everywhere.

    Each row hides one of its tokens, alone and beside padding. In a decoder the first token is such a one wherever it
    is hidden, but nobody reads there: its answers are left out.
    """
    with torch.inference_mode(False), torch.autocast(instrumented.device.type, enabled=False):
        ids = torch.tensor([plain_ids(instrumented.model, LONG)] * SHORT, device=instrumented.device)
        ids[:, SHORT:] = max(0, padding_id(instrumented.model) or 0)
        mask = torch.ones_like(ids)
        mask[:, SHORT:] = 0
        gone = torch.eye(SHORT, LONG, dtype=torch.bool, device=instrumented.device)
        whole = hide_tokens(instrumented, Batch(ids, mask), gone)
        widths = [whole.map(lambda tensor, width=width: tensor[:, :width]) for width in (SHORT, LONG)]
        alone, beside = (dict(answers_in(instrumented.run_uncounted(one, Capture()), SHORT)) for one in widths)
    pairs = [(one, beside[name]) for name, one in alone.items() if name in beside]
    cut = [(one[:, 1:], two[:, 1:SHORT]) if for_each_token(instrumented, two) else (one, two) for one, two in pairs]
    return max((relative(one, two) for one, two in cut), default=0.0) > precision_of(alone, SHORT) ** 0.5
