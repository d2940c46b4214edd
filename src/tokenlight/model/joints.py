"""Where a block's attention joins the stream, found in what the modules of the block have read and given."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tokenlight.model.anatomy import BlockStructure, probed_norm
from tokenlight.model.linear_layers import affine_map


@dataclass(frozen=True)
class Piece:
    """A module that ran inside a block."""

    path: str
    module: nn.Module
    before: Tensor
    after: Tensor

    def shaped(self, state: Tensor) -> "Piece":
        """Some families fold batch and tokens into one axis for a while."""
        parts = [x.reshape(state.shape) if x.numel() == state.numel() else x for x in (self.before, self.after)]
        return Piece(self.path, self.module, *parts)


@dataclass(frozen=True)
class StructureMatch:
    """Where a block's attention joins the stream."""

    structure: BlockStructure
    norm: Piece | None  # one that reads the stream behind it

    @property
    def behind_norm(self) -> BlockStructure:
        return self.structure if self.norm is None else replace(self.structure, norm=self.norm.path)


def linear_layers(pieces: list[Piece], state: Tensor, context: Tensor) -> list[Piece]:
    """Those that could project heads' outputs, by the sizes of what they read and give."""
    paths = [piece.path for piece in pieces]
    return [
        piece
        for piece in pieces
        if (piece.before.numel(), piece.after.numel()) == (context.numel(), state.numel())
        and paths.count(piece.path) == 1
        and affine_map(piece.module, piece.before.shape[-1])
    ]


def find_structure(
    pieces: list[Piece], state: Tensor, context: Tensor, output: Tensor, behind_gate: set[str]
) -> StructureMatch | str:
    heads = context.transpose(1, 2).flatten(2)  # [batch, token, head * dim]
    pieces = [piece.shaped(state) for piece in pieces]
    readers = projections(pieces, heads)
    readers += [Projection(piece, None, gated=True) for piece in pieces if piece.path in behind_gate]
    found = [joint for projection in readers for joint in structure_matches(pieces, projection, state, output)]
    if found:
        return found[0]
    if not readers:
        return "have no linear layer that reads the heads' outputs: as they are, behind a norm, or times a gate"
    return (
        "do not add up: their input and what attention gives, each times a factor, are what no module of theirs reads, "
        "and not their output less what one other module gives"
    )


@dataclass(frozen=True)
class Projection:
    piece: Piece
    norm: Piece | None  # between the heads and it
    gated: bool = False


def projections(pieces: list[Piece], heads: Tensor) -> list[Projection]:
    """Linear layers that read the heads' outputs, those with others inside first."""
    norms = [piece for piece in pieces if is_norm_of(piece, heads)]
    return [
        Projection(piece, norm)
        for norm in (None, *norms)
        for piece in reversed(pieces)
        if is_explained_by(piece.before, heads if norm is None else norm.after)
        and affine_map(piece.module, heads.shape[-1])
    ]


def is_explained_by(one: Tensor, other: Tensor) -> bool:
    """The same numbers, perhaps with batch and tokens in one axis."""
    return one.numel() == other.numel() and same(one.reshape(other.shape), other)


def structure_matches(
    pieces: list[Piece], projection: Projection, state: Tensor, output: Tensor
) -> list[StructureMatch]:
    """All that add up; none for a projection that gives no state."""
    if projection.piece.after.numel() != state.numel():
        return []
    straight = projection.piece.after.reshape(state.shape)
    norms = [piece for piece in pieces if is_norm_of(piece, straight)]
    found: list[StructureMatch] = []
    for norm in (*norms, None):
        branch = straight if norm is None else norm.after
        paths = {
            "projection": projection.piece.path,
            "heads_norm": projection.norm and projection.norm.path,
            "branch_norm": norm and norm.path,
            "gated": projection.gated,
        }
        readers = [(piece, factors) for piece in pieces if (factors := fit(piece.before, state, branch))]
        for piece, (own, joining) in readers:
            alone = [one.path for one in pieces].count(piece.path) == 1
            reader = piece if alone and is_norm_of(piece, piece.before) else None
            found.append(StructureMatch(BlockStructure(**paths, scale=joining, residual_scale=own), reader))
        if readers:
            continue
        beside = [piece.after for piece in pieces if not same(piece.after, branch)]  # an MLP beside the attention
        sums = [factors for other in beside if (factors := fit(output, state, branch, other))]
        found += [
            StructureMatch(BlockStructure(**paths, scale=joining, residual_scale=own), None) for own, joining, _ in sums
        ]
    return sorted(found, key=lambda joint: joint.norm is None)


def is_norm_of(piece: Piece, state: Tensor) -> bool:
    """Whether it normalizes this state."""
    if piece.before.shape != state.shape or piece.after.shape != state.shape or any(piece.module.children()):
        return False
    if same(piece.after, state) or not same(piece.before, state):
        return False
    return probed_norm(piece.module, state.shape[-1]) is not None


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).norm() <= rounding(one) * other.norm())


def rounding(tensor: Tensor) -> float:
    """Of a few sums, one after another."""
    return 10 * torch.finfo(tensor.dtype).eps


def fit(whole: Tensor, *parts: Tensor) -> tuple[float, ...] | None:
    """The numbers with which the parts add up to the whole, if they do, number by number; whole ones exactly."""
    if any(part.shape != whole.shape for part in parts):
        return None
    columns, target = torch.stack([part.double().flatten() for part in parts], 1), whole.double().flatten()
    size = target.abs() + columns.abs().sum(1)  # as rounding: a large number must not hide small ones
    size = torch.where(size > 0, size, 1.0)
    columns, target = columns / size[:, None], target / size
    found = torch.linalg.lstsq(columns, target[:, None], driver="gelsd").solution[:, 0]
    near = max(1e-3, torch.finfo(whole.dtype).eps)  # what many numbers tell is nearer than one of them
    for factors in (torch.where((found - found.round()).abs() < near, found.round(), found), found):
        if bool(((columns @ factors - target).abs() <= rounding(whole)).all()):
            return tuple(factors.tolist()) if bool((factors != 0).all()) else None  # a part that is not needed is none
    return None
