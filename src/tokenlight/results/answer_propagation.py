"""Propagates scores of earlier answer tokens to the prompt.

`matrix` [step, token] has a row for each token of the answer. Its columns are the `length` tokens of the prompt, then
those of the answer.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue

Form = Literal["exact", "cage", "flashtrace"]
FORMS = get_args(Form)


def propagate(
    matrix: Tensor, length: int, form: Form, sentences: Sequence[tuple[int, int]], hops: int | None = None
) -> Tensor:
    """The matrix after propagation; `sentences` are the spans of FlashTrace, as steps [start, end)."""
    if form not in FORMS:
        raise RefusedValue(f"form is one of {', '.join(FORMS)}; found {form!r}")
    if hops is not None and (form != "flashtrace" or hops < 0):
        raise RefusedValue(f"hops= is a number from 0 for the form 'flashtrace'; found {hops} for {form!r}")
    with torch.autocast(
        matrix.device.type, enabled=False
    ):  # the caller's autocast would compute products in half precision
        if form == "flashtrace":
            return flashtrace(matrix, length, sentences, 1 if hops is None else hops)
        return exact(matrix, length) if form == "exact" else cage(matrix, length)


def exact(matrix: Tensor, length: int) -> Tensor:
    """Scores of answer tokens are distributed like these tokens' own rows, with signs: rows keep their sums."""
    propagated = torch.zeros_like(matrix)
    for step, token_scores in enumerate(matrix):
        answer_scores = token_scores[length : length + step]  # of earlier tokens of the answer
        sums = propagated[:step].sum(1)
        if bool(((sums == 0) & (answer_scores != 0)).any()):
            raise RefusedValue("a token of the answer has no score to pass on: its own row adds up to 0")
        distributions = propagated[:step] / torch.where(sums == 0, 1, sums)[:, None]
        propagated[step, :length] = token_scores[:length] + (answer_scores @ distributions)[:length]
    return propagated


def largest_amplification(matrix: Tensor, propagated: Tensor, length: int) -> float:
    """The largest ratio of the absolute sum to the sum of a propagated row; it is large if the scores nearly cancel."""
    has_score = matrix[:, length:].abs().amax(0) > 0  # [step] answer tokens with a score in a later row
    sizes, sums = propagated.abs().sum(1), propagated.sum(1).abs()
    return float((sizes / sums)[has_score].max()) if bool(has_score.any()) else 1.0


def cage(matrix: Tensor, length: int) -> Tensor:
    """CAGE (Walker & Ewetz 2025): the same with the positive parts of rows, as shares of 1.

    The score of a token whose row has no positive part is lost.
    """
    matrix, propagated = shares(matrix), torch.zeros_like(matrix)
    for step, token_scores in enumerate(matrix):
        propagated[step, :length] = (
            token_scores[:length] + token_scores[length : length + step] @ propagated[:step, :length]
        )
    return propagated


def flashtrace(matrix: Tensor, length: int, spans: Sequence[tuple[int, int]], hops: int) -> Tensor:
    """FlashTrace (Pan et al. 2026): each span of the answer as a whole, propagated over `hops` hops.

    The rows of a span are added up, and their positive part is divided by its sum. In each hop, the scores of answer
    tokens before the span are replaced by the sum of these tokens' rows, weighted by these scores, again as positive
    parts divided by their sum. Scores of tokens of the span, and those of earlier answer tokens after the last hop, are
    not propagated further. The tokens of a span have equal parts of the result.
    """
    propagated = torch.zeros_like(matrix)
    for start, end in spans:
        before = slice(length, length + start)
        total = shares(matrix[start:end].sum(0))  # [token]
        for _ in range(hops):
            earlier = total[before]  # scores of answer tokens before the span
            total = total.clone()
            total[before] = 0
            total += earlier.sum() * shares(earlier @ matrix[:start])
        propagated[start:end] = total / (end - start)
    return propagated


def shares(scores: Tensor) -> Tensor:
    """Positive parts along the last axis, divided by their sum; 0 if there are none."""
    positive = scores.clamp_min(0)
    total = positive.sum(-1, keepdim=True)
    return positive / torch.where(total == 0, 1, total)
