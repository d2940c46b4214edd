"""Layer-wise relevance propagation: value times gradient under a rule table (see `rulesets.py`)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tokenlight.methods import Attribution, Pass, details, method
from tokenlight.methods.attention import roll_out
from tokenlight.methods.gradients import signal_at
from tokenlight.rules import RuleTable
from tokenlight.rulesets import ALPHA_BETA, ATTN_LRP, LRP, LRP_UNIFORM, ZPLUS
from tokenlight.trace import Trace

DETAILS = {"layers": "hidden.grad", "heads": "context.grad", "neurons": "hidden.grad"}


def relevance_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    read = "hidden.grad" if options["read"] == "blocks" else "embeddings.grad"
    return (read, *(DETAILS[name] for name in details(options["detail"], DETAILS)))


def lrp_rules(options: Mapping[str, Any]) -> RuleTable:
    if options["gate"] not in ("constant", "uniform"):
        raise ValueError(f"gate is 'constant' or 'uniform', found {options['gate']!r}")
    return LRP if options["gate"] == "constant" else LRP_UNIFORM


@method(
    title="LRP",
    paper="Ali et al. 2022; Arras et al. 2025",
    signed=True,
    passes=(Pass(relevance_needs, lrp_rules),),
    aliases=("CP-LRP", "Conservative LRP"),
)
def lrp(
    trace: Trace, *, read: str = "embeddings", detail: Any = (), layer: int = 0, gate: str = "constant"
) -> Attribution:
    """Attention and norm scale are constants, activations pass relevance unchanged: conserves the score.

    gate="uniform" shares the product of a gated MLP evenly between gate and signal.
    """
    return read_relevance(trace, read, detail, layer)


@method(
    title="AttnLRP",
    paper="Achtibat et al. 2024; Arras et al. 2025",
    signed=True,
    passes=(Pass(relevance_needs, ATTN_LRP),),
)
def attn_lrp(trace: Trace, *, read: str = "embeddings", detail: Any = (), layer: int = 0) -> Attribution:
    """Relevance also flows into queries and keys: products share evenly, the softmax by its gradient."""
    return read_relevance(trace, read, detail, layer)


@method(
    title="LRP-α1β0",
    paper="Bach et al. 2015; Arras et al. 2025, appendix D.2",
    signed=True,
    passes=(Pass(relevance_needs, ALPHA_BETA),),
    aliases=("LRP-alpha1beta0",),
)
def alpha_beta_lrp(trace: Trace, *, read: str = "embeddings", detail: Any = (), layer: int = 0) -> Attribution:
    """As LRP, but linear layers pass relevance only along positive contributions."""
    return read_relevance(trace, read, detail, layer)


@method(
    title="LRP (z+)",
    paper="Chefer et al. 2021b; called LRP in Mask-LRP",
    signed=True,
    split=True,
    passes=(Pass(relevance_needs, ZPLUS, unit=True, double=True),),
)
def zplus_lrp(trace: Trace, *, read: str = "blocks", detail: Any = (), layer: int = 0) -> Attribution:
    """Chefer's engine down to the first block's input; sums to 1."""
    return read_relevance(trace, read, detail, layer, total=torch.ones_like(trace.score))


@method(
    title="PartialLRP",
    paper="Voita et al. 2019, as used by Chefer et al. 2021b",
    signed=False,
    split=True,
    passes=(Pass(("attention.grad",), ZPLUS, unit=True, double=True),),
    aliases=("Partial LRP",),
)
def partial_lrp(trace: Trace) -> Tensor:
    """Positive relevance of the last layer's attention, mean over heads."""
    return trace.read_row(trace.attention[-1].relevance.clamp_min(0).mean(1))


@method(
    title="TransAtt",
    paper="Chefer et al. 2021b",
    signed=False,
    split=True,
    passes=(Pass(("attention.grad",), ZPLUS, unit=True, double=True), Pass(("attention.grad",))),
    aliases=("Transformer Attribution", "Trans. Attr."),
)
def transformer_attribution(relevance: Trace, plain: Trace, *, normalise: bool = True) -> Tensor:
    """Attention relevance times attention gradient, positive part, rolled out over all layers.

    normalise=False leaves out the row normalisation, as the paper's formula does and its code does not.
    """
    maps = []
    for signal, gradient in zip(relevance.attention, plain.attention, strict=True):
        assert gradient.grad is not None
        maps.append((signal.relevance * gradient.grad).clamp_min(0).mean(1))
    return relevance.read_row(roll_out(maps, normalise))


def read_relevance(trace: Trace, read: str, detail: Any, layer: int, total: Tensor | None = None) -> Attribution:
    """Scores at the embeddings (or block inputs), what is missing to the total, and maps of what lies between."""
    scores = signal_at(trace, read).relevance.sum(-1)
    total = trace.score if total is None else total
    extras = {"bias_share": torch.zeros_like(total) + trace.bias_share}
    if trace.branches is not None:  # a table of the user's that makes a whole branch a constant
        extras["bias_share"] = extras["bias_share"] + trace.branches.sum(1)
    if isinstance(trace.softmax_deficit, Tensor):
        extras["softmax_deficit"] = trace.softmax_deficit
    residual = torch.stack([scores.sum(1), *extras.values()]).sum(0) - total
    maps = {name: relevance_map(trace, name, layer) for name in details(detail, DETAILS)}
    return Attribution(scores, {**extras, "residual": residual}, maps)


def relevance_map(trace: Trace, name: str, layer: int) -> Tensor:
    """layers: [batch, layer, token] at every block's input and the last output; heads: [batch, layer, head];
    neurons: [batch, token, dim] at the input of block `layer`."""
    if name == "layers":
        return torch.stack([signal.relevance.sum(-1) for signal in trace.hidden], 1)
    if name == "heads":
        return torch.stack([signal.relevance.sum((2, 3)) for signal in trace.context], 1)
    if not 0 <= layer < len(trace.hidden):
        raise ValueError(f"layer {layer} is not among the block inputs 0 to {len(trace.hidden) - 1}")
    return trace.hidden[layer].relevance
