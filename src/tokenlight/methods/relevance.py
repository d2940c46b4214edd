"""Layer-wise relevance propagation: value times gradient under a rule table (`rules/tables.py`)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.heads.mask import CALIBRATED
from tokenlight.methods import Attribution, GatesWith, Pass, Rules, method, options_of, select_maps
from tokenlight.methods.attention import multiply_row
from tokenlight.methods.gradients import signal_at
from tokenlight.record.trace import Fold, PairFold, Trace
from tokenlight.rules.head_gates import Gates
from tokenlight.rules.linear_layers import alpha_beta_rules, check_parameter, epsilon_rules, gamma_rules
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.tables import ALPHA_BETA, ATTN_LRP, LRP, LRP_UNIFORM, ZPLUS

DETAILS = {"layers": "hidden.grad", "heads": "context.grad", "neurons": "hidden.grad"}


def relevance_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    read = "hidden.grad" if options["read"] == "blocks" else "embeddings.grad"
    return (read, *(DETAILS[name] for name in select_maps(options["detail"], DETAILS)))


def lrp_rules(options: Mapping[str, Any]) -> RuleTable:
    if options["gate"] not in ("constant", "uniform"):
        raise RefusedValue(f"gate is 'constant' or 'uniform', found {options['gate']!r}")
    return with_linear_rules("lrp" if options["gate"] == "constant" else "lrp_uniform", options)


def attn_lrp_rules(options: Mapping[str, Any]) -> RuleTable:
    return with_linear_rules("attn_lrp", options)


def alpha_beta_lrp_rules(options: Mapping[str, Any]) -> RuleTable:
    alpha, beta = (check_parameter(name, options[name]) for name in ("alpha", "beta"))
    return ALPHA_BETA if (alpha, beta) == (1, 0) else make_table("lrp", "alpha_beta", alpha, beta)


BASES: Mapping[str, RuleTable] = {"lrp": LRP, "lrp_uniform": LRP_UNIFORM, "attn_lrp": ATTN_LRP}
LINEAR: Mapping[str, Callable[..., RuleTable]] = {
    "epsilon": epsilon_rules,
    "gamma": gamma_rules,
    "alpha_beta": alpha_beta_rules,
}


def with_linear_rules(base: str, options: Mapping[str, Any]) -> RuleTable:
    """A published table with LRP-ε or LRP-γ at linear layers; without a change if both parameters are 0."""
    parameters = {name: value for name in ("epsilon", "gamma") if (value := check_parameter(name, options[name]))}
    if len(parameters) > 1:
        raise RefusedValue("epsilon and gamma are rules for the same layers: leave one of them at 0")
    return next((make_table(base, name, value) for name, value in parameters.items()), BASES[base])


@lru_cache(maxsize=64)  # methods share passes under the same table, and tables are compared by identity
def make_table(base: str, rule: str, *parameters: float) -> RuleTable:
    """A published table in which linear layers have another rule with these parameters."""
    return BASES[base] | LINEAR[rule](*parameters)


def stopping_gates(options: Mapping[str, Any]) -> Gates | None:
    """Gates that drop the relevance that arrives at heads outside the mask; it is entered in the ledger."""
    heads = options["heads"]
    return None if heads is None else Gates(heads.groups)


def conserving_gates(options: Mapping[str, Any]) -> Gates | None:
    """The two normalizations of Mask-LRP: the lit heads of a block take the relevance that arrives at all its heads."""
    gates = stopping_gates(options)
    return gates and replace(gates, conserve=True, empty=options["empty"])


def relevance_method(
    *,
    rules: Rules,
    gates: GatesWith = stopping_gates,
    unit: bool = False,
    double: bool = False,
    **description: Any,
) -> Callable[[Callable[..., None]], Callable[..., Attribution]]:
    """Register a method that reads relevance in one pass under rules; `description` is given on to `method`.

    The decorated function is a declaration: it has the name, the docstring and the options of the method. What the
    options other than `read`, `detail` and `layer` mean is decided by `rules` and `gates`, which are functions of them.
    """
    relevance_pass = Pass(relevance_needs, rules, unit=unit, double=double, gates=gates)

    def register(declaration: Callable[..., None]) -> Callable[..., Attribution]:
        defaults = options_of(declaration)

        @wraps(declaration)
        def scores(trace: Trace, **given: Any) -> Attribution:
            options = {**defaults, **given}
            total = torch.ones_like(trace.score) if unit else trace.score
            return read_relevance(trace, options["read"], options["detail"], options["layer"], total)

        return method(signed=True, passes=(relevance_pass,), **description)(scores)

    return register


@relevance_method(
    title="LRP",
    paper="Ali et al. 2022; Arras et al. 2025",
    rules=lrp_rules,
    aliases=("CP-LRP", "Conservative LRP"),
)
def lrp(
    *,
    read: str = "embeddings",
    detail: Any = (),
    layer: int = 0,
    gate: str = "constant",
    epsilon: float = 0.0,
    gamma: float = 0.0,
    heads: Any = None,
) -> None:
    """Attention weights and norm scales are constants, activations leave relevance unchanged; conserves the score.

    gate="uniform" shares the product of a gated MLP evenly between gate and signal. `epsilon` or `gamma` above 0 puts
    LRP-ε or LRP-γ at linear layers. With `heads`, no relevance flows back through the other heads.
    """


@relevance_method(
    title="AttnLRP",
    paper="Achtibat et al. 2024; Arras et al. 2025",
    rules=attn_lrp_rules,
)
def attn_lrp(
    *,
    read: str = "embeddings",
    detail: Any = (),
    layer: int = 0,
    epsilon: float = 0.0,
    gamma: float = 0.0,
    heads: Any = None,
) -> None:
    """Relevance also flows into queries and keys: products share it evenly, the softmax uses its gradient.

    `epsilon` or `gamma` above 0 puts LRP-ε or LRP-γ at linear layers.
    """


@relevance_method(
    title="ContextLRP",
    paper="tokenlight; after Achtibat et al. 2024, Owen 1972, Banzhaf 1965",
    rules=ATTN_LRP,
    averaged={"contexts": 8},
    cost="9 × forward + backward under rules",
    aliases=("best",),
)
def context_lrp(*, read: str = "embeddings", detail: Any = (), layer: int = 0, heads: Any = None) -> None:
    """AttnLRP, averaged over eight contexts with random halves of the text removed; more faithful on classifiers.

    `contexts` and `removal` are options of every method that reads recorded passes (docs/contexts.md).
    """


CALIBRATED_RULES = {"attn_lrp": ATTN_LRP, "lrp": LRP}


def calibrated_rules(options: Mapping[str, Any]) -> RuleTable:
    """The table of the method that the head mask was calibrated for; AttnLRP's for masks by hand and without a mask."""
    heads = options["heads"]
    calibrated_for = "attn_lrp" if heads is None else heads.made.get("method", "attn_lrp")
    if calibrated_for not in CALIBRATED_RULES:
        raise RefusedValue(
            f"the head mask was calibrated for {calibrated_for}: use it as method={calibrated_for!r} with heads=, or "
            f"calibrate one for {' or '.join(CALIBRATED_RULES)}"
        )
    return CALIBRATED_RULES[calibrated_for]


