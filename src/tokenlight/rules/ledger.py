"""The ledger: relevance that does not reach the input, per text; and scratch memory for single operations.

The operating system assigns new memory page by page on the first write. For a short text, this takes longer than the
product that is then computed with a weight; so operations reuse scratch memory.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.tags import expand_example_ids

MAX_ELEMENTS = 2**22  # larger buffers are not reused


@dataclass
class Scratch:
    """Buffers that the operations of a pass reuse, by dtype and device."""

    buffers: dict[object, Tensor] = field(default_factory=dict)

    def like(self, matrix: Tensor, dtype: torch.dtype) -> Tensor:
        """An uninitialized matrix of the same shape and strides. It is overwritten by the next call for this dtype."""
        if matrix.numel() > MAX_ELEMENTS or not (matrix.is_contiguous() or matrix.mT.is_contiguous()):
            return torch.empty_like(matrix, dtype=dtype)
        key = (dtype, matrix.device)
        buffer = self.buffers.get(key)
        if buffer is None or buffer.numel() < matrix.numel():
            buffer = self.buffers[key] = torch.empty(matrix.numel(), dtype=dtype, device=matrix.device)
        return buffer.as_strided(matrix.shape, matrix.stride())


ACCOUNTS = ("bias", "softmax", "branch", "heads", "sink")


@dataclass
class Ledger:
    """Relevance that does not reach the input, per example and operation, in the order of the backward pass."""

    batch: int
    bias: list[Tensor] = field(default_factory=list)  # biases, and values that no input explains
    softmax: list[Tensor] = field(default_factory=list)  # what the softmax loses under its gradient
    branch: list[Tensor] = field(default_factory=list)  # branches that were cut off: each block's MLP
    heads: list[Tensor] = field(default_factory=list)  # what head gates stopped
    sink: list[Tensor] = field(default_factory=list)  # what attention sinks take
    inside_block: bool = False  # set by the instrumented model while a block runs
    disordered: bool = False  # whether any signal is tagged with example ids
    example_ids: Tensor | None = None  # of the running operation's input; None if its examples are in order
    scratch: Scratch = field(default_factory=Scratch)
    exact: bool = False  # no product in a lower precision than the values, for differences of relevance

    def enter(self, account: str, amounts: Tensor) -> None:
        """Add amounts to an account. Their first axis is the batch, or batch and tokens flattened."""
        amounts = amounts.detach()
        getattr(self, account).append(amounts if amounts.ndim <= 2 else amounts.reshape(self.batch, -1).sum(1))

    def total(self, account: str) -> Tensor | float:
        """[batch] the sum of an account."""
        entries_by_shape: dict[Any, list[Tensor]] = {}  # entries of one shape are added at once
        for entry in getattr(self, account):
            entries_by_shape.setdefault((entry.shape, entry.dtype, entry.device), []).append(entry)
        sums = [torch.stack(group).view(len(group), self.batch, -1).sum((0, 2)) for group in entries_by_shape.values()]
        return sum((part_sum.to(sums[0].device) for part_sum in sums[1:]), sums[0]) if sums else 0.0

    def sums(self, account: str) -> list[Tensor]:
        """[batch] for each operation of an account."""
        return [entry.reshape(self.batch, -1).sum(1) for entry in getattr(self, account)]

    def clear(self) -> None:
        """Remove all entries, before another backward pass."""
        for account in ACCOUNTS:
            getattr(self, account).clear()

    def copy(self) -> "Ledger":
        """A copy with the present entries."""
        entries = {name: list(getattr(self, name)) for name in ACCOUNTS}
        return replace(self, **entries, scratch=Scratch())


class LedgerWriter(NamedTuple):
    """Adds the relevance an operation absorbs to the ledger, per example."""

    ledger: Ledger
    example_ids: Tensor | None = None  # of each element; None: the examples are in order

    def enter(self, account: str, amounts: Tensor) -> None:
        """Add amounts, one for each element, or already summed over the last axis."""
        self.ledger.enter(account, amounts if self.example_ids is None else self.sums(amounts.detach()))

    def sums(self, amounts: Tensor) -> Tensor:
        """[batch] the sum of amounts per example."""
        if self.example_ids is None:
            return amounts.reshape(self.ledger.batch, -1).sum(1)
        example_ids = self.of(amounts)
        return amounts.new_zeros(self.ledger.batch).index_add_(0, example_ids.reshape(-1), amounts.reshape(-1))

    def scaled(self, x: Tensor, factors: Tensor) -> Tensor:
        """Each element times the factor [batch] of its example."""
        if self.example_ids is None:  # some families flatten batch and tokens
            return (x.reshape(self.ledger.batch, -1) * factors[:, None]).view_as(x)
        return x * factors[self.of(x)]

    def of(self, amounts: Tensor) -> Tensor:
        """The example id of each amount."""
        example_ids = self.example_ids
        assert example_ids is not None
        if example_ids.ndim == amounts.ndim + 1:
            example_ids = example_ids[..., 0]
        expanded = expand_example_ids(example_ids, amounts.shape)
        if expanded is None:
            raise UnsupportedModelError(
                "the model reorders the texts of a batch in a way that tokenlight cannot follow, so the relevance of "
                "biases cannot be separated by text. Explain one text at a time (batch_size=1)"
            )
        return expanded


class ConstantShare(NamedTuple):
    """The relevance of a constant summand: constant times gradient."""

    account: str
    constant: Tensor | float
    ledger_writer: LedgerWriter

    def take(self, grad: Tensor) -> None:
        self.ledger_writer.enter(self.account, constant_times(self.constant, grad, self.ledger_writer))


def constant_times(constant: Tensor | float, grad: Tensor, writer: LedgerWriter) -> Tensor:
    """Constant times gradient, summed over the last axis if it is not the only one and lies within examples."""
    if grad.ndim == 1 or writer.example_ids is not None:
        return grad * constant
    if not isinstance(constant, Tensor) or constant.ndim == 0:
        return grad.sum(-1) * constant
    return grad @ constant if constant.ndim == 1 else torch.linalg.vecdot(grad, constant)  # the first: a bias


# Shares of constants that are computed after the backward pass, each with the graph edge whose gradient it needs. They
# are not in the ledger: the graph refers to the ledger, and Python cannot collect a cycle through autograd's nodes.
PendingShares = list[tuple[GradientEdge, ConstantShare]]
LEDGER: ContextVar[Ledger | None] = ContextVar("tokenlight_ledger", default=None)
PENDING_SHARES: ContextVar[PendingShares | None] = ContextVar("tokenlight_pending_shares", default=None)


def ledger_writer() -> LedgerWriter | None:
    """The ledger writer for the operation that is running; None without a ledger."""
    ledger = LEDGER.get()
    return None if ledger is None else LedgerWriter(ledger, ledger.example_ids)
