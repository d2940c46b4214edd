"""Relevance on whole models: conservation, precision, maps of what lies between, the user's own tables."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import record
from tokenlight.rules import lrp_rules as rules
from tokenlight.rules.tables import LRP, ZPLUS
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch

CONSERVING = ("lrp", "attn_lrp", "alpha_beta_lrp")


def uneven():
    ids = models.ids()
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = 1, 0
    return Batch(ids, mask)


def attributions(model, task, method_configs, foil=None):
    """Of all jobs at once: those with the same rules share a pass."""
    target = BatchTarget(
        models.task(task), tuple(models.task(task).resolve_target_ids(models.target(task), foil) for _ in range(3))
    )
    with borrowed_model(model) as instrumented:
        return execute_plan(instrumented, uneven(), plan_passes(target, method_configs))


def attribution(model, task, name, foil=None, **options):
    answer, (result,) = attributions(model, task, [MethodConfig(METHODS[name], options)], foil)
    return answer, result


def without_biases(family, task):
    made = models.HEADS[task].from_config(models.model(family, task).config).double().eval()
    made.load_state_dict(models.model(family, task).state_dict())
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return made


@pytest.mark.parametrize(("family", "task"), models.USUAL)
def test_without_biases_relevance_sums_to_the_score(family, task):
    names = ("lrp", "alpha_beta_lrp")
    method_configs = [MethodConfig(METHODS[name], {"read": "blocks"}) for name in names]
    answer, results = attributions(without_biases(family, task), task, method_configs)
    for name, result in zip(names, results, strict=True):
        lost = result.extras["bias_share"]
        if family != "opt" or name == "lrp":  # OPT's ReLU leaves units without any positive contribution
            assert_near(lost, 0, size=answer.score, what=name)
        assert_near(result.scores.sum(1) + lost, answer.score, size=result.scores, growth=SHARES, what=name)


@pytest.mark.parametrize(("family", "task"), models.COMBINATIONS)
def test_scores_and_reported_shares_add_up_to_the_score(family, task):
    if (family, task) in models.USUAL:
        names = CONSERVING
    else:  # of the other heads' operations each meets one of the tables
        names = [CONSERVING[models.COMBINATIONS.index((family, task)) % len(CONSERVING)]]
    method_configs = [
        MethodConfig(METHODS[name], {"read": read}) for name in names for read in ("blocks", "embeddings")
    ]
    answer, results = attributions(models.model(family, task, torch.float64), task, method_configs)
    for method_config, result in zip(method_configs, results, strict=True):
        what = f"{method_config.method.name} {method_config.options}"
        assert ("softmax_deficit" in result.extras) == (method_config.method.name == "attn_lrp")
        shares = [share for key, share in result.extras.items() if key != "residual"]
        parts = torch.stack([result.scores.sum(1), *shares])
        assert_near(parts.sum(0), answer.score, size=parts, growth=SHARES, what=what)
        assert_near(result.extras["residual"], 0, size=parts, growth=SHARES, what=what)


@pytest.mark.parametrize(("family", "task"), models.COMBINATIONS)
def test_zplus_sums_to_one_and_with_a_foil_to_zero(family, task):
    model = models.model(family, task, torch.float64)
    parts = 2 if task == "question-answering" else 1
    _, alone = attribution(model, task, "zplus_lrp")
    lost = alone.extras["bias_share"]
    if family != "opt":  # its ReLU leaves units without any positive contribution
        assert_near(lost, 0, size=1.0)
    assert_near(alone.scores.sum(1) + lost, parts, size=alone.scores, growth=SHARES)
    if (family, task) in models.USUAL:
        foil = (1, 3) if task == "question-answering" else 2
        _, against = attribution(model, task, "zplus_lrp", foil=foil)
        assert_near(against.scores.sum(1) + against.extras["bias_share"], 0, size=alone.scores, growth=SHARES)


@pytest.mark.parametrize(("family", "task"), models.USUAL)
def test_rules_leave_the_forward_pass_as_it_is(family, task):
    model = models.model(family, task, torch.float64)
    plain, _ = attribution(model, task, "gradient_x_input")
    real = uneven().attention_mask.bool()  # what a decoder computes at padding depends on how attention is computed
    for name in ("lrp", "attn_lrp", "alpha_beta_lrp", "zplus_lrp"):
        ruled, _ = attribution(model, task, name)
        for key, value in plain.output.items():
            keep = real if value.shape[:2] == real.shape else slice(None)
            assert_near(ruled.output[key][keep], value[keep], what=name)


@pytest.mark.parametrize("family", models.FAMILIES)
def test_single_precision_weights_give_double_precision_rankings(family):
    task = models.default_task(family)
    methods = [METHODS[name] for name in ("zplus_lrp", "partial_lrp", "transformer_attribution")]
    exact = [replace(one, passes=tuple(replace(own, double=False) for own in one.passes)) for one in methods]
    _, truths = attributions(models.model(family, task, torch.float64), task, [MethodConfig(one, {}) for one in exact])
    _, results = attributions(models.model(family, task), task, [MethodConfig(one, {}) for one in methods])
    for method, truth, result in zip(methods, truths, results, strict=True):
        assert_near(result.scores.double(), truth.scores, precision=torch.float32, what=method.name)


def test_transformer_attribution_by_hand_in_one_layer():
    model = models.model("bert", dtype=torch.float64)
    target = BatchTarget(
        models.task("text-classification"),
        tuple(models.task("text-classification").resolve_target_ids(1, None) for _ in range(3)),
    )
    names = ("transformer_attribution", "partial_lrp")
    _, (result, _) = execute_plan(
        InstrumentedModel(model), uneven(), plan_passes(target, [MethodConfig(METHODS[n], {}) for n in names])
    )
    ruled = record(
        InstrumentedModel(model), uneven(), target, PassSpec({"attention.grad"}, rules=ZPLUS, unit=True)
    ).traces[0]
    plain = record(InstrumentedModel(model), uneven(), target, PassSpec({"attention.grad"})).traces[0]
    product = torch.eye(9, dtype=torch.float64).expand(3, 9, 9)
    for r, g in zip(ruled.attention, plain.attention, strict=True):
        assert g.grad is not None
        layer = (r.relevance * g.grad).clamp_min(0).mean(1) + torch.eye(9, dtype=torch.float64)
        product = layer / layer.sum(-1, keepdim=True) @ product
    real = uneven().attention_mask
    assert_near(result.scores, product[:, 0] * real)
    last = ruled.attention[-1].relevance
    assert (last[:, :, 1:] == 0).all()  # only the row of [CLS] holds relevance in the last block
    assert last[:, :, 0].abs().sum() > 0


def test_without_row_normalization_it_is_the_papers_formula():
    model, ids = models.model("bert", dtype=torch.float64), models.ids()
    code = tl.attribute(model, ids, method="transformer_attribution", target=1)
    paper = tl.attribute(model, ids, method="transformer_attribution", target=1, normalize=False)
    torch.testing.assert_close(code.sum(1), torch.ones(3, dtype=torch.float64))
    assert (paper.sum(1) > 1).all()


@pytest.mark.parametrize("name", [*CONSERVING, "zplus_lrp"])
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_relevance_between_input_and_output(name, family):
    task = models.default_task(family)
    model = models.model(family, task, torch.float64)
    _, result = attribution(model, task, name, detail=("layers", "heads", "neurons"), layer=1, read="blocks")
    maps = result.maps
    assert maps["layers"].shape == (3, 3, 9)
    assert maps["heads"].shape == (3, 2, 4)
    assert maps["neurons"].shape == (3, 9, 16)
    torch.testing.assert_close(maps["layers"][:, 0], result.scores)
    torch.testing.assert_close(maps["neurons"].sum(-1), maps["layers"][:, 1])


def test_a_layers_heads_hold_what_reaches_its_attention():
    """Under z+, what enters the output projection of the last block is what the heads' outputs hold."""
    model, task = models.model("bert", dtype=torch.float64), "text-classification"
    _, result = attribution(model, task, "zplus_lrp", detail=("heads", "layers"))
    target = BatchTarget(models.task(task), tuple(models.task(task).resolve_target_ids(1, None) for _ in range(3)))
    trace = record(model, uneven(), target, PassSpec({"attention.grad", "values.grad"}, rules=ZPLUS, unit=True)).traces[
        0
    ]
    halves = [signal.relevance.sum((2, 3)) for signal in (trace.attention[-1], trace.values[-1])]
    torch.testing.assert_close(result.maps["heads"][:, -1], halves[0] + halves[1])
    torch.testing.assert_close(halves[0], halves[1])


