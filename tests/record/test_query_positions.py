"""The tokens that a head or a function of the output reads are found by its gradient."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.nn import functional as F

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.together import together
from tests.tokenizers_ import explainer_for
from tokenlight.explain.options import Resources
from tokenlight.methods import METHODS, Pass, method
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_cache import PassCache
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.query_positions import NoQueryPosition, normalize_weights
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, RecordOptions, record
from tokenlight.record.trace import Trace
from tokenlight.rules.tables import LRP
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

READERS = [name for name, entry in METHODS.items() if entry.reads_query_position]
OTHERS = ["attn_lrp", "zplus_lrp", "attcat", "gradient_x_input", "logit", "erasure"]
POOLED = {**models.ENCODER, "num_key_value_heads": 4}
EVERY_TOKEN = [(f, t) for f, t in models.COMBINATIONS if t in ("token-classification", "fill-mask") and f != "gpt_neox"]


def readers(model: Any) -> list[str]:
    return [name for name in READERS if METHODS[name].fits(model)]


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
    named, found = (together(model, readers(model), ids, mask, target=one) for one in ((3, 2), reading(3, 2)))
    for name, one in found.items():
        torch.testing.assert_close(one.scores, named[name].scores, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("name", READERS)
def test_a_function_is_read_at_its_token_with_low_memory(name):
    model, (ids, mask) = models.model("bert", "token-classification"), padded()
    resolved = {"method": name, **models.quick_options(name)}
    named = tl.attribute(model, ids, mask, target=(3, 2), **resolved)
    low = tl.attribute(model, ids, mask, target=reading(3, 2), low_memory=True, **resolved)
    torch.testing.assert_close(low, named, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3", "opt"])
def test_language_models_are_read_at_any_token(family):
    """Nothing behind the token that is read can matter: the text that ends there has the same scores."""
    model, ids = models.model(family, "text-generation", torch.float64), models.ids()
    shorts = together(model, readers(model), ids[:, :5], target=7)
    longs = together(model, readers(model), ids, target=reading(4, 7))
    for name in readers(model):
        short, long = shorts[name].scores, longs[name].scores
        if name != "attention_grad_cam":  # which scales by the whole map
            torch.testing.assert_close(long[:, :5], short, rtol=1e-7, atol=1e-9, msg=name)
        if name != "attention_gradient":  # weights that the mask holds at 0 have a gradient
            assert (long[:, 5:] == 0).all(), name


def test_start_and_end_of_an_answer():
    model, ids = models.model("bert", "question-answering"), models.ids()
    whole = together(model, READERS, ids, target=(2, 5))
    start = together(model, READERS, ids, target=lambda output: output.start_logits[:, 2])
    end = together(model, READERS, ids, target=lambda output: output.end_logits[:, 4])
    for name in READERS:
        both = start[name].scores + end[name].scores
        torch.testing.assert_close(both, whole[name].scores, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_classifiers_are_read_where_their_head_pools(family):
    model, (ids, mask) = models.model(family), padded()
    by_function = together(model, readers(model), ids, mask, target=lambda output: output.logits[:, 1])
    named = together(model, readers(model), ids, mask, target=1)
    for name, one in by_function.items():
        assert torch.equal(one.scores, named[name].scores), name


@pytest.mark.parametrize("name", [name for name in READERS if not METHODS[name].class_specific])
def test_several_tokens_are_read_at_a_mix_of_their_rows(name):
    """The head gives every token's last state the same gradient: each of the two counts half."""
    model, ids = models.model("bert", "token-classification", torch.float64), models.ids()
    both = tl.attribute(model, ids, method=name, target=two_tokens)
    rows = [tl.attribute(model, ids, method=name, target=(position, 1)) for position in (2, 4)]
    assert_near(both, (rows[0] + rows[1]) / 2)


def reading_nothing(output: Any) -> Tensor:
    return (output.logits * 0).sum((1, 2))


