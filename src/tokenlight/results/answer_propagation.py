"""Propagates scores of earlier answer tokens to the prompt.

Rows are the answer's tokens, columns all tokens: `length` of the prompt, then those of the answer, [step, token].
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue

Form = Literal["exact", "cage", "flashtrace"]
FORMS = get_args(Form)


def hand_on(
    rows: Tensor, length: int, form: Form, sentences: Sequence[tuple[int, int]], hops: int | None = None
) -> Tensor:
    if form not in FORMS:
        raise RefusedValue(f"form is one of {', '.join(FORMS)}; found {form!r}")
    if hops is not None and (form != "flashtrace" or hops < 0):
        raise RefusedValue(f"hops= is a number from 0 for the form 'flashtrace'; found {hops} for {form!r}")
    with torch.autocast(rows.device.type, enabled=False):  # of the caller: products would be in half precision
        if form == "flashtrace":
            return flashtrace(rows, length, sentences, 1 if hops is None else hops)
        return exact(rows, length) if form == "exact" else cage(rows, length)


def exact(rows: Tensor, length: int) -> Tensor:
    """What a token took goes where its own row came from, with its signs: every row keeps its sum."""
    found = torch.zeros_like(rows)
    for step, row in enumerate(rows):
        taken = row[length : length + step]  # by the answer's earlier tokens
        sums = found[:step].sum(1)
        if bool(((sums == 0) & (taken != 0)).any()):
            raise RefusedValue("a token of the answer has nothing to pass on: its own row adds up to 0")
        handed = found[:step] / torch.where(sums == 0, 1, sums)[:, None]
        found[step, :length] = row[:length] + (taken @ handed)[:length]
    return found


def magnified(rows: Tensor, found: Tensor, length: int) -> float:
    """How many times more is handed on, at most, than a token of the answer took: its row may nearly cancel."""
    taken = rows[:, length:].abs().amax(0) > 0  # [step] by whom something was taken
    sizes, sums = found.abs().sum(1), found.sum(1).abs()
    return float((sizes / sums)[taken].max()) if bool(taken.any()) else 1.0


def cage(rows: Tensor, length: int) -> Tensor:
    """CAGE (Walker & Ewetz 2025): the same with positive parts alone, each row in shares of 1.

    A token whose row has no positive part hands nothing on.
    """
    rows, found = shares(rows), torch.zeros_like(rows)
    for step, row in enumerate(rows):
        found[step, :length] = row[:length] + row[length : length + step] @ found[:step, :length]
    return found


def flashtrace(rows: Tensor, length: int, spans: Sequence[tuple[int, int]], hops: int) -> Tensor:
    """FlashTrace (Pan et al. 2026): each span of the answer as a whole, followed back over so many hops.

    A span's rows are added up before their positive part is taken, in shares of 1. At a hop, what lies on the answer's
    tokens before the span is exchanged for these tokens' rows, added up with what each of them took as its weight, and
    their positive part again in shares. What then still lies on the answer, and what lies on the span itself, stays
    there. The tokens of a span have equal parts of this.
    """
    found = torch.zeros_like(rows)
    for start, end in spans:
        before = slice(length, length + start)
        total = shares(rows[start:end].sum(0))  # [token]
        for _ in range(hops):
            taken = total[before]
            total = total.clone()
            total[before] = 0
            total += taken.sum() * shares(taken @ rows[:start])
        found[start:end] = total / (end - start)
    return found


def shares(scores: Tensor) -> Tensor:
    """Positive parts along the last axis, as shares of 1; all 0 where there are none."""
    positive = scores.clamp_min(0)
    total = positive.sum(-1, keepdim=True)
    return positive / torch.where(total == 0, 1, total)
