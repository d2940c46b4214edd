"""Head gates: factors from a head mask on the gradients of head outputs."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tokenlight._compat.torch_internals import without_torch_functions
from tokenlight.common.errors import RefusedValue
from tokenlight.rules.autograd_functions import KNOWN_AUTOGRAD_FUNCTIONS
from tokenlight.rules.ledger import LEDGER

# If all heads of a block have strength 0, relevance passes all of them, is dropped, or goes to the residual branch.
EMPTY = ("all", "drop", "residual")


@dataclass(frozen=True, eq=False)
class Gates:
    """Strengths of all heads for one backward pass."""

    groups: Tensor  # [group, layer, head] in [0, 1]
    conserve: bool = False  # scale groups so that a block loses no relevance; otherwise gates lose what they stop
    empty: str = "drop"  # where attention relevance goes in a block whose strengths are all 0: one of EMPTY

    def __post_init__(self) -> None:
        if self.empty not in EMPTY:
            raise RefusedValue(f"empty is 'all', 'drop' or 'residual', found {self.empty!r}")

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable; gates with equal keys give equal gradients."""
        return (self.groups.shape, tuple(self.groups.flatten().tolist()), self.conserve, self.empty)

    @property
    def layers_without_heads(self) -> Tensor:
        """[layer] whether all strengths are 0."""
        return ~self.groups.any(0).any(-1)

    @cached_property
    def strengths(self) -> Tensor:
        """[group, layer, head] the groups; with empty="all", the first has all heads of layers without heads."""
        if self.empty != "all":
            return self.groups
        filled = torch.zeros_like(self.groups)
        filled[0] = 1.0
        return torch.where(self.layers_without_heads[:, None], filled, self.groups)

    @property
    def moved_to_residual(self) -> tuple[bool, ...]:
        """Per layer: whether the residual branch receives the relevance of its attention."""
        return tuple((self.layers_without_heads & (self.empty == "residual")).tolist())


@dataclass(eq=False)
class GateApplier:
    """Applies the gates of a pass to head outputs.

    `gates` may be replaced for another backward pass through the same graph, if `moved_to_residual` is equal.
    """

    gates: Gates

    def __call__(self, head_outputs: Tensor, layer: int) -> Tensor:
        """Return the gated head outputs [batch, head, query, dim] of a block."""
        with without_torch_functions():  # not an operation of the model: no rule applies
            to_residual = self.gates.moved_to_residual[layer]
        if to_residual:
            return head_outputs.detach()  # a constant: the residual sum gives its relevance to the other summand
        with without_torch_functions():
            return GateHeads.apply(head_outputs, self, layer)  # type: ignore[return-value]


class GateHeads(torch.autograd.Function):
    """Mask-LRP's gate on head outputs [batch, head, query, dim]: the equations after eq. 9 of Song et al. 2024.

    With `conserve`, the relevance of each group g is scaled to |Σ_g| / Σ_g' |Σ_g'| of the block's total,
    as the paper does for its syntactic and its positional heads. (It prints the denominator |Σ_g + Σ_g'|, which is
    equal if both sums have the same sign, and does not conserve relevance otherwise.)
    """

    @staticmethod
    def forward(ctx: Any, head_outputs: Tensor, applier: GateApplier, layer: int) -> Tensor:
        ctx.save_for_backward(head_outputs)
        ctx.applier, ctx.layer, ctx.ledger = applier, layer, LEDGER.get()
        return head_outputs.view_as(head_outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (head_outputs,) = ctx.saved_tensors
        gates = ctx.applier.gates.strengths[:, ctx.layer].to(head_outputs)  # [group, head]
        arriving = torch.linalg.vecdot(head_outputs.flatten(2), grads[0].flatten(2))  # [batch, head]
        if ctx.applier.gates.conserve:
            total = arriving.sum(1, keepdim=True)  # [batch, 1]
            sums = arriving @ gates.T  # [batch, group]
            size = sums.abs().sum(1, keepdim=True)
            share = torch.where(size > 0, sums.sign() * total / torch.where(size > 0, size, 1.0), 0.0)
            passing = share @ gates  # [batch, head]
        else:
            passing = gates.amax(0).expand_as(arriving)
        if ctx.ledger is not None:
            ctx.ledger.enter("heads", arriving * (1 - passing))
        return grads[0] * passing[:, :, None, None], None, None


KNOWN_AUTOGRAD_FUNCTIONS.add(GateHeads)
