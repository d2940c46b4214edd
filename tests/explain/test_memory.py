"""The memory that a block keeps for the backward pass, summed over its rules; unknown rules count as the largest."""

from functools import partial
from typing import Any

import pytest

import tokenlight as tl
from tests import models
from tests.explain.test_large_models import outlook
from tokenlight.explain.memory import Counts, Kept, Shape, kept_by_block, need_of_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods.config import MethodConfig
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.tables import ALPHA_BETA, ATTN_LRP, LRP, LRP_UNIFORM, STREAM, ZPLUS
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget

NOTHING = Counts()
COUNTED = [  # derived in docs/large-models.md and measured there: (states, inner states, maps); with a gated MLP
    (None, (5, 1, 1), (5, 3, 1), NOTHING, NOTHING),
    (LRP, (0, 1, 1), (0, 2, 1), NOTHING, NOTHING),
    (LRP_UNIFORM, (0, 1, 1), (0, 3, 1), NOTHING, NOTHING),
    (ATTN_LRP, (3, 1, 2), (3, 3, 2), NOTHING, NOTHING),
    (ALPHA_BETA, (0, 1, 1), (0, 2, 1), Counts(10, 2), Counts(10, 3)),
    (STREAM, (0, 0, 0), (0, 0, 0), NOTHING, NOTHING),
    (ZPLUS, (9, 1, 2), (9, 3, 2), Counts(10, 2), Counts(10, 3)),
]


@pytest.mark.parametrize(("table", "values", "gated_values", "single", "gated_single"), COUNTED)
def test_published_tables(table, values, gated_values, single, gated_single):
    assert kept_by_block(table, gated=False) == Kept(Counts(*values), single)
    assert kept_by_block(table, gated=True) == Kept(Counts(*gated_values), gated_single)


def wrapped(rule: Any) -> Any:
    return lambda *args, **kwargs: rule(*args, **kwargs)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("table", [row[0] for row in COUNTED[1:]])
def test_a_rule_in_a_wrapper_does_not_lower_the_count(table, gated):
    plain = kept_by_block(table, gated)
    for function, rule in table.items():
        assert kept_by_block(table | {function: partial(rule)}, gated) == plain
        unknown = kept_by_block(table | {function: wrapped(rule)}, gated)
        for before, after in ((plain.values, unknown.values), (plain.single, unknown.single)):
            assert after.states >= before.states
            assert after.inner >= before.inner
            assert after.maps >= before.maps
    everything = kept_by_block({function: wrapped(rule) for function, rule in table.items()}, gated)
    assert everything == kept_by_block(ZPLUS, gated)  # which keeps the most at every place


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_the_estimate_of_a_wrapped_table_is_not_lower(family):
    task = models.default_task(family)
    shape, target = Shape.of(models.model(family, task)), BatchTarget(models.task(task), (ResolvedTarget(),) * 32)

    def need(table: RuleTable) -> int:
        method_config = MethodConfig(tl.METHODS["zplus_lrp"], {"heads": None}, table)
        return need_of_plan(shape, plan_passes(target, [method_config]), 32, 40, DEFAULT_RECORD_OPTIONS)

    own = need(ZPLUS)
    assert need({function: partial(rule) for function, rule in ZPLUS.items()}) == own
    assert need({function: wrapped(rule) for function, rule in ZPLUS.items()}) >= own


# Bytes beside the weights for 32 texts of 40 tokens on the tiny BERT, as derived and measured: attention written out.
PINNED = {
    "raw_attention": 5120960,
    "rollout": 5940160,
    "attention_gradient": 6472640,
    "attention_x_gradient": 8643520,
    "grad_sam": 8643520,
    "attention_cam": 6472640,
    "attention_grad_cam": 6472640,
    "generic_attention": 8643520,
    "value_norms": 6431680,
    "globenc": 6595520,
    "alti": 6431680,
    "alti_logit": 6759360,
    "logit": 6759360,
    "gradient_l1": 7005120,
    "gradient_l2": 7005120,
    "gradient_x_input": 7005120,
    "cat": 7332800,
    "attcat": 7332800,
    "integrated_gradients": 7005120,
    "smooth_grad": 7005120,
    "expected_gradients": 7005120,
    "erasure": 8603520,
    "shapley_sampling": 8603520,
    "kernel_shap": 8603520,
    "random": 4301760,
    "lrp": 6185920,
    "attn_lrp": 8315840,
    "calibrated_lrp": 8315840,
    "alpha_beta_lrp": 8315840,
    "zplus_lrp": 21389184,
    "partial_lrp": 16310144,
    "transformer_attribution": 24010624,
    "mask_lrp": 24010624,
}


# The same with fused attention.
FUSED = {
    **dict.fromkeys(("gradient_l1", "gradient_l2", "gradient_x_input", "integrated_gradients"), 2253760),
    **dict.fromkeys(("smooth_grad", "expected_gradients"), 2253760),
    "cat": 2581440,
    **dict.fromkeys(("erasure", "shapley_sampling", "kernel_shap"), 2049920),
    "random": 1024960,
    **dict.fromkeys(("lrp", "attn_lrp", "calibrated_lrp"), 1926080),
    "alpha_beta_lrp": 4056000,
}


@pytest.mark.parametrize("name", PINNED)
def test_estimates_stay(name):
    assert outlook(name, fused=False) == PINNED[name]
    assert outlook(name) == FUSED.get(name, PINNED[name])
