"""Masks with the same number of lit heads in every layer, and random masks that keep each layer's number."""

import torch
from torch import Tensor

import tokenlight as tl
from tokenlight.heads.statistics import HeadStatistics


def strongest_in_each_layer(counts: HeadStatistics, number: int, weakest: bool = False) -> tl.HeadMask:
    """In every layer, the `number` heads that follow syntax most (above what distance explains), and the `number` heads
    that follow position most; a head may be both. With `weakest`, those that follow them least."""
    above = (counts.accuracy - counts.usual_share[:, None, None]).amax(0)  # [layer, head]
    share = counts.position_shares()[1].double()
    sign = -1 if weakest else 1
    return tl.HeadMask(top(sign * above, number), top(sign * share, number), {"by": "rank in its layer"})


def top(strength: Tensor, number: int) -> Tensor:
    """[layer, head] 1 for the `number` strongest heads of every layer."""
    return torch.zeros_like(strength).scatter(1, strength.topk(number, 1).indices, 1.0)


def random_in_each_layer(mask: tl.HeadMask, seed: int) -> tl.HeadMask:
    """A mask with the heads of every layer in random order, the same order in both groups."""
    draw = torch.Generator().manual_seed(seed)
    layers, heads = mask.lit.shape
    order = torch.stack([torch.randperm(heads, generator=draw) for _ in range(layers)])  # [layer, head]
    syntactic, positional = (group.gather(1, order) for group in (mask.syntactic, mask.positional))
    return tl.HeadMask(syntactic, positional, {"by": "chance in its layer", "seed": seed})
