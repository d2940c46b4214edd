"""Decompose each layer into what every token brings, and mix over layers. C = a layer's contribution matrix."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.methods import Attribution, Pass, details, method
from tokenlight.methods.contributions import Layer, alti_matrix, contribution_matrices, norm_matrix, reached
from tokenlight.model.anatomy import anatomy_of, known_anatomy
from tokenlight.record.trace import Trace
from tokenlight.rules.tables import STREAM

BLOCK = ("hidden", "attention", "values", "context")


def mixing_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The row of what is explained, unless the caller names a position."""
    row = ("row",) if options["position"] is None else ()
    return (*BLOCK, "second_norm", *row) if options.get("second_norm") else (*BLOCK, *row)


def is_post_norm(model: PreTrainedModel) -> bool:
    known = anatomy_of(model)
    return known is not None and known.norm is not None


def is_known(model: PreTrainedModel) -> bool:
    return anatomy_of(model) is not None


@method(
    title="Norms",
    paper="Kobayashi et al. 2021, with rollout",
    signed=False,
    class_specific=False,
    fits=is_post_norm,
    needs=mixing_needs,
    aliases=("Value Norms",),
)
def value_norms(trace: Trace, *, layers: bool = False, position: int | None = None) -> Attribution:
    """Lengths of the vectors that each token sends, norm included, multiplied over layers."""
    return mix(trace, contribution_matrices(post_norm(trace), norm_matrix), layers, position)


@method(
    title="GlobEnc",
    paper="Modarressi et al. 2022",
    signed=False,
    class_specific=False,
    fits=is_post_norm,
    needs=lambda options: mixing_needs({**options, "second_norm": True}),
)
def globenc(trace: Trace, *, layers: bool = False, position: int | None = None) -> Attribution:
    """As value_norms, seen after the block's second norm; rows are not normalised. Post-norm encoders only."""
    return mix(trace, contribution_matrices(trace, length_matrix, second=True), layers, position)


@method(
    title="ALTI",
    paper="Ferrando et al. 2022",
    signed=False,
    class_specific=False,
    fits=is_known,
    needs=mixing_needs,
    aliases=("ALTC",),
)
def alti(
    trace: Trace, *, norm: str = "l1", second_norm: bool = False, layers: bool = False, position: int | None = None
) -> Attribution:
    """Contributions by closeness to the block's output, multiplied over layers.

    norm="l2" measures closeness by the Euclidean distance; second_norm=True looks after the block's second norm.
    position reads another token's row than that of the explained output.
    """
    return mix(trace, contribution_matrices(trace, alti_with(norm), second_norm), layers, position)


@method(
    title="ALTI-Logit",
    paper="Ferrando et al. 2023; Arras et al. 2025",
    signed=True,
    fits=is_known,
    passes=(Pass((*BLOCK, "context.grad", "hidden.grad"), STREAM),),
)
def alti_logit(trace: Trace, *, norm: str = "l1", detail: Any = ()) -> Attribution:
    """What each layer's attention adds to the logit, brought down to the input by the ALTI matrices below it.

    The MLPs' and biases' shares are in the extras: with the scores they add up to the score.
    """
    return logit_parts(trace, contribution_matrices(trace, alti_with(norm)), detail)


@method(
    title="Logit",
    paper="Ferrando et al. 2023",
    signed=True,
    passes=(Pass((*BLOCK, "context.grad", "hidden.grad"), STREAM),),
)
def logit(trace: Trace, *, detail: Any = ()) -> Attribution:
    """What each layer's attention adds to the logit, counted at the position it comes from."""
    return logit_parts(trace, None, detail)


def mix(trace: Trace, matrices: list[Tensor], layers: bool, position: int | None) -> Attribution:
    """The row of the explained (or the given) position in C^L ... C^1; with `layers`, also the matrices themselves."""
    rows = trace.row if position is None else torch.full_like(trace.batch.last, position)
    if position is not None and not 0 <= position < int(trace.batch.lengths.min()):
        raise ValueError(
            f"position {position} is not a token of every text; the shortest has {trace.batch.lengths.min()}"
        )
    start = torch.nn.functional.one_hot(rows, trace.mask.shape[1]).to(matrices[0])
    maps = {"contributions": torch.stack(matrices, 1)} if layers else {}
    return Attribution(bring_down(start, matrices), maps=maps)


def logit_parts(trace: Trace, matrices: list[Tensor] | None, detail: Any) -> Attribution:
    """Terms of the logit by layer, head and token; `matrices` bring a layer's terms down to the input."""
    asked = details(detail, ("layers", "heads"))
    heads = torch.stack([head_terms(trace, number) for number in range(len(trace.attention))], 1)
    terms = heads.sum(2)  # [batch, layer, token]
    direct = trace.hidden[0].relevance.sum(-1)  # the embedding's own way along the residual stream
    if matrices is None:
        by_layer = terms
    else:
        by_layer = torch.stack([bring_down(terms[:, n], matrices[:n]) for n in range(terms.shape[1])], 1)
    scores = by_layer.sum(1) + direct
    assert trace.branches is not None
    extras = {"mlp_share": trace.branches.sum(1), "bias_share": torch.zeros_like(trace.score) + trace.bias_share}
    residual = torch.stack([scores.sum(1), *extras.values()]).sum(0) - trace.score
    maps = {"mlp": trace.branches}
    if "layers" in asked:
        maps["layers"] = torch.cat([direct[:, None], by_layer], 1)  # the direct way, then each layer's attention
    if "heads" in asked:
        maps["heads"] = heads.sum(-1)
    return Attribution(scores, {**extras, "residual": residual}, maps)


def head_terms(trace: Trace, number: int) -> Tensor:
    """[batch, head, token]: what head h moves from token j into the logit, A[h, p, j] <v_j^h, gradient at p>."""
    gradient = trace.context[number].grad
    assert gradient is not None
    along = gradient @ trace.values[number].value.transpose(-1, -2)  # [batch, head, query, key]
    return (trace.attention[number].value * along).sum(2)


def bring_down(terms: Tensor, below: list[Tensor]) -> Tensor:
    """[batch, token] through the layers below, the nearest first."""
    for matrix in reversed(below):
        terms = (terms[:, None] @ matrix)[:, 0]
    return terms


def alti_with(norm: str) -> Callable[[Layer], Tensor]:
    if norm not in ("l1", "l2"):
        raise ValueError(f"norm is 'l1' or 'l2', found {norm!r}")
    return lambda layer: alti_matrix(layer, norm)


def length_matrix(layer: Layer) -> Tensor:
    return layer.vector_lengths() * reached(layer)


def post_norm(trace: Trace) -> Trace:
    """The same trace, if the model is one that norm-based methods are defined for."""
    if known_anatomy(trace.model).norm is None:
        raise ValueError(f"{type(trace.model).__name__} has no norm after its attention: it is not a post-norm model")
    return trace
