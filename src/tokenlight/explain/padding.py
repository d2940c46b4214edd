"""A batch must equal one text at a time: where that cannot be known beforehand, a text is explained alone as well."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.explain.passes import PassPlan, plan_passes
from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.model.twin import Twin
from tokenlight.rules.replacements import identity
from tokenlight.text.batches import Batch

ALLOWED = 1e-4  # of the largest score; products are in single precision, whose order depends on the batch


def padding_may_count(twin: Twin, batch: Batch, plan: PassPlan) -> bool:
    """Relevance that passes the softmax unchanged depends on what is added to the scores, which the softmax itself
    may not notice: a family's own code may count positions from the end of the padded text."""
    passes = any((one.rules or {}).get(F.softmax) is identity for one in plan.passes.values())
    return passes and twin.layout.watched and bool((batch.attention_mask == 0).any())


def shortest_alone(batch: Batch, plan: PassPlan) -> tuple[int, Batch, PassPlan]:
    """The number of the shortest text, and the same question about it alone, without padding."""
    row = int(batch.lengths.argmin())
    places = batch.attention_mask[row].nonzero()[:, 0]
    alone = batch.map(lambda tensor: tensor[row : row + 1, places])
    target = replace(plan.target, wanted=(plan.target.wanted[row],))
    return row, alone, plan_passes(target, [job for job in plan.jobs if job.method.passes])


def refuse_unlike(found: Tensor, alone: Tensor, model: Any) -> None:
    """Scores [token] of a text in a batch, and alone."""
    apart = float((found - alone).abs().max() / alone.abs().max().clamp_min(torch.finfo(alone.dtype).tiny))
    if apart > ALLOWED:
        raise UnsupportedModelError(
            f"{type(model).__name__}: under these rules a padded text in a batch gets other scores than alone (by "
            f"{apart:.1%} of the largest), perhaps because what is added to attention scores depends on padding. "
            "Explain texts of equal length together, or one at a time: batch_size=1"
        )
