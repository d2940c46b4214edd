"""In-place operations: run as the ordinary operation, whose result is then written."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tokenlight._compat.torch_internals import is_view
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.autograd_functions import absorb
from tokenlight.rules.tags import mark_followed

MARKS = ("tokenlight_gate", "tokenlight_origins", "tokenlight_owners")


def overwrite(call: Callable[..., Any], plain: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Write into x what the plain form makes of it under the rules; `call` calls a function under them."""
    if x.requires_grad and x.is_leaf:
        raise UnsupportedModelError(
            "the model adds to what is recorded here (heads' outputs, states) by writing into it, where this "
            "method cannot see it; take a method that follows the whole pass, such as attn_lrp"
        )
    before = call(Tensor.clone, x)  # rules may keep what they were given, so x itself must not be it
    result = call(plain, before, *args, **kwargs)
    if x.requires_grad and not result.requires_grad:
        become_constant(x, result, before)
    else:
        x.copy_(result)
    mark_followed([x])
    for mark in MARKS:
        if hasattr(result, mark):
            setattr(x, mark, getattr(result, mark))
        elif hasattr(x, mark):
            delattr(x, mark)
    return x


def become_constant(x: Tensor, result: Tensor, before: Tensor) -> None:
    """A signal is overwritten with a constant."""
    if not is_view(x):
        x.detach_()
        x.copy_(result)
    else:  # a part of a signal that stays one: the constant takes the part's share
        everywhere = torch.ones((), dtype=torch.bool, device=x.device)
        x.copy_(absorb(torch.where(everywhere, result.to(x), before), result, "bias"))
