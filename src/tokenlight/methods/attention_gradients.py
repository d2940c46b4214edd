"""Methods from attention maps and their gradients. A = attention, G = its gradient, E_h = mean over heads."""

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.methods import method
from tokenlight.methods.attention import multiply_row
from tokenlight.record.trace import Fold, Trace

NEEDS = ("attention.grad",)
WITH_QUERY = (*NEEDS, "row")


@method(title="Grads", paper="Qiang et al. 2022 (AttCAT), figure 2", signed=True, needs=WITH_QUERY, last_block=True)
def attention_gradient(trace: Trace) -> Fold[Tensor]:
    """Gradient of the last layer's attention, mean over heads."""
    last = yield
    return trace.read_row(last.attention.gradient.mean(1))


@method(title="AttGrads", paper="Qiang et al. 2022 (AttCAT), figure 2", signed=True, needs=WITH_QUERY)
def attention_x_gradient(trace: Trace) -> Fold[Tensor]:
    """Attention times gradient, summed over layers: sum_l E_h(A * G)."""
    layers: list[Tensor] = []
    while block := (yield):
        layers.append(trace.read_row(block.attention.relevance.mean(1)))
    return torch.stack(layers).sum(0)


@method(title="Grad-SAM", paper="Barkan et al. 2021", signed=False, needs=NEEDS, aliases=("GradSAM",))
def grad_sam(trace: Trace, *, score_per: str = "key") -> Fold[Tensor]:
    """Attention times positive gradient, mean over layers, heads and queries (score_per="query": keys)."""
    if score_per not in ("key", "query"):
        raise RefusedValue(f"score_per is 'key' or 'query', found {score_per!r}")
    layers: list[Tensor] = []
    while block := (yield):
        weighted = (block.attention.value * block.attention.gradient.clamp_min(0)).mean(1)  # [batch, query, key]
        layers.append(mean_queries(weighted if score_per == "key" else weighted.mT, trace.mask))
    return torch.stack(layers).mean(0)


@method(title="CAM", paper="Song et al. 2024 (Mask-LRP), its release", signed=False, needs=NEEDS, last_block=True)
def attention_cam(trace: Trace) -> Fold[Tensor]:
    """Positive part of the last layer's attention gradient, mean over heads and queries."""
    last = yield
    return mean_queries(last.attention.gradient.mean(1), trace.mask).clamp_min(0)


@method(
    title="GradCAM",
    paper="Chefer et al. 2021b, baseline",
    signed=False,
    needs=WITH_QUERY,
    last_block=True,
    aliases=("Grad-CAM",),
)
def attention_grad_cam(trace: Trace) -> Fold[Tensor]:
    """Last layer's heads weighted by their mean gradient, positive part, scaled to [0, 1]; constant maps give 0."""
    last = (yield).attention
    real = trace.mask
    inside = real[:, :, None] & real[:, None, :]  # [batch, query, key]
    weights = masked_mean(last.gradient, inside[:, None], dim=(2, 3))  # [batch, head]
    maps = (weights[:, :, None, None] * last.value).mean(1).clamp_min(0)
    low = maps.masked_fill(~inside, torch.inf).amin((1, 2), keepdim=True)
    high = maps.masked_fill(~inside, -torch.inf).amax((1, 2), keepdim=True)
    spread = high - low
    return trace.read_row(torch.where(spread > 0, (maps - low) / spread, 0.0))


@method(
    title="GAE",
    paper="Chefer et al. 2021a",
    signed=False,
    needs=WITH_QUERY,
    aliases=("Generic Attention Explainability",),
)
def generic_attention(trace: Trace) -> Fold[Tensor]:
    """Product over layers of (I + E_h((A * G)+)), later layers on the left."""
    row = trace.first_row()
    while block := (yield):
        row = multiply_row(row, block.attention.relevance.clamp_min(0).mean(1), normalize=False)
    return row[:, 0]


def mean_queries(maps: Tensor, real: Tensor) -> Tensor:
    """The mean over the queries that are not padding: [batch, query, key] -> [batch, key]."""
    return masked_mean(maps, real[:, :, None], dim=(1,))


def masked_mean(tensor: Tensor, keep: Tensor, dim: tuple[int, ...]) -> Tensor:
    """The mean over the axes `dim` of the elements for which `keep` is true."""
    keep = keep.expand_as(tensor)
    return torch.where(keep, tensor, 0.0).sum(dim) / keep.sum(dim)
