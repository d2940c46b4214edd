"""Masks that light as many heads in every layer, and random ones that keep the number of each layer."""

import torch
from torch import Tensor

import tokenlight as tl
from tokenlight.heads.statistics import HeadStatistics


def strongest_in_each_layer(counts: HeadStatistics, number: int, weakest: bool = False) -> tl.HeadMask:
    """In every layer, so many heads that follow syntax most (above what distance explains), and so many that follow
    position most; a head may be both. `weakest` takes those that follow them least."""
    above = (counts.accuracy - counts.usual_share[:, None, None]).amax(0)  # [layer, head]
    share = counts.position_shares()[1].double()
    sign = -1 if weakest else 1
    return tl.HeadMask(top(sign * above, number), top(sign * share, number), {"by": "rank in its layer"})


def top(strength: Tensor, number: int) -> Tensor:
    """[layer, head] 1 for so many heads of every layer."""
    return torch.zeros_like(strength).scatter(1, strength.topk(number, 1).indices, 1.0)


def random_in_each_layer(mask: tl.HeadMask, seed: int) -> tl.HeadMask:
    """The heads of every layer change places at random, the same in both groups."""
    draw = torch.Generator().manual_seed(seed)
    layers, heads = mask.lit.shape
    places = torch.stack([torch.randperm(heads, generator=draw) for _ in range(layers)])  # [layer, head]
    syntactic, positional = (group.gather(1, places) for group in (mask.syntactic, mask.positional))
    return tl.HeadMask(syntactic, positional, {"by": "chance in its layer", "seed": seed})
