"""Passes are planned once for a batch, and methods that need the same share one."""

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget


def count_plans(monkeypatch) -> list[str]:
    """The names of method configs, one entry for each call of `passes`."""
    planned, real = [], MethodConfig.passes
    monkeypatch.setattr(
        MethodConfig,
        "passes",
        lambda method_config, split: planned.append(method_config.method.name) or real(method_config, split),
    )
    return planned


def test_explain_plans_once_for_each_batch(monkeypatch):
    planned = count_plans(monkeypatch)
    explainer_for("bert").explain_all(["the key", "the book", "it is here"], ["lrp", "attcat"], batch_size=2)
    assert planned == ["lrp", "attcat"] * 2


def test_attribute_plans_once(monkeypatch):
    planned = count_plans(monkeypatch)
    tl.attribute(models.model("bert"), models.ids(), method="attcat", target=1)
    assert planned == ["attcat"]


def test_a_shared_pass_has_the_signals_that_each_method_needs():
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),))
    names = ("attcat", "gradient_x_input", "lrp")
    plan = plan_passes(target, [MethodConfig(METHODS[name], {}) for name in names])
    alone = [plan_passes(target, [method_config]) for method_config in plan.method_configs]
    assert len(plan.passes) == 2  # the plain one, and that of a rule table
    assert plan.reads[0] == plan.reads[1] != plan.reads[2]
    (key,) = plan.reads[0]
    assert plan.passes[key].needs == alone[0].passes[key].needs | alone[1].passes[key].needs
    assert alone[0].passes[key].needs != alone[1].passes[key].needs


def test_a_plan_stays_as_it_is_when_others_are_made():
    target, method_config = (
        BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),)),
        MethodConfig(METHODS["attcat"], {}),
    )
    first = plan_passes(target, [method_config])
    before = {key: one.needs for key, one in first.passes.items()}
    plan_passes(target, [method_config, MethodConfig(METHODS["gradient_x_input"], {})])
    assert {key: one.needs for key, one in first.passes.items()} == before
