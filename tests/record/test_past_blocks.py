"""Gradients block by block equal those of one graph, for heads and blocks that read more than the previous output."""

from typing import Any, ClassVar

import pytest
import torch
import transformers as hf
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import RecordOptions, record
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

LAYERS = 4
SIGNALS = {"embeddings.grad", "hidden.grad", "attention.grad"}


class ClassifierWithCustomHead(hf.BertPreTrainedModel):
    """A BERT classifier whose subclasses define the head."""

    encoder_arguments: ClassVar[dict[str, bool]] = {}
    bert: Any

    def __init__(self, config: Any):
        super().__init__(config)
        self.bert = hf.BertModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, return_dict=True):
        output = self.bert(input_ids, attention_mask, token_type_ids, **self.encoder_arguments)
        return SequenceClassifierOutput(logits=self.head(output))

    def head(self, output: Any) -> Any:
        raise NotImplementedError


class LastLayersForSequenceClassification(ClassifierWithCustomHead):
    encoder_arguments: ClassVar[dict[str, bool]] = {"output_hidden_states": True}

    def head(self, output: Any) -> Any:
        return self.classifier(torch.stack(output.hidden_states[-3:]).sum(0)[:, 0])


class SkipsForSequenceClassification(ClassifierWithCustomHead):
    """Later blocks read the sum of a state and an earlier one, as in a U-net; so does the head."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, return_dict=True):
        first = self.bert.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        mask = (1 - attention_mask[:, None, None].to(first)) * -1e9
        down, bottom, up, top = self.bert.encoder.layer
        second = down(first, mask)
        state = top(first + up(second + bottom(second, mask), mask), mask)
        return SequenceClassifierOutput(logits=self.classifier((state + first)[:, 0]))


class AllLayersForSequenceClassification(ClassifierWithCustomHead):
    """The first hidden state is the first block's input, which a hook of transformers stores."""

    encoder_arguments: ClassVar[dict[str, bool]] = {"output_hidden_states": True}

    def head(self, output: Any) -> Any:
        return self.classifier(torch.stack(output.hidden_states).sum(0)[:, 0])


class StoredForSequenceClassification(ClassifierWithCustomHead):
    """A hook inside a block stores what the head reads."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, return_dict=True):
        stored: list[torch.Tensor] = []
        submodule = self.bert.encoder.layer[1].intermediate
        handle = submodule.register_forward_hook(lambda module, args, output: stored.append(output))
        state = self.bert(input_ids, attention_mask).last_hidden_state
        handle.remove()
        return SequenceClassifierOutput(logits=self.classifier(state[:, 0]) + stored[0][:, 0, :3])


class AddsStoredState(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner
        self.earlier: torch.Tensor | None = None

    def forward(self, *args):
        return self.inner(*args) + self.earlier


class AttributeForSequenceClassification(ClassifierWithCustomHead):
    """A block reads an earlier state that is not one of its arguments."""

    def __init__(self, config):
        super().__init__(config)
        self.adding = AddsStoredState(self.bert.encoder.layer[2].output.dense)
        self.bert.encoder.layer[2].output.dense = self.adding
        self.bert.encoder.layer[0].register_forward_hook(self.store)

    def store(self, module, args, output):
        self.adding.earlier = output

    def head(self, output: Any) -> Any:
        return self.classifier(output.last_hidden_state[:, 0])


class SameStateForSequenceClassification(ClassifierWithCustomHead):
    """Pairs of blocks that read the same state."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, return_dict=True):
        state = self.bert.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        mask = (1 - attention_mask[:, None, None].to(state)) * -1e9
        for left, right in zip(self.bert.encoder.layer[::2], self.bert.encoder.layer[1::2], strict=True):
            state = left(state, mask) + right(state, mask)
        return SequenceClassifierOutput(logits=self.classifier(state[:, 0]))


