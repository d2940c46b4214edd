"""Head gates: where a head mask acts on the backward pass."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tokenlight._compat.torch_internals import without_torch_functions
from tokenlight.common.errors import RefusedValue
from tokenlight.rules.autograd_functions import OURS
from tokenlight.rules.ledger import LEDGER

# Where no head of a block is lit: relevance flows through all its heads, is dropped, or goes to the residual branch.
EMPTY = ("all", "drop", "residual")


@dataclass(frozen=True, eq=False)
class Gates:
    """How strongly each head lets relevance pass, for one backward pass."""

    groups: Tensor  # [group, layer, head] in [0, 1]
    conserve: bool = False  # each group is scaled so that a block loses nothing; otherwise what a gate stops is lost
    empty: str = "drop"  # what becomes of a block's attention relevance where no head is lit: one of EMPTY

    def __post_init__(self) -> None:
        if self.empty not in EMPTY:
            raise RefusedValue(f"empty is 'all', 'drop' or 'residual', found {self.empty!r}")

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal keys, equal gradients."""
        return (self.groups.shape, tuple(self.groups.flatten().tolist()), self.conserve, self.empty)

    @property
    def dark_layers(self) -> Tensor:
        """[layer] whether no head is lit."""
        return ~self.groups.any(0).any(-1)

    @cached_property
    def strengths(self) -> Tensor:
        """[group, layer, head] the groups; where empty="all", the first of them has all heads of the dark layers."""
        if self.empty != "all":
            return self.groups
        filled = torch.zeros_like(self.groups)
        filled[0] = 1.0
        return torch.where(self.dark_layers[:, None], filled, self.groups)

    @property
    def handed_over(self) -> tuple[bool, ...]:
        """Per layer: whether the residual branch takes what arrives at its attention."""
        return tuple((self.dark_layers & (self.empty == "residual")).tolist())


@dataclass(eq=False)
class Gatekeeper:
    """The gates of a pass. Another backward pass through the same graph may find others, if the same layers hand over
    what arrives at them."""

    gates: Gates

    def __call__(self, context: Tensor, layer: int) -> Tensor:
        """The heads' outputs [batch, head, query, dim] of one block."""
        with without_torch_functions():  # no operation of the model: nothing for a rule table
            handed_over = self.gates.handed_over[layer]
        if handed_over:
            return context.detach()  # a constant: the residual sum hands its relevance to the other side
        with without_torch_functions():
            return GateHeads.apply(context, self, layer)  # type: ignore[return-value]


class GateHeads(torch.autograd.Function):
    """Mask-LRP's gate on the context [batch, head, query, dim]: the equations after eq. 9 of Song et al. 2024.

    With `conserve`, the relevance of every group g is scaled to |Σ_g| / Σ_g' |Σ_g'| of the block's whole, as the paper
    does for its syntactic and its positional heads. (It prints |Σ_g + Σ_g'| below the line, which is the same where
    both sums have one sign, and does not conserve relevance where they have not.)
    """

    @staticmethod
    def forward(ctx: Any, context: Tensor, keeper: Gatekeeper, layer: int) -> Tensor:
        ctx.save_for_backward(context)
        ctx.keeper, ctx.layer, ctx.ledger = keeper, layer, LEDGER.get()
        return context.view_as(context)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (context,) = ctx.saved_tensors
        gates = ctx.keeper.gates.strengths[:, ctx.layer].to(context)  # [group, head]
        arriving = torch.linalg.vecdot(context.flatten(2), grads[0].flatten(2))  # [batch, head]
        if ctx.keeper.gates.conserve:
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


OURS.add(GateHeads)
