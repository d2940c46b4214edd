"""Attention itself: which tokens are looked at, whatever the answer."""

import torch
from torch import Tensor

from tokenlight.methods import method
from tokenlight.record.trace import Trace


@method(
    title="RawAtt",
    paper="Bahdanau et al. 2015; Vaswani et al. 2017",
    signed=False,
    class_specific=False,
    needs=("attention", "row"),
    aliases=("Raw Attention",),
)
def raw_attention(trace: Trace) -> Tensor:
    """Attention of the last layer, mean over heads."""
    return trace.read_row(trace.attention[-1].value.mean(1))


@method(
    title="Rollout",
    paper="Abnar & Zuidema 2020",
    signed=False,
    class_specific=False,
    needs=("attention", "row"),
    aliases=("Attention Rollout",),
)
def rollout(trace: Trace) -> Tensor:
    """Attention with residual connections, multiplied over all layers."""
    return trace.read_row(roll_out([signal.value.mean(1) for signal in trace.attention]))


def roll_out(maps: list[Tensor], normalise: bool = True) -> Tensor:
    """Product of (map + identity), later layers on the left, rows normalised first; maps [batch, query, key]."""
    identity = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    result = identity.expand_as(maps[0])
    for layer in maps:
        mixed = layer + identity
        result = (mixed / mixed.sum(-1, keepdim=True) if normalise else mixed) @ result
    return result
