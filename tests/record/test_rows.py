"""The token that a function of the output reads is found by its gradient; where there are several, none is guessed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight.explain.jobs import Job
from tokenlight.explain.running import Running
from tokenlight.methods import METHODS, Pass, method
from tokenlight.record.pass_memory import PassMemory
from tokenlight.record.trace import Trace

READERS = [name for name, entry in METHODS.items() if entry.reads_row]
OTHERS = ["attn_lrp", "zplus_lrp", "attcat", "gradient_x_input", "logit", "erasure"]
EVERY_TOKEN = [(f, t) for f, t in models.COMBINATIONS if t in ("token-classification", "fill-mask") and f != "gpt_neox"]


def reading(position: int, index: int, field: str = "logits") -> Callable[[Any], Tensor]:
    return lambda output: output[field][:, position, index]


def two_tokens(output: Any) -> Tensor:
    return output["logits"][:, 2, 1] + output["logits"][:, 4, 1]


def padded() -> tuple[Tensor, Tensor]:
    ids, mask = models.ids(), torch.ones(3, 9, dtype=torch.long)
    ids[1, 6:], mask[1, 6:] = 1, 0
    return ids, mask


@pytest.mark.parametrize(("family", "task"), EVERY_TOKEN)
def test_a_function_is_read_where_the_target_of_its_token_is(family, task):
    model, (ids, mask) = models.model(family, task), padded()
    for name in [name for name in READERS if METHODS[name].fits(model)]:
        wanted = {"method": name, **models.quick_options(name)}
        named = tl.attribute(model, ids, mask, target=(3, 2), **wanted)
        found = tl.attribute(model, ids, mask, target=reading(3, 2), **wanted)
        torch.testing.assert_close(found, named, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("name", READERS)
def test_a_function_is_read_at_its_token_with_low_memory(name):
    model, (ids, mask) = models.model("bert", "token-classification"), padded()
    wanted = {"method": name, **models.quick_options(name)}
    named = tl.attribute(model, ids, mask, target=(3, 2), **wanted)
    low = tl.attribute(model, ids, mask, target=reading(3, 2), low_memory=True, **wanted)
    torch.testing.assert_close(low, named, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3", "opt"])
def test_language_models_are_read_at_any_token(family):
    """Nothing behind the token that is read can matter: the text that ends there has the same scores."""
    model, ids = models.model(family, "text-generation", torch.float64), models.ids()
    for name in [name for name in READERS if METHODS[name].fits(model)]:
        wanted = {"method": name, **models.quick_options(name)}
        short = tl.attribute(model, ids[:, :5], target=7, **wanted)
        long = tl.attribute(model, ids, target=reading(4, 7), **wanted)
        if name != "attention_grad_cam":  # which scales by the whole map
            torch.testing.assert_close(long[:, :5], short, rtol=1e-7, atol=1e-9, msg=name)
        if name != "attention_gradient":  # weights that the mask holds at 0 have a gradient
            assert (long[:, 5:] == 0).all(), name


def test_start_and_end_of_an_answer():
    model, ids = models.model("bert", "question-answering"), models.ids()
    for name in READERS:
        wanted = {"method": name, **models.quick_options(name)}
        whole = tl.attribute(model, ids, target=(2, 4), **wanted)
        start = tl.attribute(model, ids, target=lambda output: output.start_logits[:, 2], **wanted)
        end = tl.attribute(model, ids, target=lambda output: output.end_logits[:, 4], **wanted)
        torch.testing.assert_close(start + end, whole, rtol=1e-5, atol=1e-6, msg=name)
        with pytest.raises(ValueError, match="reads 2 tokens of a text: 2, 4"):
            tl.attribute(
                model, ids, target=lambda output: output.start_logits[:, 2] + output.end_logits[:, 4], **wanted
            )


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_classifiers_are_read_where_their_head_pools(family):
    model, (ids, mask) = models.model(family), padded()
    for name in [name for name in READERS if METHODS[name].fits(model)]:
        wanted = {"method": name, **models.quick_options(name)}
        by_function = tl.attribute(model, ids, mask, target=lambda output: output.logits[:, 1], **wanted)
        assert torch.equal(by_function, tl.attribute(model, ids, mask, target=1, **wanted))


@pytest.mark.parametrize("name", READERS)
def test_several_tokens_have_no_row(name):
    model = models.model("bert", "token-classification")
    with pytest.raises(ValueError, match=rf"reads 2 tokens of a text: 2, 4\. {name} need the one token") as raised:
        tl.attribute(model, models.ids(), method=name, target=two_tokens, **models.quick_options(name))
    others = str(raised.value).rpartition(": ")[2].split(", ")
    assert "attn_lrp" in others
    assert not set(others) & set(READERS)


@pytest.mark.parametrize("name", OTHERS)
def test_methods_without_a_row_follow_a_function_of_several_tokens(name):
    model, ids = models.model("bert", "token-classification", torch.float64), models.ids()
    both = tl.attribute(model, ids, method=name, target=two_tokens)
    if METHODS[name].split:  # not linear in the score
        assert torch.isfinite(both).all()
        return
    parts = [tl.attribute(model, ids, method=name, target=(position, 1)) for position in (2, 4)]
    torch.testing.assert_close(both, parts[0] + parts[1], rtol=1e-8, atol=1e-10)


def test_a_named_position_needs_no_row():
    model, ids = models.model("bert", "token-classification"), models.ids()
    for name in ("alti", "globenc", "value_norms"):
        at = tl.attribute(model, ids, method=name, target=two_tokens, position=5)
        assert torch.equal(at, tl.attribute(model, ids, method=name, target=(5, 1)))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (reading(8, 1), "reads token 8 of a text, which is padding"),
        (lambda output: output.logits[:, 3, 1] * 0, "reads no token of a text: its gradient is 0"),
        (lambda output: output.logits[:, 3, 1].detach(), "has no gradient"),
    ],
)
def test_functions_that_read_nothing_real_are_refused(function, reason):
    ids, mask = padded()
    with pytest.raises(ValueError, match=reason):
        tl.attribute(models.model("bert", "token-classification"), ids, mask, method="raw_attention", target=function)


def test_explain_finds_the_row_for_all_methods_at_once():
    explainer = explainer_for("bert", "token-classification")
    text, heads = "the key is not here", models.SOME_HEADS
    by_function = explainer.explain_all(text, target=reading(2, 1), heads=heads)
    named = explainer.explain_all(text, target=(2, 1), heads=heads)
    for name, one in by_function.items():
        assert torch.equal(one.scores, named[name].scores), name


def test_remembered_passes_know_their_row():
    explainer, memory = explainer_for("bert", "token-classification"), PassMemory()
    target, text = reading(2, 1), "the key is not here"
    for name in ("grad_sam", "generic_attention", "grad_sam"):
        jobs = {name: Job(METHODS[name], {})}
        found = explainer.explain_jobs(text, jobs, target=target, running=Running(memory=memory))[name]
        assert torch.equal(found.scores, explainer.explain(text, name, target=(2, 1)).scores)


def test_a_method_that_forgets_to_say_so_is_told():
    @method(title="Forgetful", paper="none", signed=False, passes=(Pass(("attention",)),))
    def forgetful(trace: Trace) -> Tensor:
        return trace.read_row(trace.attention[-1].value.mean(1))

    try:
        with pytest.raises(ValueError, match='names "row" among its needs'):
            tl.attribute(models.model("bert"), models.ids(), method="forgetful", target=1)
    finally:
        METHODS.pop("forgetful")
