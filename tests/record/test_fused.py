"""Fused attention gives the same results as eager attention, and creates no map of attention weights."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.together import together
from tests.tokenizers_ import explainer_for
from tokenlight import rules
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS, Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.record.recorder import RecordOptions
from tokenlight.rules.structural_rules import can_fuse
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch

FUSABLE = (  # those that never look at attention weights
    *("gradient_l1", "gradient_l2", "gradient_x_input", "cat", "integrated_gradients", "erasure"),
    *("smooth_grad", "expected_gradients", "shapley_sampling", "kernel_shap", "lime"),
    *("lrp", "attn_lrp", "context_lrp", "calibrated_lrp", "alpha_beta_lrp"),
)
CAPPED = "gemma2"  # caps its scores, which no fused kernel does


def padded(side: str) -> Batch:
    ids, mask = models.ids(), torch.ones(3, 9, dtype=torch.long)
    hidden = slice(6, None) if side == "right" else slice(0, 3)
    ids[1, hidden], mask[1, hidden] = 1, 0
    return Batch(ids, mask, pad_id=1)


def explained(
    model: Any,
    task: str,
    name: str,
    batch: Batch,
    record_options: RecordOptions,
    options: Mapping[str, Any] | None = None,
) -> Attribution:
    method_config = MethodConfig.for_model(METHODS[name], {**models.quick_options(name), **(options or {})}, model)
    resolved = models.task(task).resolve_target_ids(models.target(task), None)
    target = BatchTarget(models.task(task), (resolved,) * len(batch.input_ids))
    with borrowed_model(model) as instrumented:
        plan = plan_passes(target, [method_config])
        _, (attribution,) = execute_plan(instrumented, batch, plan, record_options=record_options)
    return attribution


def assert_same(found: Attribution, expected: Attribution) -> None:
    size = max(float(expected.scores.abs().max()), *(float(x.abs().max()) for x in expected.extras.values()), 0.0)
    assert_near(found.scores, expected.scores, growth=SHARES)
    assert found.extras.keys() == expected.extras.keys()
    for name, value in expected.extras.items():
        assert_near(found.extras[name], value, size=size, growth=SHARES)


@pytest.mark.parametrize("name", [name for name in METHODS if models.runs_here(name)])
def test_which_methods_do_not_read_attention_weights(name):
    found = explained(models.model("bert"), "text-classification", name, padded("right"), RecordOptions())
    assert found.fused is (name in (*FUSABLE, "random"))


@pytest.mark.parametrize(("family", "task"), models.COMBINATIONS)
def test_every_family_and_head(family, task):
    model, batch = models.model(family, task, torch.float64), padded("right")
    first = models.COMBINATIONS.index((family, task))
    whole = family in ("bert", "gpt2", "llama") and task == models.default_task(family)
    names = FUSABLE if whole else FUSABLE[first % 3 :: 3]  # others for the next head
    texts, target = (batch.input_ids, batch.attention_mask), models.target(task)
    expected = together(model, names, *texts, target=target, record_options=RecordOptions(fused=False))
    for by_block in (False, True):  # every other method each, others for the next head
        some = names[(first + by_block) % 2 :: 2]
        for name, found in together(
            model, some, *texts, target=target, record_options=RecordOptions(by_block=by_block)
        ).items():
            assert (found.fused, expected[name].fused) == (family != CAPPED, False)
            assert_same(found, expected[name])


@pytest.mark.parametrize("family", [family for family in models.FAMILIES if family not in models.ENCODERS])
@pytest.mark.parametrize("name", ["gradient_x_input", "attn_lrp"])
def test_padding_on_the_left(family, name):
    model = models.model(family, models.default_task(family), torch.float64)
    batch, task = padded("left"), models.default_task(family)
    resolved = {"method": name, "target": models.target(task)}
    expected = tl.attribute(model, batch.input_ids, batch.attention_mask, fused=False, **resolved)
    assert_near(tl.attribute(model, batch.input_ids, batch.attention_mask, **resolved), expected, growth=SHARES)


@pytest.mark.parametrize("name", FUSABLE)
def test_single_precision(name):
    for family in ("bert", "llama"):
        task = models.default_task(family)
        model = models.model(family, task)
        expected = explained(model, task, name, padded("right"), RecordOptions(fused=False))
        assert_near(
            explained(model, task, name, padded("right"), RecordOptions()).scores, expected.scores, growth=SHARES
        )


@pytest.mark.parametrize("name", ["lrp", "attn_lrp", "alpha_beta_lrp"])
@pytest.mark.parametrize("by_block", [False, True])
def test_head_gates_and_details(name, by_block):
    model = models.model("llama", "text-generation", torch.float64)
    options = {"heads": models.SOME_HEADS, "detail": ("layers", "heads", "neurons"), "layer": 1}
    one, other = (
        explained(model, "text-generation", name, padded("right"), RecordOptions(by_block=by_block, fused=way), options)
        for way in (None, False)
    )
    assert one.fused
    assert_same(one, other)
    for kind, value in other.maps.items():
        assert_near(one.maps[kind], value, growth=SHARES)


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [rules.query_key, F.softmax, rules.mix_values, rules.mask_scores])
def test_a_table_with_another_rule_for_a_step_of_attention_disables_fusion(part):
    assert can_fuse(rules.ATTN_LRP)
    assert not can_fuse(rules.ATTN_LRP | {part: lambda function, *args, **kwargs: function(*args, **kwargs)})
    assert not can_fuse({name: rule for name, rule in rules.ATTN_LRP.items() if name is not rules.attend})


def test_published_tables():
    tables = {"LRP", "LRP_UNIFORM", "ATTN_LRP", "ALPHA_BETA", "STREAM", "ZPLUS"}
    assert {name for name in tables if can_fuse(getattr(rules, name))} == tables - {"ZPLUS"}


def test_a_custom_rule_for_fused_attention():
    table = rules.LRP | {rules.attend: rules.constant}
    ids = models.ids()
    found = tl.attribute(models.model("llama", "text-generation"), ids, method="lrp", target=7, rules=table)
    expected = tl.attribute(models.model("llama", "text-generation"), ids, method="lrp", target=7)
    assert (found[:, :-1] == 0).all()  # nothing comes from other tokens
    assert (expected[:, :-1] != 0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_that_are_not_contiguous(dtype):
    """The order in memory that blocks give them: [batch, query, head, dim]."""
    torch.manual_seed(0)
    query, key, value = parts = [torch.randn(2, 4, 70, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    arriving = torch.randn(2, 70, 4, 8, dtype=dtype).transpose(1, 2)
    assert not arriving.is_contiguous()
    one = torch.autograd.grad(rules.attend(query, key, value, None, 0.3, True), parts, arriving)
    scores = (query @ key.transpose(-1, -2) * 0.3).masked_fill(torch.ones(70, 70).triu(1).bool(), -torch.inf)
    other = torch.autograd.grad(scores.softmax(-1) @ value, parts, arriving)
    for found, expected in zip(one, other, strict=True):
        assert_near(found, expected)


# --- memory -----------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes, backward pass included."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):  # what it holds; an expanded tensor claims more
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize(
    ("family", "name"),
    # All methods with the mask of an encoder, all kinds of passes with a decoder's. With rotary positions, decoders
    # cannot hide a token inside a text without a mask [query, key] for each.
    [
        *(("bert", name) for name in FUSABLE),
        *(("llama", name) for name in ("gradient_x_input", "attn_lrp", "alpha_beta_lrp", "integrated_gradients")),
        *(("gpt2", name) for name in ("attn_lrp", "erasure")),
    ],
)
def test_the_largest_tensor_grows_with_the_text_and_not_with_its_square(family, name):
    task = models.default_task(family)
    model = models.model(family, task)

    def largest(tokens: int, fused: bool | None) -> int:
        ids, mask = models.ids(2, tokens), torch.ones(2, tokens, dtype=torch.long)
        ids[1, 15:], mask[1, 15:] = 1, 0
        with Largest() as watch:
            explained(model, task, name, Batch(ids, mask, pad_id=1), RecordOptions(last_logits=True, fused=fused))
        return watch.numbers

    twice = 2 * 41 / 21 if name == "erasure" else 2  # which runs one text more than it has tokens
    assert largest(40, None) <= twice * largest(20, None)
    assert largest(40, False) > 1.2 * twice * largest(20, False)


# --- what users see ---------------------------------------------------------------------------------------------------


def test_results_say_how_attention_was_computed(tmp_path):
    explainer, text = explainer_for("bert"), "the book is good"
    found = explainer.explain_all(text, ["attn_lrp", "rollout", "integrated_gradients"], steps=2)
    assert {name: e.fused for name, e in found.items()} == {
        "attn_lrp": True,
        "rollout": False,
        "integrated_gradients": True,
    }
    written_out = explainer.explain(text, "attn_lrp", fused=False)
    assert written_out.fused is False
    assert_near(found["attn_lrp"].scores, written_out.scores, growth=SHARES)
    written_out.save(tmp_path / "e.json")
    assert tl.Explanation.load(tmp_path / "e.json").fused is False


def test_fused_is_refused_for_methods_that_read_weights():
    ids = models.ids()
    with pytest.raises(ValueError, match="rollout need attention weights, which fused attention does not compute"):
        tl.attribute(models.model("bert"), ids, method="rollout", target=1, fused=True)
    capped = models.model(CAPPED, "text-generation")
    with pytest.raises(UnsupportedModelError, match="has no fused attention"):
        tl.attribute(capped, ids, method="attn_lrp", target=1, fused=True)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_hidden_last_token_does_not_see_itself(family):
    """Padding behind a text needs no mask; a last token that is hidden and read does, in whatever parts texts run."""
    batch, model = Batch(models.ids(1), torch.ones(1, 9, dtype=torch.long)), models.model(family, "text-generation")
    savings = (RecordOptions(fused=False), RecordOptions(), RecordOptions(by_block=True))
    expected, *others = (
        explained(model, "text-generation", "erasure", batch, record_options) for record_options in savings
    )
    assert expected.scores[0, -1] != 0
    for found in others:
        assert_same(found, expected)
