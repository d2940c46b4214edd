"""The fingerprint of a model: a few of its weights, the same on every device and in every precision."""

import math
from collections.abc import Sequence

from torch import nn

from tokenlight.model.private_copy import unpacked

MATRICES, PLACES = 8, 4


def fingerprint(model: nn.Module) -> tuple[float, ...]:
    """Some weights of some matrices, from the first to the last; empty where the weights are not in memory."""
    matrices = [unpacked(parameter) for parameter in model.parameters() if parameter.ndim == 2]
    if not matrices or any(matrix.is_meta for matrix in matrices):
        return ()
    chosen = [matrices[i * (len(matrices) - 1) // (MATRICES - 1)] for i in range(MATRICES)]
    return tuple(
        float(f"{matrix[(k + 1) * matrix.shape[0] // (PLACES + 1), k * matrix.shape[1] // PLACES].item():.4g}")
        for matrix in chosen
        for k in range(PLACES)
    )


def same_model(one: Sequence[float], other: Sequence[float]) -> bool:
    """Equal up to the rounding of half precision."""
    return len(one) == len(other) > 0 and all(
        math.isclose(a, b, rel_tol=0.01, abs_tol=1e-6) for a, b in zip(one, other, strict=True)
    )
