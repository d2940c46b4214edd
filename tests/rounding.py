"""How far apart two ways of computing the same numbers may lie, on any machine.

Adding n numbers of size s in a precision of eps errs by at most about n · eps · s, in whatever order a machine adds
them (Higham 2002, chapter 4). Processors, threads and the numbers of rows in a batch change that order and nothing
else. So a tolerance is precision × size of what is added × number of operations, and where a computation divides by
small numbers, which makes errors grow, × how much they grow.

What a tolerance must still catch is larger. One token of padding that is taken for text moves the scores of the models
in tests/models.py by 0.1 % to 100 % of the largest one (80 % in the median of all methods and families), an activation
without its rule by 17 % to 38 %, two rows that change places by all of it. The widest tolerance of a pass is 0.012 % in
single precision and 2e-12 in double.
"""

import torch
from torch import Tensor

# A forward and a backward pass of the models in tests/models.py: 2 blocks of about 10 sums each, one after another, of
# 16 to 24 terms, there and back.
PASS = 1000
# Relevance is handed down in shares of sums of positive parts. Such a sum can be ten times smaller than what
# was added to find its terms; that is why these passes run in double precision, whatever the model's own is.
SHARES = 10.0


def tolerance(precision: torch.dtype, size: float, operations: int = PASS, growth: float = 1.0) -> float:
    """The error of so many operations on numbers of this size, in this precision."""
    return torch.finfo(precision).eps * size * operations * growth


def assert_near(
    actual: Tensor | float,
    expected: Tensor | float,
    *,
    size: float | Tensor | None = None,
    operations: int = PASS,
    growth: float = 1.0,
    precision: torch.dtype | None = None,
    what: str = "",
) -> None:
    """Equal but for rounding. `size`: the largest number that was added, if it is not the largest of `expected`;
    `precision`: the lowest that anything was computed in, if it is not that of `actual`; `what` a failure names."""
    actual = torch.as_tensor(actual)
    expected = torch.as_tensor(expected, dtype=actual.dtype).expand_as(actual)
    largest = float(torch.as_tensor(expected if size is None else size).abs().max())
    allowed = tolerance(precision or actual.dtype, largest, operations, growth)
    torch.testing.assert_close(actual, expected, rtol=0, atol=allowed, msg=lambda message: f"{what}\n{message}".strip())