class ChangesEverySecondCall(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner, self.calls = inner, [0]

    def forward(self, *args):
        self.calls[0] += 1
        return self.inner(*args) * (self.calls[0] % 2 + 0.5)


def make_tiny(model_class: type[ClassifierWithCustomHead]) -> Any:
    torch.manual_seed(0)
    config = hf.BertConfig(**{**models.ENCODER, "num_hidden_layers": LAYERS})
    return model_class(config).double().eval()


def record_gradients(model: Any, needs: set[str], by_block: bool) -> dict[str, list[torch.Tensor]]:
    ids = models.ids(2, 6)
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 2)
    batch, plan = Batch(ids, torch.ones_like(ids)), PassSpec(needs)
    (trace,) = record(model, batch, target, plan, record_options=RecordOptions(by_block=by_block)).traces
    assert trace.embeddings is not None
    signals = {"embeddings": (trace.embeddings,), "hidden": trace.hidden, "attention": trace.attention}
    return {name: [signal.gradient for signal in group] for name, group in signals.items()}


@pytest.mark.parametrize("stored_before", [False, True])
@pytest.mark.parametrize("model_class", [LastLayersForSequenceClassification, SkipsForSequenceClassification])
def test_gradients_along_every_path_are_accumulated(model_class, stored_before):
    model = make_tiny(model_class)
    if stored_before:  # then transformers' hooks that store states run before ours, otherwise after them
        model.bert(models.ids(2, 6), output_hidden_states=True)
    one_graph, by_block = (record_gradients(model, SIGNALS, by_block) for by_block in (False, True))
    for name, gradients in one_graph.items():
        assert len(gradients) == {"embeddings": 1, "hidden": LAYERS + 1, "attention": LAYERS}[name]
        for expected, gradient in zip(gradients, by_block[name], strict=True):
            assert_near(gradient, expected)


@pytest.mark.parametrize("method", ["attn_lrp", "attcat", "generic_attention", "integrated_gradients"])
@pytest.mark.parametrize("model_class", [LastLayersForSequenceClassification, SkipsForSequenceClassification])
def test_scores_with_low_memory_equal_those_of_one_graph(model_class, method):
    model, ids = make_tiny(model_class), models.ids(2, 6)
    model.bert(ids, output_hidden_states=True)
    one_graph, by_block = (
        tl.attribute(model, ids, method=method, target=1, low_memory=low_memory, **models.quick_options(method))
        for low_memory in (False, True)
    )
    assert_near(by_block, one_graph)


@pytest.mark.parametrize(
    ("model_class", "message"),
    [
        (AllLayersForSequenceClassification, "block 0 computes inside, or its input"),
        (StoredForSequenceClassification, "block 1 computes inside"),
        (AttributeForSequenceClassification, "reads more of the input than the state before it"),
        (SameStateForSequenceClassification, "two blocks read the same state"),
    ],
)
@pytest.mark.parametrize("method", ["gradient_x_input", "lrp"])
def test_paths_that_bypass_block_outputs_are_refused(model_class, message, method):
    model, ids = make_tiny(model_class), models.ids(2, 6)
    if method == "gradient_x_input":  # without low_memory, such paths are supported
        assert tl.attribute(model, ids, method=method, target=1).any()
    with pytest.raises(UnsupportedModelError, match=f"low_memory: .*{message}"):
        tl.attribute(model, ids, method=method, target=1, low_memory=True)


def test_a_block_with_a_different_result_in_its_second_run_is_refused():
    model = make_tiny(LastLayersForSequenceClassification)
    block = model.bert.encoder.layer[1]
    block.output.dense = ChangesEverySecondCall(block.output.dense)
    with pytest.raises(UnsupportedModelError, match=r"block 1 .* another result when it runs a second time"):
        record_gradients(model, {"embeddings.grad"}, by_block=True)


def test_a_pass_from_the_last_block_includes_other_uses_of_its_input():
    model, ids = make_tiny(LastLayersForSequenceClassification), models.ids(2, 6)
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 2)
    batch = Batch(ids, torch.ones_like(ids))
    all_blocks, from_last = (
        record(model, batch, target, PassSpec({"hidden.grad"}, last_block=last)).traces[0].hidden
        for last in (False, True)
    )
    assert_near(from_last[0].gradient, all_blocks[-2].gradient)
