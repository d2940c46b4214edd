"""What a model does with ids and padding is found out on a few tokens; what would be silently wrong is refused."""

import copy
import gc
import weakref
from functools import cache, partial
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.tokenizers_ import model_for, tokenizer_for
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.diagnostics.tiny_models import tiny_model
from tokenlight.model import behavior_probes
from tokenlight.model.behavior_probes import Behavior, behavior_of
from tokenlight.model.block_structure_discovery import known_structures
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel


class BypassForCausalLM(hf.LlamaForCausalLM):
    """A second lookup of the ids, as per-layer embeddings are."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.second = nn.Embedding(config.vocab_size, config.vocab_size)

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **settings: Any) -> Any:  # type: ignore[override]
        output: Any = super().forward(input_ids, attention_mask, **settings)
        if output.logits.shape[1] == input_ids.shape[1]:
            output.logits = output.logits + 0.1 * self.second(input_ids)
        return output


class TwoWaysForCausalLM(hf.LlamaForCausalLM):
    """Its output depends on the attention implementation, as with faulty implementations."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **settings: Any) -> Any:  # type: ignore[override]
        output: Any = super().forward(input_ids, attention_mask, **settings)
        if self.config._attn_implementation == "sdpa":
            output.logits = output.logits.flip(-1)
        return output


