"""Families with attention or blocks of their own: what is recorded is what their own code computes."""

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.together import together
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import Attribution, find_method
from tokenlight.methods.config import MethodConfig
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.layout import layout_of
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, RecordOptions
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch

RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
SMALL = {**models.SMALL, "initializer_range": 0.4}
BLOOM = {**SMALL, "hidden_size": 16, "n_layer": 2, "n_head": 4}
GPT = {**SMALL, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 40}
XLNET = {**SMALL, "d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24, "summary_type": "first"}
XLM = {**SMALL, "emb_dim": 16, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40, "pad_index": 1}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta-v2": ("DebertaV2ForSequenceClassification", {**models.ENCODER, **RELATIVE, "position_buckets": 8}),
    "mpnet": ("MPNetForSequenceClassification", models.ENCODER),
    "albert": ("AlbertForSequenceClassification", {**models.ENCODER, "embedding_size": 8, "num_hidden_layers": 3}),
    "bloom": ("BloomForSequenceClassification", BLOOM),
    "falcon": ("FalconForSequenceClassification", {**models.ENCODER, "alibi": True}),
    "falcon[eager]": (
        "FalconForSequenceClassification",
        {**models.ENCODER, "alibi": True, "attn_implementation": "eager"},
    ),
    "openai-gpt": ("OpenAIGPTForSequenceClassification", GPT),
    "xlnet": ("XLNetForSequenceClassification", XLNET),  # tokens before the batch
    "xlm": ("XLMForSequenceClassification", XLM),
}
RELEVANCE = ("lrp", "attn_lrp", "zplus_lrp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # DeBERTa's modeling file uses torch.jit


def model(family: str) -> Any:
    return build(*FAMILIES[family])


def build(name: str, settings: dict[str, Any]) -> Any:
    kind = getattr(hf, name)
    torch.manual_seed(3)
    made = kind(kind.config_class(**settings))
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return made.double().eval()


def padded() -> Batch:
    ids = models.ids(2, 9)
    ids[1, 6:] = models.SMALL["pad_token_id"]
    return Batch(ids, (ids != models.SMALL["pad_token_id"]).long())


def explain(made: Any, batch: Batch, method: str, **options: Any) -> Tensor:
    return tl.attribute(made, batch.input_ids, batch.attention_mask, method=method, target=1, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_maps_and_gradients_equal_the_models_own(family):
    made, batch = model(family), padded()
    instrumented, capture = InstrumentedModel(made), Capture(CaptureSpec(frozenset({"attention", "values", "context"})))
    answer = instrumented.run(batch, capture)
    leaf, own = run_from_leaf(made, batch)
    single: Any = {"precision": torch.float32} if family in ("bloom", "xlm") else {}  # their own softmax is in no other
    assert_near(answer.logits, own.logits.detach(), **single)
    (gradient,) = torch.autograd.grad(own.logits[:, 1].sum(), leaf)
    expected = (gradient * leaf).sum(-1).detach()
    expected = (expected.T if family == "xlnet" else expected) * batch.attention_mask
    assert_near(explain(made, batch, "gradient_x_input"), expected, **single)
    real = batch.attention_mask.bool()[:, None, :, None]
    if family != "falcon":  # its eager attention, which alone returns maps, adds ALiBi twice
        made.config._attn_implementation = "eager"
        maps = made(**batch.inputs(), output_attentions=True).attentions
        for one, map_ in zip(capture.signals["attention"], maps, strict=True):
            assert_near(torch.where(real, one, 0.0), torch.where(real, map_, 0.0).detach(), **single)
    signals = (capture.signals[name] for name in ("attention", "values", "context"))
    for weights, values, context in zip(*signals, strict=True):
        assert_near(weights @ values, context)


def run_from_leaf(made: Any, batch: Batch) -> tuple[Tensor, Any]:
    """The model's own output, and the output of its embedding layer as the leaf of the graph."""
    leaves: list[Tensor] = []

    def note(module: Any, args: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[0].clone()

    hook = made.get_input_embeddings().register_forward_hook(note)
    output = made(**batch.inputs())
    hook.remove()
    return leaves[0], output


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "settings",
    [
        {"multi_query": False, "parallel_attn": False},
        {"multi_query": True, "parallel_attn": True},
        {"new_decoder_architecture": True, "num_kv_heads": 2},
    ],
)
def test_falcon_with_alibi_runs_with_the_attention_it_was_loaded_with(settings, implementation):
    config = {**models.ENCODER, "alibi": True, "attn_implementation": implementation}
    made, batch = build("FalconForCausalLM", {**config, **settings}), padded()
    real, own = batch.attention_mask.bool(), made(**batch.inputs()).logits.detach()
    for fused in (True, False):
        assert_near(InstrumentedModel(made).run(batch, Capture(CaptureSpec(fused=fused))).logits[real], own[real])
    made.config._attn_implementation = "eager" if implementation == "sdpa" else "sdpa"
    other = made(**batch.inputs()).logits.detach()
    with borrowed_model(made) as instrumented:
        assert_near(instrumented.run(batch, Capture()).logits[real], other[real])


@pytest.mark.parametrize("method", RELEVANCE)
@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_is_conserved(family, method):
    made, batch = model(family), padded()
    with borrowed_model(made) as instrumented:
        method_config = MethodConfig.for_model(find_method(method), {}, instrumented.model, None)
        task = task_of(instrumented.model)
        plan = plan_passes(BatchTarget(task, (task.resolve_target_ids(1, None),) * 2), [method_config])
        _, (found,) = execute_plan(instrumented, batch, plan)
    parts = max(float(share.abs().max()) for name, share in found.extras.items() if name != "residual")
    assert_near(found.extras["residual"], 0, size=max(parts, float(found.scores.abs().max())), growth=SHARES)


@pytest.mark.parametrize("family", FAMILIES)
def test_batched_and_low_memory_scores_equal_those_of_single_texts(family):
    made, batch = model(family), padded()
    methods = (*RELEVANCE, "attcat", "transformer_attribution", "mask_lrp")
    layers = len(layout_of(made).blocks) or len(InstrumentedModel(made).layout.blocks)
    heads = {"heads": torch.tensor([[1.0, 0.0, 1.0, 0.0]] * layers)}

    def explained(some: Batch, record_options: RecordOptions = DEFAULT_RECORD_OPTIONS) -> dict[str, Attribution]:
        return together(
            made, methods, some.input_ids, some.attention_mask, target=1, record_options=record_options, mask_lrp=heads
        )

    found, alone = explained(batch), explained(batch.map(lambda x: x[1:, :6]))
    for name in methods:
        assert_near(found[name].scores[1:, :6], alone[name].scores, growth=SHARES, what=name)
    if layout_of(made).container is None:
        for name, again in explained(batch, RecordOptions(by_block=True)).items():
            assert_near(again.scores, found[name].scores, growth=SHARES, what=name)
        return
    for name in methods:
        with pytest.raises(tl.UnsupportedModelError, match="is spread over several modules"):
            explain(made, batch, name, low_memory=True, **(heads if name == "mask_lrp" else {}))


def test_blocks_across_modules_are_refused_if_a_state_between_them_is_bypassed():
    made, batch = model("xlm"), padded()
    assert torch.isfinite(explain(made, batch, "attcat")).all()
    made.transformer.attentions[1].register_forward_pre_hook(lambda module, args: (args[0].clone(), *args[1:]))
    with pytest.raises(tl.UnsupportedModelError, match="do not follow one another"):
        explain(made, batch, "attcat")


@pytest.mark.parametrize("method", ["attn_lrp", "zplus_lrp", "transformer_attribution"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (
            "MptForCausalLM",
            {**SMALL, "d_model": 16, "n_layers": 2, "n_heads": 4},
        ),  # counts distances from the padded end
        ("GPTNeoXJapaneseForCausalLM", models.ENCODER),  # expands a bias over the texts, to whom it does not belong
    ],
)
def test_padding_changes_no_relevance(name, settings, method):
    made, batch = build(name, settings), padded()
    try:
        made(**batch.inputs())
    except RuntimeError as error:
        pytest.skip(f"{name} of this transformers does not run in double precision: {error}")
    alone = explain(made, batch.map(lambda x: x[1:, :6]), method)
    assert_near(explain(made, batch, method)[1:, :6], alone, growth=SHARES)


def test_a_model_that_replaces_its_modules_is_refused_until_its_attention_type_is_set():
    made, batch = build("BigBirdForSequenceClassification", {**models.ENCODER, "block_size": 4}), padded()
    with pytest.raises(tl.UnsupportedModelError, match="replaces its own modules while it runs"):
        explain(made, batch, "gradient_x_input")
    made.bert.set_attention_type("original_full")
    assert torch.isfinite(explain(made, batch, "lrp")).all()


def test_a_hidden_query_does_not_attend_to_padding():
    """In DeBERTa a hidden token may look nowhere, and so looks everywhere."""
    made, batch = model("deberta-v2"), padded()
    size = made(**batch.inputs()).logits.detach()
    alone = explain(made, batch.map(lambda x: x[1:, :6]), "erasure")
    assert_near(explain(made, batch, "erasure")[1:, :6], alone, size=size)
