"""Memory for what an operation needs for a moment and nobody keeps, used again by the next one.

Fresh memory has to be handed out page by page when it is first written. For a short text that takes longer than what is
then computed with a weight.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

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
