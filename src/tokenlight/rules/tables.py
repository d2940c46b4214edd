"""The LRP variants, and guided backpropagation, as tables. Combine with `|`: `LRP | {activation: rules.constant}`."""

import torch
from torch.nn import functional as F

from tokenlight.rules import arrangements, fused, guided, positive, spellings
from tokenlight.rules import replacements as rules
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.points import add_sinks, attend, mask_scores, mix_values, query_key, recurrence, scan, weigh
from tokenlight.rules.spellings import ACTIVATIONS, LINEAR_LAYERS, MATRIX_PRODUCTS, PRODUCTS, SOFTMAXES, SUMS
from tokenlight.rules.state_spaces import through_gated_state, through_state

SHARED: RuleTable = (
    dict.fromkeys(ACTIVATIONS, rules.identity)
    | dict.fromkeys(spellings.SCALES, arrangements.scale)
    | dict.fromkeys(spellings.QUOTIENTS, arrangements.divided)
    | dict.fromkeys(spellings.CLIPPING, arrangements.clipped)
    | dict.fromkeys(spellings.EXTREMES, arrangements.extreme)
    | dict.fromkeys((*spellings.JOINING, *spellings.CONVOLUTIONS), arrangements.joining)
    | dict.fromkeys(spellings.LOGSUMEXPS, rules.by_gradient)
    | {mask_scores: rules.plain, add_sinks: arrangements.absorbing_sinks}
    | {F.layer_norm: rules.linear_norm, scan: through_state, recurrence: through_gated_state}
)

# Ali et al. 2022, "conservative": attention, gates and the norms' scale are constants.
LRP: RuleTable = (
    SHARED
    | dict.fromkeys(SUMS, rules.absorbing_sum)
    | dict.fromkeys(PRODUCTS, rules.through_signal)
    | {F.linear: rules.absorbing_linear, torch.addmm: rules.absorbing_addmm}
    | dict.fromkeys(MATRIX_PRODUCTS, rules.through_values)
    | dict.fromkeys(SOFTMAXES, rules.constant)
    | {query_key: rules.constant, mix_values: rules.plain, attend: fused.through_values}
)

# The same with gates that share evenly.
LRP_UNIFORM: RuleTable = LRP | dict.fromkeys(PRODUCTS, rules.halved)

# Achtibat et al. 2024: products share evenly, the softmax passes relevance by its gradient.
ATTN_LRP: RuleTable = (
    LRP_UNIFORM
    | dict.fromkeys(MATRIX_PRODUCTS, rules.halved)
    | dict.fromkeys(SOFTMAXES, rules.gradient_softmax)
    | dict.fromkeys(spellings.EXPONENTIALS, rules.by_gradient)
    | {query_key: rules.halved, mix_values: rules.halved, attend: fused.by_gradient}
)

# Arras et al. 2025, appendix D.2: positive contributions at linear layers, otherwise as LRP.
ALPHA_BETA: RuleTable = (
    LRP
    | {F.linear: positive.alpha_beta_linear, torch.addmm: positive.alpha_beta_addmm}
    | {weigh: positive.alpha_beta_linear}
)

# What reaches the output along the residual stream alone: attention and MLP outputs are cut off where they join it.
STREAM: RuleTable = (
    LRP
    | dict.fromkeys(ACTIVATIONS, rules.cut)
    | dict.fromkeys(PRODUCTS, rules.cut_gated)
    | dict.fromkeys(MATRIX_PRODUCTS, rules.cut_mixed)
    | dict.fromkeys(SOFTMAXES, rules.constant_gate)
    | {mix_values: rules.constant, attend: fused.nothing_passes}
)

# Chefer et al. 2021b: z+ without bias, identity through norms and softmax, the conserving residual sum.
ZPLUS: RuleTable = (
    SHARED
    | dict.fromkeys(SUMS, rules.conserving_sum)
    | dict.fromkeys((*PRODUCTS, *MATRIX_PRODUCTS), rules.halved)
    | dict.fromkeys(SOFTMAXES, rules.identity)
    | {F.linear: positive.zplus_linear, torch.addmm: positive.zplus_addmm, F.layer_norm: rules.identity_norm}
    | {weigh: positive.zplus_linear, query_key: rules.halved, mix_values: rules.halved}
)

TABLES = (LRP, LRP_UNIFORM, ATTN_LRP, ALPHA_BETA, STREAM, ZPLUS)

# Springenberg et al. 2015: no relevance, but the gradient itself, of which ReLUs let only the positive part through.
GUIDED: RuleTable = (
    dict.fromkeys(ACTIVATIONS, guided.guided_activation)
    | dict.fromkeys(spellings.SATURATING, guided.plain_gate)
    | dict.fromkeys((*spellings.CLIPPING, F.hardtanh), guided.guided_clipping)
    | dict.fromkeys(spellings.EXTREMES, guided.guided_extreme)
    | dict.fromkeys((scan, recurrence), guided.refused_recurrence)
    | dict.fromkeys((*LINEAR_LAYERS, *SUMS, *PRODUCTS, *spellings.QUOTIENTS, *MATRIX_PRODUCTS), rules.plain)
    | dict.fromkeys((*SOFTMAXES, *spellings.LOGSUMEXPS, *spellings.SCALES, *spellings.NORMS), rules.plain)
    | dict.fromkeys((*spellings.JOINING, *spellings.CONVOLUTIONS), rules.plain)
    | {query_key: rules.plain, mask_scores: rules.plain, add_sinks: rules.plain, mix_values: rules.plain}
    | {attend: fused.plain_attention}
)
