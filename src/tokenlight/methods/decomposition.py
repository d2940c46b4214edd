"""Methods from the contributions of tokens to each layer, multiplied over layers. C = a layer's contributions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import Attribution, Pass, method, select_maps
from tokenlight.methods.attention import layer_maps
from tokenlight.methods.contributions import Layer, Matrix, alti_matrix, contributions, norm_matrix, reachable
from tokenlight.model.block_structure_discovery import known_structures, structures_of
from tokenlight.record.trace import Block, Fold, Trace
from tokenlight.rules.tables import STREAM

BLOCK_SIGNALS = ("hidden", "attention", "values", "context", "projected")


def mixing_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The signals of blocks, and the query position of the target unless the option `position` names another one."""
    row = ("row",) if options["position"] is None else ()
    return (*BLOCK_SIGNALS, "second_norm", *row) if options.get("second_norm") else (*BLOCK_SIGNALS, *row)


def is_post_norm(model: PreTrainedModel) -> bool:
    structures = structures_of(model)
    return structures is not None and all(structure.norm is not None for structure in structures)


def has_second_norm(model: PreTrainedModel) -> bool:
    structures = structures_of(model)
    return structures is not None and all(structure.second_norm is not None for structure in structures)


def has_known_structure(model: PreTrainedModel) -> bool:
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
    return (yield from multiply_layers(require_post_norm(trace), norm_matrix, layers, position))


@method(
    title="GlobEnc",
    paper="Modarressi et al. 2022",
    signed=False,
    class_specific=False,
    fits=has_second_norm,
    needs=lambda options: mixing_needs({**options, "second_norm": True}),
)
def globenc(trace: Trace, *, layers: bool = False, position: int | None = None) -> Fold[Attribution]:
    """As value_norms, but after the block's second norm, with rows not normalized. Post-norm encoders only."""
    return (yield from multiply_layers(trace, length_matrix, layers, position, second=True))


@method(
    title="ALTI",
    paper="Ferrando et al. 2022, eq. 9 to 11",
    signed=False,
    class_specific=False,
    fits=has_known_structure,
    needs=mixing_needs,
    aliases=("ALTC",),
)
def alti(
    trace: Trace, *, norm: str = "l1", second_norm: bool = False, layers: bool = False, position: int | None = None
) -> Fold[Attribution]:
    """Contributions by closeness to the block's output, multiplied over layers.

    norm="l2" measures closeness by the Euclidean distance; second_norm=True measures after the block's second norm.
    `position` is read in place of the query position of the target.
    """
    return (yield from multiply_layers(trace, alti_with(norm), layers, position, second_norm))


@method(
    title="ALTI-Logit",
    paper="Ferrando et al. 2023; Arras et al. 2025",
    signed=True,
    fits=has_known_structure,
    passes=(Pass((*BLOCK_SIGNALS, "context.grad", "hidden.grad"), STREAM),),
)
def alti_logit(trace: Trace, *, norm: str = "l1", detail: Any = ()) -> Fold[Attribution]:
    """What each layer's attention adds to the logit, assigned to the input by the ALTI matrices of the layers below.

    The shares of MLPs and biases are in the extras; with the scores, they add up to the explained score.
    """
    return (yield from logit_parts(trace, alti_with(norm), detail))


@method(
    title="Logit",
    paper="Ferrando et al. 2023",
    signed=True,
    passes=(Pass((*BLOCK_SIGNALS, "context.grad", "hidden.grad"), STREAM),),
)
def logit(trace: Trace, *, detail: Any = ()) -> Fold[Attribution]:
    """What each layer's attention adds to the logit, assigned to the position whose value it comes from."""
    return (yield from logit_parts(trace, None, detail))


def multiply_layers(
    trace: Trace, matrix: Matrix, layers: bool, position: int | None, second: bool = False
) -> Fold[Attribution]:
    """The row of a position in C^L ... C^1: of `position`, or of the query position of the target.

    With `layers`, the matrices and products are maps. `matrix` computes C of one text, `second` is as in contributions.
    """
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
        matrix_of_block = matrix_of(block)
        row = row.to(matrix_of_block) @ matrix_of_block
        if layers:
            matrices.append(matrix_of_block)
    return Attribution(row[:, 0], maps=layer_maps(matrices))


def logit_parts(trace: Trace, matrix: Matrix | None, detail: Any) -> Fold[Attribution]:
    """Terms of the logit by layer, head and token; those of a layer are multiplied by the matrices of layers below.

    Without `matrix`, they stay at the positions whose values they come from.
    """
    map_names = select_maps(detail, ("layers", "heads"))
    heads: list[Tensor] = []  # each [batch, head, token]
    by_layer = trace.score.new_zeros(*trace.mask.shape, 0).mT  # [batch, layers above, token]
    embedding_terms = trace.score
    matrix_of = None if matrix is None else contributions(trace, matrix)
    while block := (yield):
        if matrix_of is not None and heads:
            by_layer = by_layer @ matrix_of(block).to(by_layer)
        heads.insert(0, head_terms(block))
        by_layer = torch.cat([heads[0].sum(1, keepdim=True), by_layer], 1)
        embedding_terms = block.hidden.relevance.sum(-1)  # of the first block in the end: along the residual stream
    scores = by_layer.sum(1) + embedding_terms
    branches = trace.branches
    if branches is None:  # the MLPs' terms would be part of the terms of the residual stream
        raise UnsupportedModelError(
            f"no block of {type(trace.model).__name__} adds the output of an MLP to the residual stream by a sum, with "
            "an activation in it that is known: what attention adds cannot be told apart. Take lrp or attn_lrp"
        )
    extras = {"mlp_share": branches.sum(1), "bias_share": torch.zeros_like(trace.score) + trace.bias_share}
    residual = torch.stack([scores.sum(1), *extras.values()]).sum(0) - trace.score
    maps = {"mlp": branches}
    if "layers" in map_names:
        maps["layers"] = torch.cat([embedding_terms[:, None], by_layer], 1)  # then each layer's attention
    if "heads" in map_names:
        maps["heads"] = torch.stack(heads, 1).sum(-1)
    return Attribution(scores, {**extras, "residual": residual}, maps)


def head_terms(block: Block) -> Tensor:
    """Terms of the logit by head h and token j [batch, head, token]: sum_p A[h, p, j] <v_j^h, gradient at p>."""
    products = block.context.gradient @ block.values.value.mT  # [batch, head, query, key]
    return (block.attention.value * products).sum(2)


def alti_with(norm: str) -> Matrix:
    """The contributions of ALTI with this norm, as a function of a layer."""
    if norm not in ("l1", "l2"):
        raise RefusedValue(f"norm is 'l1' or 'l2', found {norm!r}")
    return lambda layer: alti_matrix(layer, norm)


def length_matrix(layer: Layer) -> Tensor:
    return layer.vector_lengths() * reachable(layer)


def require_post_norm(trace: Trace) -> Trace:
    """The trace, if its model is a post-norm model; others are refused."""
    if any(structure.norm is None for structure in known_structures(trace.model)):
        raise RefusedValue(f"{type(trace.model).__name__} has no norm after its attention: it is not a post-norm model")
    return trace
