"""In-place operations: the ordinary operation runs under the rules, then its result is written."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tokenlight._compat.torch_internals import is_view
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.autograd_functions import absorb
from tokenlight.rules.tags import tag_followed

TAGS = ("tokenlight_gate", "tokenlight_origins", "tokenlight_example_ids")


def overwrite(call: Callable[..., Any], plain_form: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Write the result of the out-of-place function into x; `call` calls a function under the rules."""
    if x.requires_grad and x.is_leaf:
        raise UnsupportedModelError(
            "the model writes into a recorded tensor (head outputs, states), which this method cannot follow; use a "
            "method that follows the whole pass, such as attn_lrp"
        )
    before = call(Tensor.clone, x)  # a copy, because rules may keep their arguments
    result = call(plain_form, before, *args, **kwargs)
    if x.requires_grad and not result.requires_grad:
        become_constant(x, result, before)
    else:
        x.copy_(result)
    tag_followed([x])
    for tag in TAGS:
        if hasattr(result, tag):
            setattr(x, tag, getattr(result, tag))
        elif hasattr(x, tag):
            delattr(x, tag)
    return x


def become_constant(x: Tensor, result: Tensor, before: Tensor) -> None:
    """Overwrite a signal with a constant."""
    if not is_view(x):
        x.detach_()
        x.copy_(result)
    else:  # a view of a signal: the constant absorbs the relevance of these elements
        everywhere = torch.ones((), dtype=torch.bool, device=x.device)
        x.copy_(absorb(torch.where(everywhere, result.to(x), before), result, "bias"))
