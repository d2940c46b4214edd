"""Notes and extras of results, also when passes are shared."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.notes import result_notes
from tokenlight.explain.plan import plan_passes
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import METHODS, Pass
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.rules.tables import LRP
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

DEEP = ("embeddings.grad",)
TEXT = "it is a good movie and they are not bad at all"


def notes(explanation):
    return " ".join(explanation.notes)


def test_all_default_methods_fit_the_model():
    assert "globenc" in explainer_for("bert").explain_all(TEXT)
    found = explainer_for("gpt2", "text-generation").explain_all(TEXT)
    assert "globenc" not in found
    assert {"alti", "alti_logit", "attn_lrp", "attcat"} <= set(found)


def test_a_long_prompt_is_truncated_at_its_start_with_a_note():
    explainer = explainer_for("gpt2", "text-generation")
    long, short = "good " * 400 + "keys are on the table", "the keys are on the table"
    e = explainer.explain(long)
    assert "first" in notes(e)
    assert e.tokens[-3:] == explainer.explain(short).tokens[-3:]
    assert len(e.tokens) == 300


def test_sources_that_were_cut_off_are_named():
    explainer = explainer_for("gpt2", "text-generation")
    first, second, third = "the key is here.", "good " * 310 + "movie.", "who wrote the book ?"
    e = explainer.explain(f"{first} {second} {third}", "random", documents={"A": first, "B": second, "C": third})
    assert [(one.name, bool(one.tokens)) for one in e.by_document()] == [("A", False), ("B", True), ("C", True)]
    assert "documents; cut off: A" in e.notes[1]
    assert "documents; cut off in part: B" in e.notes[2]
    whole = explainer.explain(f"{'good ' * 310} {third}", "random", documents={"C": third})
    assert len(whole.notes) == 1  # the cut has spared it


def test_a_long_text_to_classify_is_truncated_at_its_end_with_a_note():
    e = explainer_for("bert").explain("good " * 400)
    assert "last" in notes(e)
    assert e.tokens[0] == "[CLS]"
    assert e.tokens[-1] == "[SEP]"


def test_too_few_steps_add_a_note():
    explainer = explainer_for("bert")
    few, many = (explainer.explain(TEXT, "integrated_gradients", steps=steps) for steps in (1, 200))
    assert "more steps" in notes(few)
    assert "more steps" not in notes(many)


def test_a_custom_rule_table_adds_a_note():
    explainer = explainer_for("bert")
    assert "rule table" in notes(explainer.explain(TEXT, "lrp", rules=dict(LRP)))
    assert "rule table" not in notes(explainer.explain(TEXT, "lrp"))


def test_a_difference_of_unsigned_scores_is_signed():
    explainer = explainer_for("bert")
    assert not explainer.explain(TEXT, "transformer_attribution").signed
    assert explainer.explain(TEXT, "transformer_attribution", target="positive", foil="negative").signed
    assert not explainer.explain(TEXT, "generic_attention", target="positive", foil="negative").signed  # clamped


def test_zplus_methods_take_any_table():
    model, ids = models.model("bert"), models.ids()
    scores = tl.attribute(model, ids, method="zplus_lrp", target=1, rules=LRP)
    assert scores.isfinite().all()


def test_reading_at_different_depths_keeps_the_books_apart():
    """A method that reads below the blocks must not put the embeddings' biases into the books of one that does not."""
    deep = replace(
        METHODS["lrp"], name="deep", function=lambda trace: trace.score[:, None].expand(3, 9), passes=(Pass(DEEP, LRP),)
    )
    ids = models.ids()
    batch, target = (
        Batch(ids, torch.ones_like(ids)),
        BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 3),
    )
    method_configs = [MethodConfig(METHODS["lrp"], {"read": "blocks"}), MethodConfig(deep, {})]
    _, (result, _) = execute_plan(
        InstrumentedModel(models.model("bert", dtype=torch.float64)), batch, plan_passes(target, method_configs)
    )
    assert result.extras["residual"].abs().max() < 1e-9


def test_peft_adaption_prompts_are_refused():
    peft = pytest.importorskip("peft", reason="PEFT is not installed")
    config = peft.AdaptionPromptConfig(adapter_len=2, adapter_layers=1, task_type="CAUSAL_LM")
    fresh = models.HEADS["text-generation"].from_config(models.model("llama", "text-generation").config)
    with pytest.raises(tl.UnsupportedModelError, match="virtual tokens"):
        tl.attribute(peft.get_peft_model(fresh, config), models.ids(), method="rollout", target=7)


