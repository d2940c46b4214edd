"""Whatever the caller's modes, precision or padding: the same numbers, or a clear error."""

import copy
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import assert_near, tolerance
from tests.tokenizers_ import explainer_for
from tokenlight.methods import METHODS
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import record
from tokenlight.rules import lrp_rules as rules
from tokenlight.rules.custom_ops import activation
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import LRP, ZPLUS
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

NAMES = tuple(name for name in METHODS if METHODS[name].fits(models.model("bert")))
TEXT = "it is a good movie and they are not bad at all"


def run(name, model=None, **resolved):
    options = {"target": 1, **models.quick_options(name), **resolved}
    return tl.attribute(model or models.model("bert"), models.ids(), method=name, **options)


@pytest.mark.parametrize("name", NAMES)
def test_inference_mode_of_the_caller_changes_nothing(name):
    expected, explainer = run(name), explainer_for("bert")
    options = models.quick_options(name)
    same = explainer.explain([TEXT, "it is"], name, **options)
    with torch.inference_mode():
        assert torch.equal(run(name), expected)
        assert explainer.explain([TEXT, "it is"], name, **options) == same


@pytest.mark.parametrize("name", NAMES)
def test_autocast_of_the_caller_changes_nothing(name):
    expected = run(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(run(name), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_the_default_dtype_of_the_caller_changes_nothing(name, dtype):
    expected = run(name)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert torch.equal(run(name), expected)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("name", NAMES)
def test_the_default_device_of_the_caller_changes_nothing(name):
    """Erasure gave other scores, most methods failed. "meta" stands for a GPU: what is made there is not on the CPU."""
    expected, ids, options = run(name), models.ids(), {"target": 1, **models.quick_options(name)}
    with torch.device("meta"):
        assert torch.equal(tl.attribute(models.model("bert"), ids, method=name, **options), expected)


@pytest.mark.parametrize("removal", ["hide", "delete", "pad+mask"])
def test_contexts_in_the_caller_s_inference_mode_change_nothing(removal):
    explainer = explainer_for("bert")
    same = explainer.explain(TEXT, "attn_lrp", contexts=4, removal=removal)
    with torch.inference_mode():
        assert explainer.explain(TEXT, "attn_lrp", contexts=4, removal=removal) == same


@pytest.mark.parametrize("form", ["exact", "cage", "flashtrace"])
@pytest.mark.parametrize("mode", [torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)])
def test_states_are_passed_between_devices_in_their_precision(form, mode):
    explainer = explainer_for("gpt2", "text-generation")
    expected = explainer.explain_answer("it is a", " good movie and they", "attn_lrp", progress=False)
    with mode:
        found = explainer.explain_answer("it is a", " good movie and they", "attn_lrp", progress=False)
        passed_on = found.through(form)
    assert torch.equal(found.matrix, expected.matrix)
    assert torch.equal(passed_on.matrix, expected.through(form).matrix)


@pytest.mark.parametrize("mode", [torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)])
@pytest.mark.parametrize(("family", "task"), [("bert", "text-classification"), ("gpt2", "text-generation")])
def test_metrics_in_the_caller_s_modes_are_the_same(family, task, mode):
    explainer = explainer_for(family, task)
    expected = explainer.explain(TEXT, "attn_lrp").evaluate()
    with mode:
        assert explainer.explain(TEXT, "attn_lrp").evaluate() == expected


def test_a_model_made_in_inference_mode_is_refused():
    with torch.inference_mode():
        model = models.HEADS["text-classification"].from_config(models.model("bert").config)
    with pytest.raises(tl.UnsupportedModelError, match="inference_mode"):
        run("lrp", model)


def test_an_instrumented_model_keeps_no_recording():
    instrumented, ids = InstrumentedModel(models.model("bert")), models.ids()
    record(
        instrumented,
        Batch(ids, torch.ones_like(ids)),
        BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 3),
        PassSpec({"attention.grad"}),
    )
    assert not any(instrumented.capture.signals.values())


