"""Relevance propagation as data: tables {torch function: rule}, under which value × gradient is relevance.

`from tokenlight import rules` has everything that a custom table needs.
"""

from tokenlight.rules.autograd_functions import ScaleGradient, like
from tokenlight.rules.custom_ops import activation, attend, mask_scores, mix_values, query_key
from tokenlight.rules.keeps import keeps
from tokenlight.rules.linear_layers import alpha_beta_rules, epsilon_rules, gamma_rules
from tokenlight.rules.lrp_rules import (
    absorbing_addmm,
    absorbing_linear,
    absorbing_sum,
    alpha_beta_addmm,
    alpha_beta_linear,
    conserving_sum,
    constant,
    cut,
    cut_gated,
    gradient_softmax,
    halved,
    identity,
    identity_norm,
    linear_norm,
    plain,
    through_signal,
    zplus_addmm,
    zplus_linear,
)
from tokenlight.rules.mode import Rule, RuleTable, is_signal
from tokenlight.rules.tables import ALPHA_BETA, ATTN_LRP, GUIDED, LRP, LRP_UNIFORM, STREAM, ZPLUS

__all__ = [
    "ALPHA_BETA",
    "ATTN_LRP",
    "GUIDED",
    "LRP",
    "LRP_UNIFORM",
    "STREAM",
    "ZPLUS",
    "Rule",
    "RuleTable",
    "ScaleGradient",
    "absorbing_addmm",
    "absorbing_linear",
    "absorbing_sum",
    "activation",
    "alpha_beta_addmm",
    "alpha_beta_linear",
    "alpha_beta_rules",
    "attend",
    "conserving_sum",
    "constant",
    "cut",
    "cut_gated",
    "epsilon_rules",
    "gamma_rules",
    "gradient_softmax",
    "halved",
    "identity",
    "identity_norm",
    "is_signal",
    "keeps",
    "like",
    "linear_norm",
    "mask_scores",
    "mix_values",
    "plain",
    "query_key",
    "through_signal",
    "zplus_addmm",
    "zplus_linear",
]