@pytest.mark.parametrize("name", READERS)
def test_methods_that_read_rows_name_those_that_do_not(name):
    model = models.model("bert", "token-classification")
    with pytest.raises(ValueError, match=rf"reads no token of a text: .*\. {name} need the tokens") as raised:
        tl.attribute(model, models.ids(), method=name, target=reading_nothing, **models.quick_options(name))
    others = str(raised.value).rpartition(": ")[2].split(", ")
    assert "attn_lrp" in others
    assert not set(others) & set(READERS)


def test_query_weights_at_padding_are_refused():
    ids, mask = padded()
    with pytest.raises(NoQueryPosition, match="token 6 of a text, which is padding"):
        normalize_weights(torch.ones(ids.shape), Batch(ids, mask))


INSIDE = torch.float32  # rotary positions and the softmax of the models' own code, whatever the weights' precision
CLASSIFIERS = {  # where the head reads is said by no name
    "first token": hf.ModernBertConfig(**POOLED, classifier_pooling="cls"),
    "mean of a text": hf.ModernBertConfig(**POOLED, classifier_pooling="mean"),
    "last token": hf.ModernBertDecoderConfig(**POOLED),
}
if hasattr(hf, "EuroBertConfig"):  # not in the first versions of transformers 5
    CLASSIFIERS["late mean"] = hf.EuroBertConfig(**POOLED, classifier_pooling="late")


