"""No pass is run whose answer is already known."""

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.common.progress import on_forward_pass
from tokenlight.explain.attribute_ids import attribute_ids
from tokenlight.explain.options import RunOptions
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.methods.gradients import baseline_embeddings
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.text.batch import Batch


def passes_of(call) -> int:
    """After a first call, which probes the model."""
    call()
    calls: list[None] = []
    with on_forward_pass(lambda: calls.append(None)):
        call()
    return len(calls)


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("integrated_gradients", {"steps": 20}, 2),  # text and baseline in one pass, then the steps
        ("integrated_gradients", {"steps": 40}, 3),
        ("smooth_grad", {"steps": 20}, 2),
        ("expected_gradients", {"steps": 20, "baseline": "mask"}, 2),
        ("expected_gradients", {"steps": 20}, 3),  # another baseline at every step
        ("erasure", {}, 2),  # the text, and the text without each of its tokens
        ("shapley_sampling", {"permutations": 1}, 2),
        ("attn_lrp", {}, 1),
        ("attn_lrp", {"contexts": 4}, 3),  # two gaps by turns
        ("random", {}, 1),
    ],
)
def test_passes_of_a_short_text(method, options, expected):
    explainer = explainer_for("bert")
    assert passes_of(lambda: explainer.explain("it is a good movie", method, progress=False, **options)) == expected


@pytest.mark.parametrize(("method", "expected"), [("leave_one_out", 2), ("erasure", 2), ("integrated_gradients", 2)])
def test_passes_of_an_answer(method, expected):
    explainer = explainer_for("gpt2", "text-generation")
    options = models.quick_options(method)
    assert (
        passes_of(lambda: explainer.explain_answer("it is. a good", " movie", method, progress=False, **options))
        == expected
    )


def test_a_text_that_can_lose_nothing_is_explained_once():
    explainer = explainer_for("bert")
    assert passes_of(lambda: explainer.explain("it", "attn_lrp", contexts=8, progress=False)) == 1
    once, often = (explainer.explain("it", "attn_lrp", contexts=contexts, progress=False) for contexts in (0, 8))
    assert_near(often.scores, once.scores)
    beside, _ = explainer.explain(["it", "it is a good movie"], "attn_lrp", contexts=8, progress=False)
    assert_near(beside.scores, once.scores)


@pytest.mark.parametrize(("family", "task"), [("bert", "text-classification"), ("gpt2", "text-generation")])
@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("target", ["index", "function", "predicted"])
def test_completeness_is_the_difference_from_the_sum(family, task, low_memory, target):
    model, ids = models.model(family, task, torch.float64), models.ids(3, 6)
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    ids[0, 4:] = models.SMALL["pad_token_id"]
    rows, last = torch.arange(3), mask.sum(1) - 1

    def function(output):
        return output.logits[:, 1] if output.logits.ndim == 2 else output.logits[:, 3, 7]

    explained = {"index": models.target(task), "function": function, "predicted": None}[target]
    running = RunOptions(low_memory=low_memory)
    found = attribute_ids(model, ids, mask, None, "integrated_gradients", {"steps": 3}, explained, run_options=running)
    with borrowed_model(model) as instrumented:
        origin = baseline_embeddings(instrumented, Batch(ids, mask, pad_id=models.SMALL["pad_token_id"]), None)
    with torch.no_grad():
        whole, empty = model(ids, attention_mask=mask), model(inputs_embeds=origin, attention_mask=mask)
    if target == "function":
        change = function(whole) - function(empty)
    else:
        read = [out.logits if out.logits.ndim == 2 else out.logits[rows, last] for out in (whole, empty)]
        index = read[0].argmax(-1) if target == "predicted" else models.target(task)
        change = (read[0] - read[1])[rows, index]
    assert_near(found.extras["completeness"], found.scores.sum(1) - change)


def test_several_methods_with_baselines_of_their_own():
    explainer = explainer_for("bert")
    names, text = ["integrated_gradients", "expected_gradients", "erasure"], "it is a good movie"
    together = explainer.explain_all(text, names, steps=4, baseline="pad", progress=False)
    for name in names:
        options = {} if name == "erasure" else {"steps": 4, "baseline": "pad"}
        alone = explainer.explain(text, name, progress=False, **options)
        assert_near(together[name].scores, alone.scores)
        assert together[name].extras.keys() == alone.extras.keys()
        for extra, value in alone.extras.items():
            assert_near(together[name].extras[extra], value, size=alone.scores.abs().sum())
    assert isinstance(together["erasure"], tl.Explanation)


def test_completeness_of_a_whole_answer_is_that_of_its_log_probability():
    explainer = explainer_for("gpt2", "text-generation", dtype=torch.float64)
    rows = explainer.explain_answer("it is a", " good movie", "integrated_gradients", steps=40, progress=False)
    whole = explainer.explain("it is a", "integrated_gradients", target=" good movie", steps=40, progress=False)
    assert_near(whole.extras["completeness"], rows.extras["completeness"].sum(), size=rows.matrix.abs().sum())


def test_an_output_that_is_no_number_for_each_text_is_left_alone():
    kind, settings = models.CONFIGS["mixtral"]
    torch.manual_seed(0)
    model = models.HEADS["text-generation"].from_config(kind(**settings, output_router_logits=True)).eval()
    scores = tl.attribute(model, models.ids(), method="integrated_gradients", target=7, steps=4)
    model.config.output_router_logits = False
    assert_near(scores, tl.attribute(model, models.ids(), method="integrated_gradients", target=7, steps=4))


def test_each_method_config_has_its_own_baseline():
    explainer, text = explainer_for("bert"), "it is a good movie"
    options = {"one": {"steps": 1, "baseline": "pad"}, "many": {"steps": 8, "baseline": "zero"}}
    method = METHODS["integrated_gradients"]
    together = explainer.explain_configs(text, {name: MethodConfig(method, some) for name, some in options.items()})
    for name, some in options.items():
        alone = explainer.explain(text, "integrated_gradients", progress=False, **some)
        size = alone.scores.abs().sum() + abs(alone.score)
        assert_near(together[name].extras["completeness"], alone.extras["completeness"], size=size)


def test_standard_errors_do_not_depend_on_padding():
    explainer, text = explainer_for("bert", dtype=torch.float64), "it is good"
    longer = "it is a good movie and they are not bad at all"
    alone = explainer.explain(text, "attn_lrp", contexts=4, progress=False)
    beside, _ = explainer.explain([text, longer], "attn_lrp", contexts=4, progress=False)
    assert alone.extras["standard_error"] > 0
    assert_near(beside.extras["standard_error"], alone.extras["standard_error"], size=float(alone.scores.abs().max()))
