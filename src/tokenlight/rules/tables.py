"""The LRP variants, and guided backpropagation, as tables. Combine with `|`: `LRP | {activation: rules.constant}`."""

import torch
from torch.nn import functional as F

from tokenlight.rules import guided, lrp_rules, structural_rules
from tokenlight.rules import lrp_rules as rules
from tokenlight.rules.custom_ops import (
    add_sinks,
    attend,
    mask_scores,
    mix_values,
    query_key,
    recurrence,
    scan,
    weight_product,
)
from tokenlight.rules.mode import Rule, RuleTable
from tokenlight.rules.ops import Kind, functions_of, functions_where
from tokenlight.rules.structural_rules import through_gated_state, through_state


def rule_for(rule: Rule, *kinds: Kind) -> RuleTable:
    """One rule for all operations of these kinds."""
    return dict.fromkeys(functions_of(*kinds), rule)


SHARED: RuleTable = (
    rule_for(rules.identity, "activation")
    | rule_for(structural_rules.scale, "scale")
    | rule_for(structural_rules.divided, "quotient")
    | rule_for(structural_rules.clipped, "clip")
    | rule_for(structural_rules.extreme, "extreme")
    | rule_for(structural_rules.joining, "join", "convolution")
    | rule_for(rules.by_gradient, "logsumexp")
    | {mask_scores: rules.plain, add_sinks: structural_rules.absorbing_sinks}
    | {F.layer_norm: rules.linear_norm, scan: through_state, recurrence: through_gated_state}
)

# Ali et al. 2022, "conservative": attention, gates and the norms' scale are constants.
LRP: RuleTable = (
    SHARED
    | rule_for(rules.absorbing_sum, "sum")
    | rule_for(rules.through_signal, "product")
    | {F.linear: rules.absorbing_linear, torch.addmm: rules.absorbing_addmm}
    | rule_for(rules.through_values, "matrix_product")
    | rule_for(rules.constant, "softmax")
    | {query_key: rules.constant, mix_values: rules.plain, attend: structural_rules.through_values}
)

# LRP in which both factors of a gated product receive half.
LRP_UNIFORM: RuleTable = LRP | rule_for(rules.halved, "product")

# Achtibat et al. 2024: products share evenly, the softmax passes relevance by its gradient.
ATTN_LRP: RuleTable = (
    LRP_UNIFORM
    | rule_for(rules.halved, "matrix_product")
    | rule_for(rules.gradient_softmax, "softmax")
    | dict.fromkeys(functions_where("exponential"), rules.by_gradient)
    | {query_key: rules.halved, mix_values: rules.halved, attend: structural_rules.by_gradient}
)

# Arras et al. 2025, appendix D.2: positive contributions at linear layers, otherwise as LRP.
ALPHA_BETA: RuleTable = (
    LRP
    | {F.linear: lrp_rules.alpha_beta_linear, torch.addmm: lrp_rules.alpha_beta_addmm}
    | {weight_product: lrp_rules.alpha_beta_linear}
)

# Relevance along the residual stream alone: attention and MLP outputs are constants.
STREAM: RuleTable = (
    LRP
    | rule_for(rules.cut, "activation")
    | rule_for(rules.cut_gated, "product")
    | rule_for(rules.cut_mixed, "matrix_product")
    | rule_for(rules.constant_gate, "softmax")
    | {mix_values: rules.constant, attend: structural_rules.constant_attention}
)

# Chefer et al. 2021b: z+ without bias, identity through norms and softmax, the conserving residual sum.
ZPLUS: RuleTable = (
    SHARED
    | rule_for(rules.conserving_sum, "sum")
    | dict.fromkeys(functions_where("adds_up"), rules.conserving_total)
    | dict.fromkeys(functions_where("adds_at"), structural_rules.adding_at)
    | rule_for(rules.halved, "product")
    | rule_for(rules.halved_product, "matrix_product")
    | rule_for(rules.identity, "softmax")
    | {F.linear: lrp_rules.zplus_linear, torch.addmm: lrp_rules.zplus_addmm, F.layer_norm: rules.identity_norm}
    | {weight_product: lrp_rules.zplus_linear, query_key: rules.halved, mix_values: rules.halved}
)

TABLES = (LRP, LRP_UNIFORM, ATTN_LRP, ALPHA_BETA, STREAM, ZPLUS)

# Springenberg et al. 2015: the gradient, of which ReLUs pass only the positive part.
GUIDED: RuleTable = (
    rule_for(guided.guided_activation, "activation")
    | dict.fromkeys(functions_where("saturates"), guided.plain_gate)
    | rule_for(guided.guided_clipping, "clip")
    | {F.hardtanh: guided.guided_clipping}
    | rule_for(guided.guided_extreme, "extreme")
    | dict.fromkeys((scan, recurrence), guided.refuse_recurrence)
    | rule_for(rules.plain, "linear_layer", "sum", "product", "quotient", "matrix_product")
    | rule_for(rules.plain, "softmax", "logsumexp", "scale", "norm")
    | rule_for(rules.plain, "join", "convolution")
    | {query_key: rules.plain, mask_scores: rules.plain, add_sinks: rules.plain, mix_values: rules.plain}
    | {attend: structural_rules.plain_attention}
)
