"""The fingerprint of a model: a few of its weights, the same on every device and in every precision."""

import math
from collections.abc import Sequence

from torch import nn

from tokenlight.model.private_copy import unpacked

MATRICES, WEIGHTS_EACH = 8, 4


def fingerprint(model: nn.Module) -> tuple[float, ...]:
    """A few weights of a few matrices between the first and the last; empty where the weights are not in memory."""
    matrices = [unpacked(parameter) for parameter in model.parameters() if parameter.ndim == 2]
    if not matrices or any(matrix.is_meta for matrix in matrices):
        return ()
    chosen = [matrices[i * (len(matrices) - 1) // (MATRICES - 1)] for i in range(MATRICES)]
    return tuple(
        float(
            f"{matrix[(k + 1) * matrix.shape[0] // (WEIGHTS_EACH + 1), k * matrix.shape[1] // WEIGHTS_EACH].item():.4g}"
        )
        for matrix in chosen
        for k in range(WEIGHTS_EACH)
    )


def same_model(fingerprint: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two fingerprints are equal up to the rounding of half precision."""
    return len(fingerprint) == len(other) > 0 and all(
        math.isclose(a, b, rel_tol=0.01, abs_tol=1e-6) for a, b in zip(fingerprint, other, strict=True)
    )
