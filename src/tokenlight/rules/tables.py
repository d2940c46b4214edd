"""The LRP variants as tables: data only. Combine with `|`: `LRP | {activation: rules.constant}`."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules import fused
from tokenlight.rules import replacements as rules
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.points import activation, attend, mask_scores, mix_values, query_key

ACTIVATIONS = (  # those of transformers are one operation of ours; torch's, as modules or bare, are these functions
    *(activation, F.gelu, F.silu, F.relu, torch.relu, Tensor.relu, torch.tanh, Tensor.tanh, torch.sigmoid),
    *(Tensor.sigmoid, F.leaky_relu, F.mish, F.elu, F.selu, F.celu, F.prelu, F.rrelu, F.relu6, F.threshold),
    *(F.hardtanh, F.hardswish, F.hardsigmoid, F.hardshrink, F.softshrink, F.tanhshrink, F.softplus, F.softsign),
    F.logsigmoid,
)
LINEAR_LAYERS = (F.linear, torch.addmm)
SUMS = (Tensor.add, torch.add)
PRODUCTS = (Tensor.mul, torch.mul)
SQUARES = (Tensor.pow, torch.pow, Tensor.square, torch.rsqrt, Tensor.rsqrt)  # how RMSNorm writes its scale

SHARED: RuleTable = (
    dict.fromkeys(ACTIVATIONS, rules.identity)
    | dict.fromkeys(SQUARES, rules.constant)
    | {mask_scores: rules.plain, F.layer_norm: rules.linear_norm}
)

# Ali et al. 2022, "conservative": attention, gates and the norms' scale are constants.
LRP: RuleTable = (
    SHARED
    | dict.fromkeys(SUMS, rules.absorbing_sum)
    | dict.fromkeys(PRODUCTS, rules.through_signal)
    | {F.linear: rules.absorbing_linear, torch.addmm: rules.absorbing_addmm}
    | {query_key: rules.constant, F.softmax: rules.constant, mix_values: rules.plain, attend: fused.through_values}
)

# The same with gates that share evenly.
LRP_UNIFORM: RuleTable = LRP | dict.fromkeys(PRODUCTS, rules.halved)

# Achtibat et al. 2024: products share evenly, the softmax passes relevance by its gradient.
ATTN_LRP: RuleTable = LRP_UNIFORM | {
    query_key: rules.halved,
    F.softmax: rules.gradient_softmax,
    mix_values: rules.halved,
    attend: fused.by_gradient,
}

# Arras et al. 2025, appendix D.2: positive contributions at linear layers, otherwise as LRP.
ALPHA_BETA: RuleTable = LRP | {F.linear: rules.alpha_beta_linear, torch.addmm: rules.alpha_beta_addmm}

# What reaches the output along the residual stream alone: attention and MLP outputs are cut off where they join it.
STREAM: RuleTable = (
    LRP
    | dict.fromkeys(ACTIVATIONS, rules.cut)
    | dict.fromkeys(PRODUCTS, rules.cut_gated)
    | {mix_values: rules.constant, attend: fused.nothing_passes}
)

# Chefer et al. 2021b: z+ without bias, identity through norms and softmax, the conserving residual sum.
ZPLUS: RuleTable = (
    SHARED
    | dict.fromkeys(SUMS, rules.conserving_sum)
    | dict.fromkeys(PRODUCTS, rules.halved)
    | {F.linear: rules.zplus_linear, torch.addmm: rules.zplus_addmm, F.layer_norm: rules.identity_norm}
    | {query_key: rules.halved, F.softmax: rules.identity, mix_values: rules.halved}
)

TABLES = (LRP, LRP_UNIFORM, ATTN_LRP, ALPHA_BETA, STREAM, ZPLUS)
