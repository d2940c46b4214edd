"""Attention itself: which tokens are looked at, whatever the answer."""

from torch import Tensor

from tokenlight.methods import method
from tokenlight.record.folding import Fold
from tokenlight.record.trace import Trace


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
def rollout(trace: Trace) -> Fold[Tensor]:
    """Attention with residual connections, multiplied over all layers."""
    row = trace.first_row()
    while block := (yield):
        row = roll_down(row, block.attention.value.mean(1))
    return row[:, 0]


def roll_down(row: Tensor, layer: Tensor, normalise: bool = True) -> Tensor:
    """A row [batch, 1, query] through a layer's map [batch, query, key] plus identity, whose rows are normalised."""
    row = row.to(layer)
    if normalise:
        row = row / (layer.sum(-1) + 1)[:, None]
    return row + row @ layer