@pytest.mark.parametrize(
    "wrong", [{"detail": "tokens"}, {"read": "nowhere"}, {"detail": "neurons", "layer": 7}, {"gate": "x"}]
)
def test_wrong_options_are_named(wrong):
    with pytest.raises(ValueError, match=r"layers, heads, neurons|embeddings|block inputs|constant"):
        tl.attribute(models.model("bert"), models.ids(), method="lrp", target=1, **wrong)


def test_uniform_gates_share_between_gate_and_signal():
    model, ids = models.model("llama", "text-generation", torch.float64), models.ids()
    constant, uniform = (tl.attribute(model, ids, method="lrp", target=7, gate=g) for g in ("constant", "uniform"))
    assert not torch.allclose(constant, uniform)
    torch.testing.assert_close(constant.sum(1), uniform.sum(1))  # both conserve, this model has no biases


def test_a_users_own_table_is_used():
    model, ids = models.model("bert"), models.ids()
    ours = tl.attribute(model, ids, method="lrp", target=1)
    same = tl.attribute(model, ids, method="lrp", target=1, rules=dict(LRP))
    other = tl.attribute(model, ids, method="lrp", target=1, rules=LRP | {F.layer_norm: rules.identity_norm})
    assert torch.equal(ours, same)
    assert not torch.allclose(ours, other)
    with pytest.raises(TypeError, match="no rule table"):
        tl.attribute(model, ids, method="attcat", target=1, rules=LRP)


