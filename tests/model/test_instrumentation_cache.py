"""Instrumented models that are used again: only while a new one would be the same, and without keeping anything
alive."""

import gc
import threading
import weakref
from functools import partial

import pytest
import torch
from torch import nn

import tokenlight as tl
from tests import models
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.instrumentation_cache import CACHE, borrowed_model
from tokenlight.model.instrumented import InstrumentedModel


def new_model():
    """One that nobody else has."""
    made = models.HEADS["text-classification"].from_config(models.model("bert").config).eval()
    made.load_state_dict(models.model("bert").state_dict())
    return made


@pytest.fixture
def model():
    return new_model()


def twin_of(model):
    with borrowed_model(model) as instrumented:
        return instrumented


def scores(model, method="attn_lrp", **settings):
    return tl.attribute(model, models.ids(), method=method, target=1, **settings)


@pytest.mark.parametrize("family", models.CONFIGS)
def test_the_second_call_reuses_the_instrumented_model(family):
    task = models.default_task(family)
    model, target = models.model(family, task), models.target(task)
    first = tl.attribute(model, models.ids(), method="gradient_x_input", target=target)
    assert model in CACHE
    instrumented = CACHE[model].instrumented
    assert torch.equal(tl.attribute(model, models.ids(), method="gradient_x_input", target=target), first)
    assert CACHE[model].instrumented is instrumented


def halve(model):
    model.half().float()


def double(model):
    model.double()


def new_weight(model):
    layer = model.bert.encoder.layer[1].output.dense
    layer.weight = nn.Parameter(layer.weight * 2)


def written_in_place(model):
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight.mul_(2)


def written_through_data(model):
    model.bert.encoder.layer[0].output.dense.weight.data *= 2


def new_storage(model):
    layer = model.bert.encoder.layer[0].output.dense
    layer.weight.data = layer.weight.data * 2


def new_module(model):
    model.classifier = nn.Sequential(model.classifier, nn.Linear(3, 3))


def another_activation(model):
    for layer in model.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = nn.ReLU()


class HalvedLinear(nn.Linear):
    def forward(self, input):
        return super().forward(input) / 2


def another_class(model):
    model.bert.encoder.layer[0].output.dense.__class__ = HalvedLinear


def another_setting(model):
    model.bert.encoder.layer[0].output.LayerNorm.eps = 0.5


def another_buffer(model):
    model.bert.embeddings.position_ids = model.bert.embeddings.position_ids.flip(1)


def tied(model):
    model.bert.encoder.layer[1].output.dense.weight = model.bert.encoder.layer[0].output.dense.weight


def a_hook(model):
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, output: output * 0.5)


def a_hook_before(model):
    model.bert.encoder.layer[0].register_forward_pre_hook(lambda module, args: (args[0] * 0.5, *args[1:]))


def another_forward(model):
    layer = model.bert.encoder.layer[0].output.dense
    layer.forward = partial(nn.functional.linear, weight=layer.weight.detach() * 0.5, bias=layer.bias.detach())


CHANGES = [
    *(halve, double, new_weight, written_in_place, written_through_data, new_storage, new_module, another_activation),
    *(another_class, another_setting, another_buffer, tied, a_hook, a_hook_before, another_forward),
]


@pytest.mark.parametrize("change", CHANGES)
def test_no_cached_instrumented_model_is_out_of_date(model, change):
    """Scores behind a kept instrumented model are those of a new one."""
    before = scores(model)
    assert model in CACHE
    change(model)
    after = scores(model)
    CACHE.pop(model, None)
    assert torch.equal(after, scores(model))
    assert not torch.equal(after.double(), before.double())


def test_changed_settings_are_detected(model):
    instrumented = twin_of(model)
    assert twin_of(model) is instrumented
    model.config.id2label = {0: "a", 1: "b", 2: "c"}
    second = twin_of(model)
    assert second is not instrumented
    model.config.id2label[0] = "z"
    assert twin_of(model) is not second


def test_a_model_with_hooks_is_not_cached(model):
    handle = model.bert.encoder.layer[0].register_forward_hook(lambda *_: None)
    assert twin_of(model) is not twin_of(model)
    assert model not in CACHE
    handle.remove()
    assert twin_of(model) is twin_of(model)


def test_an_instrumented_model_with_changed_state_is_not_reused(model):
    with borrowed_model(model) as instrumented:
        vars(next(instrumented.model.children()))["longest"] = (
            9  # as modules do that fit themselves to the longest text so far
        )
    assert twin_of(model) is not instrumented


def test_an_instrumented_model_is_not_reused_after_an_exception(model):
    with pytest.raises(RuntimeError, match="in the middle"), borrowed_model(model) as instrumented:
        raise RuntimeError("in the middle")
    assert twin_of(model) is not instrumented


def test_a_borrowed_instrumented_model_is_not_shared(model):
    with borrowed_model(model) as one, borrowed_model(model) as other:
        assert one is not other
    found = []
    threads = [threading.Thread(target=lambda: found.append(scores(model))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(one, found[0]) for one in found)


def test_the_cache_keeps_neither_weights_nor_the_model_alive():
    model = new_model()
    instrumented = twin_of(model)
    assert all(parameter.numel() == 0 for parameter in instrumented.model.parameters())
    before = model.classifier.weight.untyped_storage()
    alive, weights = weakref.ref(model), weakref.ref(before)
    model.half()  # the model gives its memory back, and the instrumented model has none of it
    del before
    assert weights() is None
    del model, instrumented
    gc.collect()
    assert alive() is None


def test_weights_made_in_inference_mode_are_refused_with_a_cached_instrumented_model(model):
    twin_of(model)
    with torch.inference_mode():
        model.classifier.weight.data = model.classifier.weight.data.clone()
    assert model.classifier.weight.is_inference()
    with pytest.raises(UnsupportedModelError, match="inference_mode"):
        scores(model)


def test_a_cached_instrumented_model_equals_a_new_one_in_every_kind_of_pass(model):
    twin_of(model)
    ways: list[dict[str, bool]] = [{}, {"fused": False}, {"low_memory": True}]
    for settings in ways:
        for name in ("attn_lrp", "zplus_lrp", "attcat", "alti"):
            kept = scores(model, name, **settings)
            assert model in CACHE
            CACHE.pop(model)
            assert torch.equal(kept, scores(model, name, **settings))


def test_an_instrumented_model_can_be_made_without_the_cache(model):
    assert InstrumentedModel(model) is not InstrumentedModel(model)
