"""Methods that read attention maps alone and do not depend on the target."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tokenlight.common.progress import report_step
from tokenlight.methods import Attribution, method
from tokenlight.methods.max_flow import ONE, maximum_flow, to_capacities
from tokenlight.record.trace import Fold, Trace


@method(
    title="RawAtt",
    paper="Bahdanau et al. 2015; Vaswani et al. 2017",
    signed=False,
    class_specific=False,
    needs=("attention", "row"),
    last_block=True,
    aliases=("Raw Attention",),
)
def raw_attention(trace: Trace) -> Fold[Tensor]:
    """Attention of the last layer, mean over heads."""
    last = yield
    return trace.read_row(last.attention.value.mean(1))


@method(
    title="Rollout",
    paper="Abnar & Zuidema 2020",
    signed=False,
    class_specific=False,
    needs=("attention", "row"),
    aliases=("Attention Rollout",),
)
def rollout(trace: Trace, *, layers: bool = False) -> Fold[Attribution]:
    """Attention with residual connections, multiplied over all layers.

    layers=True also gives every layer's matrix and the products up to every layer.
    """
    row, matrices = trace.first_row(), []
    while block := (yield):
        attention = block.attention.value.mean(1)
        row = multiply_row(row, attention)
        if layers:
            matrices.append(with_residual(attention, trace.mask))
    return Attribution(row[:, 0], maps=layer_maps(matrices))


def with_residual(attention: Tensor, mask: Tensor) -> Tensor:
    """A + I with normalized rows [batch, query, key]; rows of padding are 0."""
    mixed = attention + torch.eye(attention.shape[-1], dtype=attention.dtype, device=attention.device)
    return mixed / mixed.sum(-1, keepdim=True) * mask[:, :, None]


def layer_maps(matrices: Sequence[Tensor]) -> dict[str, Tensor]:
    """Maps [batch, layer, query, key] from the matrices C^l of the layers, given from the last layer to the first.

    "contributions" are the matrices, "mixing" the products R^l = C^l ... C^1: how much of each input token is in each
    token's state after layer l (Ferrando et al. 2022, eq. 8 and 11). Without matrices there are no maps.
    """
    if not matrices:
        return {}
    upwards = list(matrices[::-1])
    products = upwards[:1]
    for matrix in upwards[1:]:
        products.append(matrix @ products[-1])
    return {"contributions": torch.stack(upwards, 1), "mixing": torch.stack(products, 1)}


@method(
    title="Attention Flow",
    paper="Abnar & Zuidema 2020",
    signed=False,
    class_specific=False,
    needs=("attention", "row"),
    slow=True,
    cost="forward, tokens × maximum flow",
)
def attention_flow(trace: Trace) -> Fold[Tensor]:
    """Maximum flow from the explained position to each token, with attention and residual connections as capacities.

    The capacities between layers are rownorm(mean_h A + I), as in rollout. If several query positions are read, the
    result is the sum of their flows, weighted by the query weights.
    """
    layers: list[Tensor] = []  # from the last to the first, each [batch, query, key]
    while block := (yield):
        weights = block.attention.value.mean(1).double()
        weights = weights + torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        layers.append((weights / weights.sum(-1, keepdim=True)).cpu())
    maps = torch.stack(layers, 1).numpy()  # [batch, layer, query, key]
    scores = torch.zeros(trace.rows.shape, dtype=torch.float64)
    for text, positions in enumerate(trace.rows.cpu()):
        real = trace.mask[text].nonzero()[:, 0].cpu().numpy()  # the graph has no nodes for padding
        capacities = to_capacities(maps[text][:, real][:, :, real])
        for position, weight in enumerate(positions[real].tolist()):
            if weight:
                scores[text, real] += weight * torch.from_numpy(flows_from(position, capacities))
    return scores.to(trace.score)


def flows_from(position: int, capacities: np.ndarray) -> np.ndarray:
    """The maximum flow from a position of the last layer to each token of the input: [token]."""
    flows: list[float] = []
    for token in range(capacities.shape[-1]):
        report_step()
        flows.append(maximum_flow(capacities, position, token) / ONE)
    return np.array(flows)


def multiply_row(row: Tensor, layer: Tensor, normalize: bool = True) -> Tensor:
    """row @ (layer + I) [batch, 1, key], for a row [batch, 1, query] and a layer's map [batch, query, key].

    With `normalize`, the rows of layer + I are divided by their sums.
    """
    row = row.to(layer)
    if normalize:
        row = row / (layer.sum(-1) + 1)[:, None]
    return row + row @ layer