def test_an_incomplete_table_raises_and_names_the_operation():
    table = {function: rule for function, rule in LRP.items() if function is not torch.tanh}
    with pytest.raises(ValueError, match="tanh"):
        tl.attribute(models.model("bert"), models.ids(), method="lrp", target=1, rules=table)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_long_inputs_stay_finite_in_single_precision(family):
    kind, settings = models.CONFIGS[family]
    config = kind(**{**settings, "max_position_embeddings": 520, "initializer_range": 0.2})
    model = models.HEADS["text-classification"].from_config(config).eval()
    ids = models.ids(2, 512)
    for name in ("lrp", "attn_lrp", "alpha_beta_lrp", "zplus_lrp", "partial_lrp", "transformer_attribution"):
        assert tl.attribute(model, ids, method=name, target=1).isfinite().all()


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_bfloat16_follows_single_precision(family):
    kind, settings = models.CONFIGS[family]
    torch.manual_seed(1)
    model = models.HEADS["text-classification"].from_config(kind(**{**settings, "initializer_range": 0.1})).eval()
    ids = models.ids(1, 30)
    full = tl.attribute(model, ids, method="attn_lrp", target=1)[0]
    half = tl.attribute(model.bfloat16(), ids, method="attn_lrp", target=1)[0]
    assert torch.corrcoef(torch.stack([full, half.float()]))[0, 1] > 0.99


def test_several_states_for_a_token_between_blocks_are_refused():
    from tokenlight.diagnostics.tiny_models import all_types, tiny_model

    if "deepseek_v4" not in all_types():
        pytest.skip("this transformers has no family with several streams")
    with pytest.raises(tl.UnsupportedModelError, match="read at the embeddings"):
        tl.attribute(tiny_model("deepseek_v4", "text-generation"), models.ids(2, 6), method="zplus_lrp", target=7)