@cache
def mobilebert(vocabulary: int = models.VOCABULARY) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    small = {"embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 1}
    config = hf.MobileBertConfig(**{**models.ENCODER, **small, "initializer_range": 0.1, "vocab_size": vocabulary})
    return hf.MobileBertForSequenceClassification(config).eval().double()


@pytest.mark.parametrize(("family", "task"), models.COMBINATIONS)
def test_probes_find_no_hidden_behavior_in_common_families(family, task):
    model = models.model(family, task)
    last = task == "text-classification" and family not in models.ENCODERS
    assert behavior_probes.run_probes(InstrumentedModel(model)) == Behavior(
        past_embeddings=0.0, equal_lengths=False, reads_last=last
    )


@pytest.mark.parametrize("method", ["gradient_x_input", "raw_attention", "erasure"])
def test_a_model_whose_output_differs_from_its_instrumented_model_is_refused(method):
    torch.manual_seed(0)
    config = hf.LlamaConfig(**models.DECODER)
    model = TwoWaysForCausalLM(config).eval()
    with pytest.raises(UnsupportedModelError, match="has other outputs than its instrumented model"):
        tl.attribute(model, models.ids(), method=method, target=7)
    model.set_attn_implementation("eager")
    assert tl.attribute(model, models.ids(), method=method, target=7).isfinite().all()


def test_ids_read_past_the_embeddings_are_refused():
    torch.manual_seed(0)
    model, ids = BypassForCausalLM(hf.LlamaConfig(**models.DECODER)).eval(), models.ids()
    assert behavior_of(model).past_embeddings > 0.001
    for name in ("gradient_x_input", "attn_lrp", "attcat", "integrated_gradients"):
        message = r"in other places than its embedding layer.* change its output by \d+%"
        with pytest.raises(UnsupportedModelError, match=message):
            tl.attribute(model, ids, method=name, target=7)
    for name in ("raw_attention", "erasure"):  # which need no embeddings
        assert tl.attribute(model, ids, method=name, target=7).isfinite().all()


def test_a_model_is_probed_once(monkeypatch):
    model, found = models.model("gemma", "text-generation"), []
    behavior_probes.BEHAVIORS.drop(model)
    monkeypatch.setattr(
        behavior_probes, "run_probes", lambda instrumented: found.append(1) or Behavior(0.0, False, False)
    )
    for one in (InstrumentedModel(model), InstrumentedModel(model), model, model):
        behavior_of(one)
    assert len(found) == 1
    behavior_probes.BEHAVIORS.drop(model)


def test_probes_include_the_users_hooks():
    model: Any = copy.deepcopy(models.model("bert"))
    seen: list[torch.Tensor] = []
    assert behavior_of(model).past_embeddings == 0
    model.register_forward_pre_hook(lambda *call: seen.append(call[2]["input_ids"]), with_kwargs=True)
    model.classifier.register_forward_hook(lambda *call: call[2] + seen[-1][:, 3:4])
    assert behavior_of(model).past_embeddings > 0.001
    assert behavior_of(models.model("bert")).past_embeddings == 0


def test_a_model_that_reads_padding_runs_one_text_at_a_time():
    tokenizer = tokenizer_for("bert")
    model = mobilebert(len(tokenizer))
    assert behavior_of(model).equal_lengths
    explainer = tl.Explainer(model, tokenizer)
    texts = ["a good movie", "it is not a good movie", "the key is not here"]
    for name in ("raw_attention", "gradient_x_input"):
        together = explainer.explain(texts, name, target=1)
        for text, one in zip(texts, together, strict=True):
            assert torch.equal(one.scores, explainer.explain(text, name, target=1).scores)


def test_texts_padded_by_the_caller_are_refused_if_the_model_reads_padding():
    ids, mask = models.ids(), torch.ones(3, 9, dtype=torch.long)
    equal = tl.attribute(mobilebert(), ids, mask, method="raw_attention", target=1)
    assert_near(equal[:1], tl.attribute(mobilebert(), ids[:1], method="raw_attention", target=1))
    mask[1, 6:] = 0
    with pytest.raises(UnsupportedModelError, match="looks at padding"):
        tl.attribute(mobilebert(), ids, mask, method="raw_attention", target=1)


def test_pooling_at_the_last_token_is_detected_for_any_name_of_the_head():
    config = hf.ModernBertDecoderConfig(**models.ENCODER)
    torch.manual_seed(0)
    model = hf.ModernBertDecoderForSequenceClassification(config).eval()
    assert behavior_of(model) == Behavior(past_embeddings=0.0, equal_lengths=False, reads_last=True)
    ids, mask = models.ids(), torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0  # padded with ordinary ids
    with pytest.raises(ValueError, match=r"another id than config\.pad_token_id"):
        tl.attribute(model, ids, mask, method="attn_lrp", target=1)


class MeanPool(nn.Module):
    """The mean of all states, padding included: a text gets another answer beside a longer one."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.mean(1)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_changed_model_is_probed_again(hooked):
    model: Any = copy.deepcopy(model_for("bert", dtype=torch.float64))
    if hooked:  # a model with hooks cannot be compared as a whole
        model.bert.encoder.register_forward_hook(lambda module, args, output: None)
    explainer = tl.Explainer(model, tokenizer_for("bert"))
    texts = ["it is", "it is a good movie and a good film"]
    explainer.explain(texts, "attn_lrp", target=1, progress=False)
    assert not behavior_of(model).equal_lengths
    model.bert.pooler = MeanPool()
    together = explainer.explain(texts, "attn_lrp", target=1, progress=False)
    alone = [explainer.explain(text, "attn_lrp", target=1, progress=False) for text in texts]
    assert behavior_of(model).equal_lengths
    for one, other in zip(together, alone, strict=True):
        assert_near(one.scores, other.scores)


def test_cached_behavior_does_not_keep_a_model_alive():
    model: Any = copy.deepcopy(models.model("bert"))
    model.bert.encoder.register_forward_hook(partial(lambda model, module, args, output: None, model))
    behavior_of(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


class HalfOfTheStream(nn.Module):
    """The output of BERT's attention, joined with half of the stream."""

    def __init__(self, output: Any):
        super().__init__()
        self.dense, self.LayerNorm = output.dense, output.LayerNorm

    def forward(self, states: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dense(states) + 0.5 * stream)


def test_changed_blocks_are_not_treated_as_those_of_their_family():
    model: Any = copy.deepcopy(models.model("bert", dtype=torch.float64))
    for layer in model.bert.encoder.layer:
        layer.attention.output = HalfOfTheStream(layer.attention.output)
    with borrowed_model(model) as instrumented:
        scales = [structure.residual_scale for structure in known_structures(instrumented.model)]
    assert scales == pytest.approx([0.5, 0.5])


class GatedForCausalLM(hf.LlamaForCausalLM):
    """A second lookup of the ids, scaled by a weight."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.second = nn.Embedding(config.vocab_size, config.vocab_size)
        self.strength = nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **settings: Any) -> Any:  # type: ignore[override]
        output: Any = super().forward(input_ids, attention_mask, **settings)
        if output.logits.shape[1] == input_ids.shape[1]:
            output.logits = output.logits + self.strength * self.second(input_ids)
        return output


def test_a_model_is_probed_again_after_an_in_place_change_of_weights():
    torch.manual_seed(0)
    model = GatedForCausalLM(models.model("llama", "text-generation").config).eval()
    tl.attribute(model, models.ids(), method="gradient_x_input", target=7)
    with torch.no_grad():
        model.strength.fill_(5.0)
    with pytest.raises(UnsupportedModelError, match="reads token ids in other places"):
        tl.attribute(model, models.ids(), method="gradient_x_input", target=7)


def test_a_patched_class_is_not_treated_as_its_family(monkeypatch):
    model: Any = copy.deepcopy(models.model("bert", dtype=torch.float64))
    kind = type(model.bert.encoder.layer[0].attention.output)
    monkeypatch.setattr(kind, "forward", HalfOfTheStream.forward)
    with borrowed_model(model) as instrumented:
        scales = [structure.residual_scale for structure in known_structures(instrumented.model)]
    assert scales == pytest.approx([0.5, 0.5])


def test_an_embedding_that_rewrites_its_weights_is_refused():
    model: Any = copy.deepcopy(models.model("bert"))
    model.bert.embeddings.word_embeddings.max_norm = 0.5
    before = model.bert.embeddings.word_embeddings.weight.clone()
    with pytest.raises(UnsupportedModelError, match="max_norm"):
        tl.attribute(model, models.ids(), method="erasure", target=1)
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, before)


def test_chunked_feed_forward_changes_no_score():
    model: Any = copy.deepcopy(models.model("bert"))
    expected = tl.attribute(model, models.ids(3, 6), method="attn_lrp", target=1)
    for layer in model.bert.encoder.layer:
        layer.chunk_size_feed_forward = 2
    assert_near(tl.attribute(model, models.ids(3, 6), method="attn_lrp", target=1), expected)
    assert model.bert.encoder.layer[0].chunk_size_feed_forward == 2


class CountingCalls(nn.Module):
    calls = 0

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return state * (1 + 0.02 * self.calls)


class AlwaysDropping(nn.Module):
    """F.dropout without training=self.training."""

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(state, 0.01)


@pytest.mark.parametrize("kind", [CountingCalls, AlwaysDropping])
@pytest.mark.parametrize("method", ["gradient_x_input", "erasure", "attcat", "zplus_lrp"])
def test_a_model_with_random_or_changing_outputs_is_refused(kind, method):
    model: Any = copy.deepcopy(models.model("bert"))
    torch.manual_seed(0)
    model.bert.encoder.layer[0].output.dropout = kind()
    with pytest.raises(UnsupportedModelError, match="gives another output for the same input"):
        tl.attribute(model, models.ids(), method=method, target=1)


def test_probes_need_no_states_by_token():
    """BLT's blocks read patches of bytes: no relevance, but tokens can be replaced."""
    model, ids = tiny_model("blt", "text-generation"), models.ids(1, 5)
    scores = tl.attribute(model, ids, method="erasure", removal="pad", target=7)
    with torch.no_grad():
        logits = [
            model(torch.where(torch.arange(5) == gone, model.config.pad_token_id, ids)).logits[0, -1, 7]
            for gone in range(5)
        ]
        whole = model(ids).logits[0, -1, 7]
    assert_near(scores[0], whole - torch.stack(logits), growth=SHARES)
    with pytest.raises(UnsupportedModelError, match="reads token ids in other places than its embedding layer"):
        tl.attribute(model, ids, method="gradient_x_input", target=7)


def test_a_model_that_does_not_run_on_the_probes_is_refused_with_its_own_error():
    model = tiny_model("prophetnet", "text-generation")
    with pytest.raises(UnsupportedModelError, match="does not run on a text of 4 or 7 tokens"):
        tl.attribute(model, models.ids(), method="gradient_x_input", target=7)


def test_a_model_that_cannot_be_compared_with_its_instrumented_copy_is_named(monkeypatch):
    model = models.make("bert", "text-classification", torch.float32)
    forward = behavior_probes.private_copy

    def without_kernel(original, **settings):
        copied = forward(original, **settings)
        monkeypatch.setattr(copied, "forward", lambda **inputs: torch.ones(1) @ torch.ones(2))
        return copied

    monkeypatch.setattr(behavior_probes, "private_copy", without_kernel)
    with pytest.warns(RuntimeWarning, match=r"BertForSequenceClassification as loaded does not run .* not be compared"):
        assert not behavior_probes.behavior_of(model).equal_lengths
