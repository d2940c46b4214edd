"""Passes are planned once for a batch, and methods that need the same share one."""

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight.explain.jobs import Job
from tokenlight.explain.passes import plan_passes
from tokenlight.methods import METHODS
from tokenlight.tasks.targets import Target, Wanted


def count_plans(monkeypatch) -> list[str]:
    """The names of jobs, each time that one says which passes it reads."""
    planned, real = [], Job.passes
    monkeypatch.setattr(Job, "passes", lambda job, split: planned.append(job.method.name) or real(job, split))
    return planned


def test_explain_plans_once_for_each_batch(monkeypatch):
    planned = count_plans(monkeypatch)
    explainer_for("bert").explain_all(["the key", "the book", "it is here"], ["lrp", "attcat"], batch_size=2)
    assert planned == ["lrp", "attcat"] * 2


def test_attribute_plans_once(monkeypatch):
    planned = count_plans(monkeypatch)
    tl.attribute(models.model("bert"), models.ids(), method="attcat", target=1)
    assert planned == ["attcat"]


def test_a_shared_pass_holds_what_each_of_its_readers_needs():
    target = Target(models.task("text-classification"), (Wanted(1),))
    names = ("attcat", "gradient_x_input", "lrp")
    plan = plan_passes(target, [Job(METHODS[name], {}) for name in names])
    alone = [plan_passes(target, [job]) for job in plan.jobs]
    assert len(plan.passes) == 2  # the plain one, and that of a rule table
    assert plan.reads[0] == plan.reads[1] != plan.reads[2]
    (key,) = plan.reads[0]
    assert plan.passes[key].needs == alone[0].passes[key].needs | alone[1].passes[key].needs
    assert alone[0].passes[key].needs != alone[1].passes[key].needs


def test_a_plan_stays_as_it_is_when_others_are_made():
    target, job = Target(models.task("text-classification"), (Wanted(1),)), Job(METHODS["attcat"], {})
    first = plan_passes(target, [job])
    before = {key: one.needs for key, one in first.passes.items()}
    plan_passes(target, [job, Job(METHODS["gradient_x_input"], {})])
    assert {key: one.needs for key, one in first.passes.items()} == before
