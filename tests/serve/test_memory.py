"""Passes that nothing has changed for are not run twice, and never outlive what they were recorded for."""

import copy
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests.models import SOME_HEADS
from tests.tokenizers_ import explainer_for
from tokenlight.common.progress import on_forward_pass
from tokenlight.explain.options import Resources, RunOptions
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.record.pass_cache import PassCache

TEXT = "it is a good movie"


@pytest.fixture
def explainer() -> tl.Explainer:
    known = explainer_for("bert")
    return tl.Explainer(copy.deepcopy(known.model), known.tokenizer)


def explain(explainer: tl.Explainer, memory: PassCache | None, method: str, text: Any = TEXT, **settings: Any) -> Any:
    """The result, and how many passes it took."""
    target_options = {name: settings.pop(name) for name in ("target", "foil") if name in settings}
    passes: list[int] = []
    method_configs = {"it": MethodConfig.for_model(METHODS[method], settings, explainer.inner)}
    with on_forward_pass(lambda: passes.append(1)):
        found = explainer.explain_configs(
            text,
            method_configs,
            run_options=RunOptions(progress=False),
            resources=Resources(pass_cache=memory),
            **target_options,
        )["it"]
    return found, len(passes)


@pytest.mark.parametrize("foil", [None, "negative"])
def test_another_mask_needs_no_forward_pass_and_gives_the_same(explainer, foil):
    memory, target_options = PassCache(), {"target": "positive", "foil": foil}
    _, first = explain(explainer, memory, "mask_lrp", heads=SOME_HEADS, **target_options)
    found, second = explain(explainer, memory, "mask_lrp", heads=1 - SOME_HEADS, **target_options)
    expected, plain = explain(explainer, None, "mask_lrp", heads=1 - SOME_HEADS, **target_options)
    assert found == expected
    assert (first, second, plain) == (2, 0, 2)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("attn_lrp", {"detail": ("layers", "heads")}),
        ("lrp", {}),
        ("zplus_lrp", {"empty": "residual"}),
        ("transformer_attribution", {"foil": "negative"}),
        ("mask_lrp", {"variant": "released"}),
    ],
)
def test_masks_in_any_order_give_what_each_gives_alone(explainer, method, settings):
    dark = torch.zeros_like(SOME_HEADS)
    one_dark_layer = torch.cat([dark[:1], torch.ones_like(dark[1:])])
    memory = PassCache()
    for heads in (SOME_HEADS, 1 - SOME_HEADS, one_dark_layer, SOME_HEADS, 0.5 * SOME_HEADS):
        found, _ = explain(explainer, memory, method, heads=heads, target="positive", **settings)
        assert found == explain(explainer, None, method, heads=heads, target="positive", **settings)[0]


def test_a_graph_is_not_used_for_other_weights(explainer):
    memory = PassCache()
    explain(explainer, memory, "attn_lrp", heads=SOME_HEADS)
    with torch.no_grad():
        explainer.model.get_input_embeddings().weight.mul_(1.5)
    found, passes = explain(explainer, memory, "attn_lrp", heads=1 - SOME_HEADS)
    assert passes == 1
    assert found == explain(explainer, None, "attn_lrp", heads=1 - SOME_HEADS)[0]


def test_graphs_that_are_too_large_are_not_kept(explainer):
    memory = PassCache(graph_limit=100)
    explain(explainer, memory, "attn_lrp", heads=SOME_HEADS)
    assert explain(explainer, memory, "attn_lrp", heads=1 - SOME_HEADS)[1] == 1


def test_a_pass_that_holds_less_than_is_needed_is_run_again(explainer):
    memory = PassCache()
    explain(explainer, memory, "raw_attention")  # without gradients
    found, passes = explain(explainer, memory, "attcat")
    assert passes == 1
    assert found == explain(explainer, None, "attcat")[0]
    assert explain(explainer, memory, "attcat")[1] == 0


@pytest.mark.parametrize(
    "other",
    [{"text": "it is a bad movie"}, {"target": "negative"}, {"target": "positive", "foil": "negative"}],
)
def test_another_question_is_asked_anew(explainer, other):
    memory = PassCache()
    explain(explainer, memory, "attcat")
    found, passes = explain(explainer, memory, "attcat", **other)
    assert passes == 1
    assert found == explain(explainer, None, "attcat", **other)[0]


def test_changed_weights_are_asked_anew(explainer):
    memory = PassCache()
    before, _ = explain(explainer, memory, "attcat")
    with torch.no_grad():
        explainer.model.get_input_embeddings().weight.mul_(1.5)
    after, passes = explain(explainer, memory, "attcat")
    assert passes == 1
    assert not torch.allclose(before.scores, after.scores)


def test_passes_that_are_too_large_are_not_kept(explainer):
    memory = PassCache(limit=100)
    explain(explainer, memory, "attcat")
    assert explain(explainer, memory, "attcat")[1] == 1


def test_lists_of_texts_are_explained_as_without_memory(explainer):
    texts = [TEXT, "they are not bad at all", "the key is here"]
    found, _ = explain(explainer, PassCache(), "attcat", texts)
    assert found == explain(explainer, None, "attcat", texts)[0]
