"""Rules for recurrences over the tokens: state spaces (Mamba) and linear attention (gated delta nets).

MambaLRP (Jafari et al. 2024) takes what says how the state decays, how it is written and how it is read (the step size
and the matrices A, B, C that depend on it or on the input) for constants. What is left is linear in the values that go
into the state, so relevance is conserved. The gate behind it is a product like that of any gated MLP: `lrp` takes it
for a constant, `attn_lrp` shares evenly, as MambaLRP does.
"""

from typing import Any

from torch import Tensor

from tokenlight.rules.facts import keeps
from tokenlight.rules.mode import Function


@keeps(own=1)
def through_state(function: Function, values: Tensor, others: dict[str, Any], formula: Any) -> Any:
    """The values that go into the state take all."""
    constants = {name: part.detach() if isinstance(part, Tensor) else part for name, part in others.items()}
    return function(values, constants, formula)