@pytest.mark.parametrize("name", ["attention_gradient", "attention_x_gradient"])
def test_the_foil_of_a_span_is_read_at_its_own_position(name):
    model = models.model("bert", "question-answering", torch.float64)
    one, two = (run(name, model, target=span) for span in ((2, 4), (6, 7)))
    both = run(name, model, target=(2, 4), foil=(6, 7))
    assert_near(both, one - two, size=torch.stack([one, two]))


def test_a_classifier_padded_with_a_foreign_id_is_refused():
    model, ids = models.model("llama", "text-classification"), models.ids()
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = 4, 0
    with pytest.raises(ValueError, match="row 1 is padded with another id"):
        tl.attribute(model, ids, mask, method="alti", target=1)


def test_large_activations_in_half_precision_do_not_become_the_identity():
    model: Any = copy.deepcopy(models.model("llama", "text-generation"))
    with torch.no_grad():
        model.get_input_embeddings().weight[:, 3] = 300.0
        for block in model.model.layers:
            block.self_attn.o_proj.weight.mul_(30)
    full = run("alti", model, target=7, norm="l2")
    half = run("alti", model.half(), target=7, norm="l2")
    assert (half.float() - full).abs().max() < 0.05


@pytest.mark.parametrize("name", ["zplus_lrp", "transformer_attribution"])
def test_half_precision_models_are_explained_for_their_prediction(name):
    explainer = explainer_for("bert")
    half = tl.Explainer(copy.deepcopy(explainer.model).bfloat16(), explainer.tokenizer)
    predicted = half.explain(TEXT, "raw_attention")
    e = half.explain(TEXT, name)
    assert (e.target, e.prediction, e.score) == (predicted.prediction, predicted.prediction, predicted.score)


def signal(*shape):
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.mul(input=x, other=x), "mul"),
        (lambda x: torch.div(1.0, x), "div"),
        (lambda x: torch.sinh(x), "sinh"),
        (lambda x: x.cumprod(-1), "cumprod"),
        (lambda x: 1 / x, "__rtruediv__"),
    ],
)
def test_no_way_around_the_strict_mode(function, name):
    table = {key: rule for key, rule in LRP.items() if key not in (torch.mul, torch.Tensor.mul)}
    with pytest.raises(ValueError, match=name), RuleMode(table, Ledger(3)):
        function(signal(3, 4))


@pytest.mark.parametrize("table", [LRP, ZPLUS])
def test_scaled_sums_are_refused(table):
    with pytest.raises(ValueError, match="alpha"), RuleMode(table, Ledger(3)):
        torch.add(signal(3, 4), signal(3, 4), alpha=3)


def test_a_branch_that_a_users_table_cuts_off_is_in_the_books():
    e = explainer_for("bert").explain(TEXT, "lrp", rules=LRP | {activation: rules.constant})
    assert abs(e.extras["residual"]) < tolerance(torch.float32, float(e.scores.abs().max()))


def test_a_target_that_rules_do_not_cover_adds_a_note():
    def chance(output):
        return output.logits.softmax(-1)[:, 1]

    explainer = explainer_for("bert")
    assert "do not cover" in " ".join(explainer.explain(TEXT, "lrp", target=chance).notes)
    assert "do not cover" not in " ".join(explainer.explain(TEXT, "lrp").notes)


def test_lengths_are_unsigned_and_agnostic_methods_say_that_a_foil_has_no_effect():
    explainer = explainer_for("bert")
    assert explainer.explain(TEXT, "gradient_x_input").signed
    assert not explainer.explain(TEXT, "gradient_x_input", reduce="l2").signed
    assert "does not depend" in " ".join(explainer.explain(TEXT, "raw_attention", foil="negative").notes)


def test_decoder_token_classifiers_need_no_padding_id():
    model = copy.deepcopy(models.model("llama", "token-classification"))
    model.config.pad_token_id = None
    ids = models.ids()
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    assert tl.attribute(model, ids, mask, method="attcat", target=(3, 1)).isfinite().all()
