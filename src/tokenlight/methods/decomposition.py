"""Decompose each layer into what every token brings, and mix over layers. C = a layer's contribution matrix."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import Attribution, Pass, details, method
from tokenlight.methods.attention import layer_maps
from tokenlight.methods.contributions import Layer, Matrix, alti_matrix, contributions, norm_matrix, reached
from tokenlight.model.block_structure_discovery import known_structures, structures_of
from tokenlight.record.trace import Block, Fold, Trace
from tokenlight.rules.tables import STREAM

BLOCK = ("hidden", "attention", "values", "context", "projected")


def mixing_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The row of what is explained, unless the caller names a position."""
    row = ("row",) if options["position"] is None else ()
    return (*BLOCK, "second_norm", *row) if options.get("second_norm") else (*BLOCK, *row)


def is_post_norm(model: PreTrainedModel) -> bool:
    known = structures_of(model)
    return known is not None and all(one.norm is not None for one in known)


def has_second_norm(model: PreTrainedModel) -> bool:
    known = structures_of(model)
    return known is not None and all(one.second_norm is not None for one in known)


def is_known(model: PreTrainedModel) -> bool:
    return structures_of(model) is not None


@method(
    title="Norms",
    paper="Kobayashi et al. 2021, with rollout",
    signed=False,
    class_specific=False,
    fits=is_post_norm,
    needs=mixing_needs,
    aliases=("Value Norms",),
)
def value_norms(trace: Trace, *, layers: bool = False, position: int | None = None) -> Fold[Attribution]:
    """Lengths of the vectors that each token contributes, norm included, multiplied over layers."""
    return (yield from mix(post_norm(trace), norm_matrix, layers, position))


@method(
    title="GlobEnc",
    paper="Modarressi et al. 2022",
    signed=False,
    class_specific=False,
    fits=has_second_norm,
    needs=lambda options: mixing_needs({**options, "second_norm": True}),
)
def globenc(trace: Trace, *, layers: bool = False, position: int | None = None) -> Fold[Attribution]:
    """As value_norms, measured after the block's second norm; rows are not normalized. Post-norm encoders only."""
    return (yield from mix(trace, length_matrix, layers, position, second=True))


@method(
    title="ALTI",
    paper="Ferrando et al. 2022, eq. 9 to 11",
    signed=False,
    class_specific=False,
    fits=is_known,
    needs=mixing_needs,
    aliases=("ALTC",),
)
def alti(
    trace: Trace, *, norm: str = "l1", second_norm: bool = False, layers: bool = False, position: int | None = None
) -> Fold[Attribution]:
    """Contributions by closeness to the block's output, multiplied over layers.

    norm="l2" measures closeness by the Euclidean distance; second_norm=True measures after the block's second
    norm. position reads the row of another token than the explained one.
    """
    return (yield from mix(trace, alti_with(norm), layers, position, second_norm))


@method(
    title="ALTI-Logit",
    paper="Ferrando et al. 2023; Arras et al. 2025",
    signed=True,
    fits=is_known,
    passes=(Pass((*BLOCK, "context.grad", "hidden.grad"), STREAM),),
)
def alti_logit(trace: Trace, *, norm: str = "l1", detail: Any = ()) -> Fold[Attribution]:
    """What each layer's attention adds to the logit, traced to the input by the ALTI matrices of the layers below.

    The shares of MLPs and biases are in the extras; together with the scores, they add up to the score.
    """
    return (yield from logit_parts(trace, alti_with(norm), detail))


@method(
    title="Logit",
    paper="Ferrando et al. 2023",
    signed=True,
    passes=(Pass((*BLOCK, "context.grad", "hidden.grad"), STREAM),),
)
def logit(trace: Trace, *, detail: Any = ()) -> Fold[Attribution]:
    """What each layer's attention adds to the logit, counted at the position it comes from."""
    return (yield from logit_parts(trace, None, detail))


def mix(trace: Trace, matrix: Matrix, layers: bool, position: int | None, second: bool = False) -> Fold[Attribution]:
    """The row of the explained (or the given) position in C^L ... C^1; with `layers`, all matrices and products too."""
    if position is not None and not 0 <= position < int(trace.batch.lengths.min()):
        raise RefusedValue(
            f"position {position} is not a token of every text; the shortest has {trace.batch.lengths.min()}"
        )
    if position is not None:
        trace = replace(
            trace, query_weights=F.one_hot(torch.full_like(trace.batch.last, position), trace.mask.shape[1])
        )
    row, matrices, matrix_of = trace.first_row(), [], contributions(trace, matrix, second)
    while block := (yield):
        every = matrix_of(block)
        row = row.to(every) @ every
        if layers:
            matrices.append(every)
    return Attribution(row[:, 0], maps=layer_maps(matrices))


def logit_parts(trace: Trace, matrix: Matrix | None, detail: Any) -> Fold[Attribution]:
    """Terms of the logit by layer, head and token; the matrices below a layer bring its terms down to the input."""
    asked = details(detail, ("layers", "heads"))
    heads: list[Tensor] = []  # each [batch, head, token]
    by_layer = trace.score.new_zeros(*trace.mask.shape, 0).mT  # [batch, layers so far, token]
    direct = trace.score
    matrix_of = None if matrix is None else contributions(trace, matrix)
    while block := (yield):
        if matrix_of is not None and heads:
            by_layer = by_layer @ matrix_of(block).to(by_layer)
        heads.insert(0, head_terms(block))
        by_layer = torch.cat([heads[0].sum(1, keepdim=True), by_layer], 1)
        direct = block.hidden.relevance.sum(-1)  # at the first block: the embedding's own way along the stream
    scores = by_layer.sum(1) + direct
    branches = trace.branches
    if branches is None:  # what an MLP adds would be counted as if it came along the residual stream
        raise UnsupportedModelError(
            f"no block of {type(trace.model).__name__} adds the output of an MLP to the residual stream by a sum, with "
            "an activation in it that is known: what attention adds cannot be told apart. Take lrp or attn_lrp"
        )
    extras = {"mlp_share": branches.sum(1), "bias_share": torch.zeros_like(trace.score) + trace.bias_share}
    residual = torch.stack([scores.sum(1), *extras.values()]).sum(0) - trace.score
    maps = {"mlp": branches}
    if "layers" in asked:
        maps["layers"] = torch.cat([direct[:, None], by_layer], 1)  # the direct way, then each layer's attention
    if "heads" in asked:
        maps["heads"] = torch.stack(heads, 1).sum(-1)
    return Attribution(scores, {**extras, "residual": residual}, maps)


def head_terms(block: Block) -> Tensor:
    """[batch, head, token]: what head h moves from token j into the logit, A[h, p, j] <v_j^h, gradient at p>."""
    along = block.context.gradient @ block.values.value.mT  # [batch, head, query, key]
    return (block.attention.value * along).sum(2)


def alti_with(norm: str) -> Matrix:
    if norm not in ("l1", "l2"):
        raise RefusedValue(f"norm is 'l1' or 'l2', found {norm!r}")
    return lambda layer: alti_matrix(layer, norm)


def length_matrix(layer: Layer) -> Tensor:
    return layer.vector_lengths() * reached(layer)


def post_norm(trace: Trace) -> Trace:
    """The same trace, if the model is one that norm-based methods are defined for."""
    if any(one.norm is None for one in known_structures(trace.model)):
        raise RefusedValue(f"{type(trace.model).__name__} has no norm after its attention: it is not a post-norm model")
    return trace