@relevance_method(
    title="Calibrated LRP",
    paper="tokenlight; after Achtibat et al. 2024, Song et al. 2024",
    rules=calibrated_rules,
)
def calibrated_lrp(*, read: str = "embeddings", detail: Any = (), layer: int = 0, heads: Any = CALIBRATED) -> None:
    """AttnLRP through heads whose strengths were chosen by measured faithfulness.

    `heads` is a mask from `tokenlight calibrate` (docs/calibration.md); the embedded model has one. A mask that was
    calibrated for lrp runs under the rules of lrp.
    """


@relevance_method(
    title="LRP-α1β0",
    paper="Bach et al. 2015; Arras et al. 2025, appendix D.2",
    rules=alpha_beta_lrp_rules,
    aliases=("LRP-alpha1beta0",),
)
def alpha_beta_lrp(
    *,
    read: str = "embeddings",
    detail: Any = (),
    layer: int = 0,
    alpha: float = 1.0,
    beta: float = 0.0,
    heads: Any = None,
) -> None:
    """As LRP, but linear layers pass relevance only along positive contributions.

    `alpha` and `beta` weight positive and negative contributions; `alpha` - `beta` is 1.
    """


@relevance_method(
    title="LRP (z+)",
    paper="Chefer et al. 2021b; called LRP in Mask-LRP",
    rules=ZPLUS,
    gates=conserving_gates,
    unit=True,
    double=True,
    split=True,
)
def zplus_lrp(
    *,
    read: str = "blocks",
    detail: Any = (),
    layer: int = 0,
    heads: Any = None,
    empty: str = "all",
) -> None:
    """The z+ rules of Chefer et al. down to the first block's input; scores sum to 1.

    With `heads`, relevance flows only through these; `heads` and `empty` are options of mask_lrp.
    """


@method(
    title="PartialLRP",
    paper="Voita et al. 2019, as used by Chefer et al. 2021b",
    signed=False,
    split=True,
    passes=(Pass(("attention.grad", "row"), ZPLUS, unit=True, double=True, last_block=True),),
    aliases=("Partial LRP",),
)
def partial_lrp(trace: Trace) -> Fold[Tensor]:
    """Positive relevance of the last layer's attention, mean over heads."""
    last = yield
    return trace.read_row(last.attention.relevance.clamp_min(0).mean(1))


