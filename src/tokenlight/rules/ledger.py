"""The ledger: relevance that does not reach the input, per text; and scratch memory for single operations.

Fresh memory has to be handed out page by page when it is first written. For a short text that takes longer than what is
then computed with a weight.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.tags import spread

LARGEST = 2**22  # numbers; more than that is not worth holding on to


@dataclass
class Scratch:
    """Of one pass."""

    pieces: dict[object, Tensor] = field(default_factory=dict)

    def like(self, matrix: Tensor, dtype: torch.dtype) -> Tensor:
        """Room for a matrix of the same shape and order; what was there before is lost."""
        if matrix.numel() > LARGEST or not (matrix.is_contiguous() or matrix.mT.is_contiguous()):
            return torch.empty_like(matrix, dtype=dtype)
        kind = (dtype, matrix.device)
        piece = self.pieces.get(kind)
        if piece is None or piece.numel() < matrix.numel():
            piece = self.pieces[kind] = torch.empty(matrix.numel(), dtype=dtype, device=matrix.device)
        return piece.as_strided(matrix.shape, matrix.stride())


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
    disordered: bool = False  # there are signals that carry owners
    owners: Tensor | None = None  # of what goes into the operation that runs, where it is not in order
    scratch: Scratch = field(default_factory=Scratch)
    exact: bool = False  # no product in a lower precision than the values: differences of relevance will be taken

    def enter(self, account: str, amounts: Tensor) -> None:
        """Amounts are summed per example; the first axis is the batch, or batch and tokens in one."""
        amounts = amounts.detach()
        getattr(self, account).append(amounts if amounts.ndim <= 2 else amounts.reshape(self.batch, -1).sum(1))

    def total(self, account: str) -> Tensor | float:
        """[batch]"""
        alike: dict[Any, list[Tensor]] = {}  # those of one shape are added at once
        for entry in getattr(self, account):
            alike.setdefault((entry.shape, entry.dtype, entry.device), []).append(entry)
        sums = [torch.stack(group).view(len(group), self.batch, -1).sum((0, 2)) for group in alike.values()]
        return sum((one.to(sums[0].device) for one in sums[1:]), sums[0]) if sums else 0.0

    def sums(self, account: str) -> list[Tensor]:
        """[batch] of every operation"""
        return [entry.reshape(self.batch, -1).sum(1) for entry in getattr(self, account)]

    def clear(self) -> None:
        """Before another backward pass."""
        for account in ACCOUNTS:
            getattr(self, account).clear()

    def copy(self) -> "Ledger":
        """With the entries of now."""
        entries = {name: list(getattr(self, name)) for name in ACCOUNTS}
        return replace(self, **entries, scratch=Scratch())


class LedgerWriter(NamedTuple):
    """Who enters what an operation keeps: knows which text each element belongs to."""

    ledger: Ledger
    owners: Tensor | None = None  # None: the texts are in order

    def enter(self, account: str, amounts: Tensor) -> None:
        """Of elements, or of rows: added up over the last axis."""
        self.ledger.enter(account, amounts if self.owners is None else self.sums(amounts.detach()))

    def sums(self, amounts: Tensor) -> Tensor:
        """[batch]"""
        if self.owners is None:
            return amounts.reshape(self.ledger.batch, -1).sum(1)
        whose = self.of(amounts)
        return amounts.new_zeros(self.ledger.batch).index_add_(0, whose.reshape(-1), amounts.reshape(-1))

    def scaled(self, x: Tensor, factors: Tensor) -> Tensor:
        """Each element times the factor [batch] of its text."""
        if self.owners is None:  # some families fold batch and tokens into one axis
            return (x.reshape(self.ledger.batch, -1) * factors[:, None]).view_as(x)
        return x * factors[self.of(x)]

    def of(self, amounts: Tensor) -> Tensor:
        owners = self.owners
        assert owners is not None
        if owners.ndim == amounts.ndim + 1:
            owners = owners[..., 0]
        found = spread(owners, amounts.shape)
        if found is None:
            raise UnsupportedModelError(
                "the model puts the texts of a batch in another order, in a way that tokenlight cannot follow: what "
                "each text's biases keep cannot be separated. Explain one text at a time (batch_size=1)"
            )
        return found


class Share(NamedTuple):
    """What a constant part of a sum takes: constant times gradient."""

    account: str
    constant: Tensor | float
    ledger_writer: LedgerWriter

    def take(self, grad: Tensor) -> None:
        self.ledger_writer.enter(self.account, constant_times(self.constant, grad, self.ledger_writer))


def constant_times(constant: Tensor | float, grad: Tensor, books: LedgerWriter) -> Tensor:
    """Their product, added up over the last axis where there are others and no texts may lie along it."""
    if grad.ndim == 1 or books.owners is not None:
        return grad * constant
    if not isinstance(constant, Tensor) or constant.ndim == 0:
        return grad.sum(-1) * constant
    return grad @ constant if constant.ndim == 1 else torch.linalg.vecdot(grad, constant)  # the first: a bias


# Constants that take their shares when the backward pass is over, and where in its graph. Not a part of the ledger: the
# graph holds that one, and nobody would see when the two hold nothing but each other.
Waiting = list[tuple[GradientEdge, Share]]
LEDGER: ContextVar[Ledger | None] = ContextVar("tokenlight_ledger", default=None)
WAITING: ContextVar[Waiting | None] = ContextVar("tokenlight_waiting", default=None)


def ledger_writer() -> LedgerWriter | None:
    """For the operation that runs."""
    ledger = LEDGER.get()
    return None if ledger is None else LedgerWriter(ledger, ledger.owners)