@cache
def classifier(reads: str, dtype: torch.dtype = torch.float64) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    model = hf.AutoModelForSequenceClassification.from_config(CLASSIFIERS[reads], attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.to(dtype)


def weights_by_hand(model: hf.PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """Plain autograd at the output of the last block."""
    states: list[Tensor] = []

    def note(module: Any, args: Any, output: Any) -> None:
        states.append(output if isinstance(output, Tensor) else output[0])
        states[-1].retain_grad()

    blocks = [module for module in model.modules() if type(module).__name__.endswith(("EncoderLayer", "DecoderLayer"))]
    handle = blocks[-1].register_forward_hook(note)
    model(ids, attention_mask=mask).logits[:, 1].sum().backward()
    handle.remove()
    model.zero_grad()
    assert states[0].grad is not None
    lengths = states[0].grad.norm(dim=-1)
    return lengths / lengths.sum(1, keepdim=True)


@pytest.mark.parametrize("reads", CLASSIFIERS)
def test_classifiers_are_read_where_their_gradient_is(reads):
    model, (ids, mask) = classifier(reads), padded()
    weights = weights_by_hand(model, ids, mask)
    single = {"first token": [0, 0, 0], "last token": [8, 5, 8]}
    if reads in single:
        assert torch.equal(weights, F.one_hot(torch.tensor(single[reads]), 9).double())
    else:
        assert torch.equal(weights > 0, mask.bool())
    attention = model(ids, attention_mask=mask, output_attentions=True).attentions[-1].mean(1)
    expected = torch.where(mask.bool(), (weights[:, None] @ attention)[:, 0], 0.0)
    assert_near(tl.attribute(model, ids, mask, method="raw_attention", target=1), expected.detach(), precision=INSIDE)


@pytest.mark.parametrize("reads", CLASSIFIERS)
@pytest.mark.parametrize("record_options", [DEFAULT_RECORD_OPTIONS, RecordOptions(by_block=True)])
def test_all_passes_have_the_same_query_weights(reads, record_options):
    model, (ids, mask) = classifier(reads), padded()
    weights = weights_by_hand(model, ids, mask)
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 3)
    needs = [{"row"}, {"attention", "row"}, {"attention.grad", "row"}]
    passes = [PassSpec(set[str](), one, last_block=last) for one in needs for last in (False, True)]
    passes += [PassSpec({"row"}, split=True)]
    if reads != "late mean":  # EuroBERT's head has an operation without a rule
        passes += [PassSpec({"attention.grad", "row"}, rules=LRP)]
    for one in passes:
        (trace,) = record(model, Batch(ids, mask), target, one, record_options=record_options).traces
        assert_near(trace.rows, weights, precision=INSIDE)


@pytest.mark.parametrize("low_memory", [False, True])
def test_passes_under_rules_use_the_query_weights_of_plain_passes(monkeypatch, low_memory):
    model, runs, run = models.model("bert"), [], InstrumentedModel.run
    monkeypatch.setattr(InstrumentedModel, "run", lambda *args, **kwargs: runs.append(1) or run(*args, **kwargs))
    for name, passes in {"raw_attention": 1, "generic_attention": 1, "transformer_attribution": 2}.items():
        runs.clear()
        tl.attribute(model, models.ids(), method=name, target=1, low_memory=low_memory)
        assert len(runs) == passes


def test_a_batch_of_texts_that_are_read_as_a_mix_equals_single_texts():
    model, (ids, mask) = classifier("mean of a text"), padded()
    names, record_options = readers(model), RecordOptions(by_block=True, last_logits=True)
    batch = together(model, names, ids, mask, target=1, foil=2)
    alone = together(model, names, ids[1:2, :6], target=1, foil=2)
    low = together(model, names, ids, mask, target=1, foil=2, record_options=record_options)
    sides = [together(model, names, ids, mask, target=label) for label in (1, 2)]
    for name, one in batch.items():
        size = torch.stack([side[name].scores for side in sides])  # of what is subtracted, which may nearly cancel
        assert_near(one.scores[1:2, :6], alone[name].scores, size=size, growth=SHARES, what=name)
        assert_near(low[name].scores, one.scores, size=size, growth=SHARES, what=name)


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


def test_a_function_without_a_gradient_is_refused_by_methods_that_change_texts():
    model = models.model("llama", "text-generation")
    with pytest.raises(ValueError, match="result has no gradient"):
        tl.attribute(model, models.ids(), method="erasure", target=lambda output: output.logits[:, -1, 1].detach())


def test_a_saturated_head_is_read_where_it_would_be():
    """A tanh at 1 has no gradient."""
    model = copy.deepcopy(models.model("bert"))
    with torch.no_grad():
        model.get_parameter("bert.pooler.dense.weight").mul_(100)
    ids, mask = padded()
    at_first = tl.attribute(models.model("bert"), ids, mask, method="rollout", target=1)
    assert torch.equal(tl.attribute(model, ids, mask, method="rollout", target=1), at_first)


def test_explain_computes_query_weights_once_for_all_methods():
    explainer = explainer_for("bert", "token-classification")
    text, heads = "the key is not here", models.SOME_HEADS
    by_function = explainer.explain_all(text, target=reading(2, 1), heads=heads)
    named = explainer.explain_all(text, target=(2, 1), heads=heads)
    for name, one in by_function.items():
        assert torch.equal(one.scores, named[name].scores), name


def test_cached_passes_keep_their_query_positions():
    explainer, memory = explainer_for("bert", "token-classification"), PassCache()
    target, text = reading(2, 1), "the key is not here"
    for name in ("grad_sam", "generic_attention", "grad_sam"):
        method_configs = {name: MethodConfig(METHODS[name], {})}
        found = explainer.explain_configs(text, method_configs, target=target, resources=Resources(pass_cache=memory))[
            name
        ]
        assert torch.equal(found.scores, explainer.explain(text, name, target=(2, 1)).scores)


def test_reading_query_positions_without_the_need_is_refused():
    @method(title="Forgetful", paper="none", signed=False, passes=(Pass(("attention",)),))
    def forgetful(trace: Trace) -> Tensor:
        return trace.read_row(trace.attention[-1].value.mean(1))

    try:
        with pytest.raises(ValueError, match='add "row" to the needs of the method'):
            tl.attribute(models.model("bert"), models.ids(), method="forgetful", target=1)
    finally:
        METHODS.pop("forgetful")