@method(
    title="TransAtt",
    paper="Chefer et al. 2021b",
    signed=False,
    split=True,
    passes=(
        Pass(("attention.grad", "row"), ZPLUS, unit=True, double=True, gates=conserving_gates),
        Pass(("attention.grad",)),
    ),
    aliases=("Transformer Attribution", "Trans. Attr."),
)
def transformer_attribution(
    relevance: Trace, plain: Trace, *, normalize: bool = True, heads: Any = None, empty: str = "all"
) -> PairFold[Tensor]:
    """Attention relevance times attention gradient, positive part, rolled out over all layers.

    normalize=False leaves out the row normalization, as in the paper's formula but not in its code. With `heads`,
    relevance flows only through these; `heads` and `empty` are options of mask_lrp.
    """
    row = relevance.first_row()
    while blocks := (yield):
        stored, gradient = blocks[0].attention.relevance, blocks[1].attention.gradient
        row = multiply_row(row, positive_part(stored, gradient), normalize)
    return row[:, 0]


def mask_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    if options["variant"] not in ("paper", "released"):
        raise RefusedValue(f"variant is 'paper' or 'released', found {options['variant']!r}")
    signals = ("attention.grad",) if options["variant"] == "paper" else ("attention", "values", "gated.grad")
    return (*signals, "row")


def mask_gates(options: Mapping[str, Any]) -> Gates | None:
    return conserving_gates(options) if options["variant"] == "paper" else stopping_gates(options)


@method(
    title="Mask-LRP",
    paper="Song et al. 2024, section 4.3, eq. 9 to 11",
    signed=False,
    split=True,
    passes=(Pass(mask_needs, ZPLUS, unit=True, double=True, gates=mask_gates), Pass(("attention.grad",))),
    aliases=("Mask LRP", "MLRP"),
)
def mask_lrp(
    relevance: Trace,
    plain: Trace,
    *,
    heads: Any = "own",
    variant: str = "paper",
    empty: str = "all",
    normalize: bool = True,
) -> PairFold[Attribution]:
    """TransAtt with relevance flowing only through heads that follow syntax or position.

    `heads` is a HeadMask, its file, or a tensor [layer, head]. `empty` decides about the attention relevance of a block
    without a lit head: "all" passes it through all heads of that block, as without a mask, "residual" gives it to the
    residual branch, "drop" drops it. variant="released" is what the authors' code computes: a block's mask acts only on
    the blocks below it, every stored relevance is doubled, and relevance at dark heads is dropped for every value of
    `empty`. normalize=False leaves out the row normalization, as in the paper's eq. 10 and 11.
    """
    row = relevance.first_row()
    while blocks := (yield):
        block, gradient = blocks[0], blocks[1].attention.gradient
        if variant == "paper":
            stored = block.attention.relevance
        else:
            stored = block.attention.value * (block.gated.gradient @ block.values.value.mT)
        row = multiply_row(row, positive_part(stored, gradient), normalize)
    return Attribution(row[:, 0], {"masked_share": torch.zeros_like(relevance.score) + relevance.masked_share})


def positive_part(stored: Tensor, gradient: Tensor) -> Tensor:
    """Attention relevance times attention gradient, mean over heads: [batch, query, key]."""
    return (stored * gradient).clamp_min(0).mean(1)


def read_relevance(trace: Trace, read: str, detail: Any, layer: int, total: Tensor | None = None) -> Attribution:
    """Scores at the embeddings or block inputs, the shares that do not reach them as extras, and the maps in `detail`.

    The residual is the sum of scores and shares minus `total`, which is the explained score by default.
    """
    scores = signal_at(trace, read).relevance.sum(-1)
    total = trace.score if total is None else total
    extras = {"bias_share": torch.zeros_like(total) + trace.bias_share}
    if trace.branches is not None:  # of a rule table that makes a whole branch a constant
        extras["bias_share"] = extras["bias_share"] + trace.branches.sum(1)
    if isinstance(trace.softmax_deficit, Tensor):
        extras["softmax_deficit"] = trace.softmax_deficit
    if isinstance(trace.sink_share, Tensor):
        extras["sink_share"] = trace.sink_share
    if isinstance(trace.masked_share, Tensor):
        extras["masked_share"] = trace.masked_share
    residual = torch.stack([scores.sum(1), *extras.values()]).sum(0) - total
    maps = {name: relevance_map(trace, name, layer) for name in select_maps(detail, DETAILS)}
    return Attribution(scores, {**extras, "residual": residual}, maps)


def relevance_map(trace: Trace, name: str, layer: int) -> Tensor:
    """Relevance inside the model, by the name of the map.

    "layers": [batch, layer, token] at every block's input and the last block's output; "heads": [batch, layer, head];
    "neurons": [batch, token, dim] at the input of block `layer`.
    """
    if name == "layers":
        return torch.stack([signal.relevance.sum(-1) for signal in trace.hidden], 1)
    if name == "heads":
        return torch.stack([signal.relevance.sum((2, 3)) for signal in trace.context], 1)
    if not 0 <= layer < len(trace.hidden):
        raise RefusedValue(f"layer {layer} is not among the block inputs 0 to {len(trace.hidden) - 1}")
    return trace.hidden[layer].relevance
