"""The LRP variants, and guided backpropagation, as tables. Combine with `|`: `LRP | {activation: rules.constant}`."""

import torch
from torch.nn import functional as F

from tokenlight.rules import guided, lrp_rules, ops, structural_rules
from tokenlight.rules import lrp_rules as rules
from tokenlight.rules.custom_ops import add_sinks, attend, mask_scores, mix_values, query_key, recurrence, scan, weigh
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.ops import ACTIVATIONS, LINEAR_LAYERS, MATRIX_PRODUCTS, PRODUCTS, SOFTMAXES, SUMS
from tokenlight.rules.structural_rules import through_gated_state, through_state

SHARED: RuleTable = (
    dict.fromkeys(ACTIVATIONS, rules.identity)
    | dict.fromkeys(ops.SCALES, structural_rules.scale)
    | dict.fromkeys(ops.QUOTIENTS, structural_rules.divided)
    | dict.fromkeys(ops.CLIPPING, structural_rules.clipped)
    | dict.fromkeys(ops.EXTREMES, structural_rules.extreme)
    | dict.fromkeys((*ops.JOINING, *ops.CONVOLUTIONS), structural_rules.joining)
    | dict.fromkeys(ops.LOGSUMEXPS, rules.by_gradient)
    | {mask_scores: rules.plain, add_sinks: structural_rules.absorbing_sinks}
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
    | {query_key: rules.constant, mix_values: rules.plain, attend: structural_rules.through_values}
)

# The same with gates that share evenly.
LRP_UNIFORM: RuleTable = LRP | dict.fromkeys(PRODUCTS, rules.halved)

# Achtibat et al. 2024: products share evenly, the softmax passes relevance by its gradient.
ATTN_LRP: RuleTable = (
    LRP_UNIFORM
    | dict.fromkeys(MATRIX_PRODUCTS, rules.halved)
    | dict.fromkeys(SOFTMAXES, rules.gradient_softmax)
    | dict.fromkeys(ops.EXPONENTIALS, rules.by_gradient)
    | {query_key: rules.halved, mix_values: rules.halved, attend: structural_rules.by_gradient}
)

# Arras et al. 2025, appendix D.2: positive contributions at linear layers, otherwise as LRP.
ALPHA_BETA: RuleTable = (
    LRP
    | {F.linear: lrp_rules.alpha_beta_linear, torch.addmm: lrp_rules.alpha_beta_addmm}
    | {weigh: lrp_rules.alpha_beta_linear}
)

# What reaches the output along the residual stream alone: attention and MLP outputs are cut off where they join it.
STREAM: RuleTable = (
    LRP
    | dict.fromkeys(ACTIVATIONS, rules.cut)
    | dict.fromkeys(PRODUCTS, rules.cut_gated)
    | dict.fromkeys(MATRIX_PRODUCTS, rules.cut_mixed)
    | dict.fromkeys(SOFTMAXES, rules.constant_gate)
    | {mix_values: rules.constant, attend: structural_rules.nothing_passes}
)

# Chefer et al. 2021b: z+ without bias, identity through norms and softmax, the conserving residual sum.
ZPLUS: RuleTable = (
    SHARED
    | dict.fromkeys(SUMS, rules.conserving_sum)
    | dict.fromkeys((*PRODUCTS, *MATRIX_PRODUCTS), rules.halved)
    | dict.fromkeys(SOFTMAXES, rules.identity)
    | {F.linear: lrp_rules.zplus_linear, torch.addmm: lrp_rules.zplus_addmm, F.layer_norm: rules.identity_norm}
    | {weigh: lrp_rules.zplus_linear, query_key: rules.halved, mix_values: rules.halved}
)

TABLES = (LRP, LRP_UNIFORM, ATTN_LRP, ALPHA_BETA, STREAM, ZPLUS)

# Springenberg et al. 2015: no relevance, but the gradient itself, of which ReLUs let only the positive part through.
GUIDED: RuleTable = (
    dict.fromkeys(ACTIVATIONS, guided.guided_activation)
    | dict.fromkeys(ops.SATURATING, guided.plain_gate)
    | dict.fromkeys((*ops.CLIPPING, F.hardtanh), guided.guided_clipping)
    | dict.fromkeys(ops.EXTREMES, guided.guided_extreme)
    | dict.fromkeys((scan, recurrence), guided.refused_recurrence)
    | dict.fromkeys((*LINEAR_LAYERS, *SUMS, *PRODUCTS, *ops.QUOTIENTS, *MATRIX_PRODUCTS), rules.plain)
    | dict.fromkeys((*SOFTMAXES, *ops.LOGSUMEXPS, *ops.SCALES, *ops.NORMS), rules.plain)
    | dict.fromkeys((*ops.JOINING, *ops.CONVOLUTIONS), rules.plain)
    | {query_key: rules.plain, mask_scores: rules.plain, add_sinks: rules.plain, mix_values: rules.plain}
    | {attend: structural_rules.plain_attention}
)