def test_a_residual_in_half_precision_may_be_rounding():
    method_config = MethodConfig(METHODS["lrp"], {})
    for precision, cause in (
        (torch.float32, "the rules"),
        (torch.bfloat16, "rounding to torch.bfloat16, or the rules"),
    ):
        (note,) = result_notes(method_config, 2.0, torch.ones(3), {"residual": 0.05}, precision)
        assert f"miss 0.05 of the whole: {cause} do not cover" in note
    explainer = explainer_for("bert")
    halved = tl.Explainer(copy.deepcopy(explainer.model).bfloat16(), explainer.tokenizer)
    method_config = MethodConfig.for_model(METHODS["lrp"], {}, halved.inner, None)
    task, tokenized_texts = halved.task, halved.encode([TEXT])
    _, (found,) = execute_plan(
        InstrumentedModel(halved.inner),
        halved.collate(tokenized_texts),
        plan_passes(BatchTarget(task, (ResolvedTarget((1,)),)), [method_config]),
    )
    assert found.scores.dtype == torch.bfloat16


def test_means_over_contexts_come_with_a_caution_for_next_tokens():
    caution = "less faithful than a single pass"
    writer = explainer_for("gpt2", "text-generation")
    assert any(caution in note for note in writer.explain("it is a good", "attn_lrp", contexts=2).notes)
    assert not any(caution in note for note in writer.explain("it is a good", "attn_lrp").notes)
    judge = explainer_for("bert")
    assert not any(caution in note for note in judge.explain("it is a good", "attn_lrp", contexts=2).notes)


def test_a_mask_that_drops_most_relevance_adds_a_note():
    explainer, few = explainer_for("bert"), torch.tensor([[0.0] * 4, [1.0, 0, 0, 0]])
    cases: list[tuple[str, dict[str, Any]]]
    cases = [("mask_lrp", {"empty": "drop"}), ("zplus_lrp", {"empty": "drop"}), ("lrp", {})]
    for method, options in cases:
        e = explainer.explain(TEXT, method, heads=few * 0, **options)
        whole = e.score if method == "lrp" else 1.0
        assert abs(e.extras["masked_share"]) > 0.5 * abs(whole)
        assert f"drops {abs(e.extras['masked_share'] / whole):.0%} of the relevance" in notes(e)
    for empty in ("all", "residual"):
        assert "of the relevance" not in notes(explainer.explain(TEXT, "mask_lrp", heads=few, empty=empty))


def test_only_more_than_half_is_most_of_the_relevance():
    lit = HeadMask.by_hand(models.SOME_HEADS)
    for name, score, half in (("mask_lrp", 4.0, 0.5), ("zplus_lrp", 4.0, 0.5), ("attn_lrp", -4.0, 2.0)):
        method_config = MethodConfig(METHODS[name], {"heads": lit})
        for sign in (1, -1):
            above, below = (
                " ".join(
                    result_notes(method_config, score, torch.ones(3), {"masked_share": sign * share}, torch.float32)
                )
                for share in (1.02 * half, 0.98 * half)
            )
            assert "the head mask drops 51% of the relevance" in above
            assert "relevance" not in below


def test_relevance_stopped_by_calibrated_strengths_adds_no_note():
    found = replace(HeadMask.by_hand(models.SOME_HEADS), calibrated=models.SOME_HEADS.double() / 2)
    method_config = MethodConfig(METHODS["attn_lrp"], {"heads": found})
    assert not list(result_notes(method_config, 4.0, torch.ones(3), {"masked_share": 3.0}, torch.float32))


def test_layers_without_heads_that_use_all_heads_add_a_note():
    explainer, few = explainer_for("bert"), torch.tensor([[0.0] * 4, [1.0, 0, 0, 0]])
    note = "and all heads of the 1 of 2 layers without a lit one"
    for method in ("mask_lrp", "zplus_lrp"):
        assert note in notes(explainer.explain(TEXT, method, heads=few))
        assert note not in notes(explainer.explain(TEXT, method, heads=few, empty="residual"))
        assert note not in notes(explainer.explain(TEXT, method, heads=models.SOME_HEADS))
    assert note not in notes(explainer.explain(TEXT, "mask_lrp", heads=few, variant="released"))
    assert note not in notes(explainer.explain(TEXT, "lrp", heads=few))
