"""Attention weighted by how the answer depends on it. A = attention, G = its gradient, E_h = mean over heads."""

import torch
from torch import Tensor

from tokenlight.methods import method
from tokenlight.record.trace import Signal, Trace

NEEDS = ("attention.grad",)
WITH_ROW = (*NEEDS, "row")


@method(title="Grads", paper="Qiang et al. 2022 (AttCAT), figure 2", signed=True, needs=WITH_ROW)
def attention_gradient(trace: Trace) -> Tensor:
    """Gradient of the last layer's attention, mean over heads."""
    return trace.read_row(gradient(trace.attention[-1]).mean(1))


@method(title="AttGrads", paper="Qiang et al. 2022 (AttCAT), figure 2", signed=True, needs=WITH_ROW)
def attention_x_gradient(trace: Trace) -> Tensor:
    """Attention times gradient, summed over layers: sum_l E_h(A * G)."""
    return trace.read_row(sum_layers([signal.relevance.mean(1) for signal in trace.attention]))


@method(title="Grad-SAM", paper="Barkan et al. 2021", signed=False, needs=NEEDS, aliases=("GradSAM",))
def grad_sam(trace: Trace, *, score_per: str = "key") -> Tensor:
    """Attention times positive gradient, mean over layers, heads and queries (score_per="query": keys)."""
    if score_per not in ("key", "query"):
        raise ValueError(f"score_per is 'key' or 'query', found {score_per!r}")
    weighted = sum_layers([(s.value * gradient(s).clamp_min(0)).mean(1) for s in trace.attention])
    weighted = weighted / len(trace.attention)  # [batch, query, key]
    return mean_queries(weighted if score_per == "key" else weighted.transpose(1, 2), trace.mask)


@method(title="CAM", paper="Song et al. 2024 (Mask-LRP), its release", signed=False, needs=NEEDS)
def attention_cam(trace: Trace) -> Tensor:
    """Positive part of the last layer's attention gradient, mean over heads and queries."""
    return mean_queries(gradient(trace.attention[-1]).mean(1), trace.mask).clamp_min(0)


@method(
    title="GradCAM",
    paper="Chefer et al. 2021b, baseline",
    signed=False,
    needs=WITH_ROW,
    aliases=("Grad-CAM",),
)
def attention_grad_cam(trace: Trace) -> Tensor:
    """Last layer's heads weighted by their mean gradient, positive part, scaled to [0, 1]; constant maps give 0."""
    last, real = trace.attention[-1], trace.mask
    inside = real[:, :, None] & real[:, None, :]  # [batch, query, key]
    weights = masked_mean(gradient(last), inside[:, None], dim=(2, 3))  # [batch, head]
    maps = (weights[:, :, None, None] * last.value).mean(1).clamp_min(0)
    low = maps.masked_fill(~inside, torch.inf).amin((1, 2), keepdim=True)
    high = maps.masked_fill(~inside, -torch.inf).amax((1, 2), keepdim=True)
    spread = high - low
    return trace.read_row(torch.where(spread > 0, (maps - low) / spread, 0.0))


@method(
    title="GAE",
    paper="Chefer et al. 2021a",
    signed=False,
    needs=WITH_ROW,
    aliases=("Generic Attention Explainability",),
)
def generic_attention(trace: Trace) -> Tensor:
    """Product over layers of (I + E_h((A * G)+)), later layers on the left."""
    row = torch.nn.functional.one_hot(trace.row, trace.mask.shape[1]).to(trace.attention[0].value)[:, None]
    for signal in reversed(trace.attention):  # one row through the product, from the output down
        row = row + row @ signal.relevance.clamp_min(0).mean(1)
    return row[:, 0]


def gradient(signal: Signal) -> Tensor:
    assert signal.grad is not None
    return signal.grad


def sum_layers(layers: list[Tensor]) -> Tensor:
    return torch.stack(layers).sum(0)


def mean_queries(maps: Tensor, real: Tensor) -> Tensor:
    """[batch, query, key] -> [batch, key]: mean over the real queries."""
    return masked_mean(maps, real[:, :, None], dim=(1,))


def masked_mean(tensor: Tensor, keep: Tensor, dim: tuple[int, ...]) -> Tensor:
    keep = keep.expand_as(tensor)
    return torch.where(keep, tensor, 0.0).sum(dim) / keep.sum(dim)
