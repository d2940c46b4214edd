"""Rules for recurrences over the tokens: state spaces (Mamba) and linear attention (gated delta nets).

MambaLRP (Jafari et al. 2024) takes what says how the state decays, how it is written and how it is read (the step size
and the matrices A, B, C that depend on it or on the input) for constants. What is left is linear in the values that go
into the state, so relevance is conserved. The gate behind it is a product like that of any gated MLP: `lrp` takes it
for a constant, `attn_lrp` shares evenly, as MambaLRP does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tokenlight.rules.facts import keeps
from tokenlight.rules.mode import Function
from tokenlight.rules.spellings import ACTIVATIONS


@keeps(own=1)
def through_state(function: Function, values: Tensor, others: dict[str, Any], formula: Any) -> Any:
    """The values that go into the state take all."""
    constants = {name: part.detach() if isinstance(part, Tensor) else part for name, part in others.items()}
    return function(values, constants, formula)


@keeps(own=1)
def through_gated_state(function: Function, values: Tensor, others: dict[str, Any], formula: Any) -> Any:
    """The same, where gates and the discretization are computed from the values: these are constants, too."""

    def gated(values: Tensor, others: dict[str, Any]) -> Any:
        with ConstantGates():
            return formula(values, others)

    return through_state(function, values, others, gated)


class ConstantGates(TorchFunctionMode):
    """While this is active, no gradient passes an activation."""

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func not in GATES:
            return func(*args, **(kwargs or {}))
        with torch.no_grad():
            return func(*args, **(kwargs or {}))


GATES = set(ACTIVATIONS)
