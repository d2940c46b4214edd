"""What stops a model: its own code, or the way in which it is recorded."""

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tokenlight as tl
from tests import models
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.instrumented import refusing_instrumentation_errors


class Reads(torch.nn.Module):
    """Something at the end of a model that wants a tensor without a gradient."""

    def forward(self, state):
        return state + float(state.numpy().size * 0)


class Broken(torch.nn.Module):
    def forward(self, state):
        raise RuntimeError("the model's own trouble")


def llama_with(module):
    model = copy.deepcopy(models.model("llama", "text-generation"))
    model.model.norm = module
    return model


@pytest.mark.parametrize("method", ["gradient_x_input", "attn_lrp"])  # called by the model, and by a line of ours
def test_a_model_that_runs_but_not_with_a_graph_is_refused(method):
    model = llama_with(Reads())
    assert tl.attribute(model, models.ids(), method="erasure", target=7).isfinite().all()
    with pytest.raises(UnsupportedModelError, match="runs, but not with the hooks of this method") as refusal:
        tl.attribute(model, models.ids(), method=method, target=7)
    assert isinstance(refusal.value.__cause__, RuntimeError)


def test_a_model_that_does_not_run_raises_its_own_error():
    with pytest.raises(UnsupportedModelError, match=r"does not run on a text of 4 .* own trouble"):
        tl.attribute(llama_with(Broken()), models.ids(), method="gradient_x_input", target=7)


def test_an_error_in_the_backward_pass_is_refused_but_full_memory_is_not():
    with pytest.raises(UnsupportedModelError, match="in place"), refusing_instrumentation_errors(torch.nn.Identity()):
        raise RuntimeError("written in place")
    with pytest.raises(RuntimeError, match="not enough memory"), refusing_instrumentation_errors(torch.nn.Identity()):
        raise RuntimeError("DefaultCPUAllocator: not enough memory")


def test_a_bug_of_tokenlight_is_not_a_refusal(monkeypatch):
    """It would look as if the model were at fault."""
    model = copy.deepcopy(models.model("llama", "text-generation"))
    assert tl.attribute(model, models.ids(), method="raw_attention", target=7).isfinite().all()
    monkeypatch.setattr("tokenlight.model.attention.capture_weights", None)
    with pytest.raises(TypeError, match="not callable"):
        tl.attribute(model, models.ids(), method="raw_attention", target=7)


def test_a_model_may_write_into_its_embeddings():
    plain, writing = models.model("llama", "text-generation"), copy.deepcopy(models.model("llama", "text-generation"))
    writing.model.embed_tokens.register_forward_hook(lambda module, args, output: None)
    writing.model.register_forward_pre_hook(write_into_embeddings, with_kwargs=True)
    found, expected = (tl.attribute(m, models.ids(), method="gradient_x_input", target=7) for m in (writing, plain))
    torch.testing.assert_close(found, expected)


def write_into_embeddings(model, args, kwargs):
    embeddings = model.embed_tokens(kwargs.pop("input_ids"))
    embeddings += 0.0
    return args, {**kwargs, "inputs_embeds": embeddings}


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize(
    "method", ["gradient_x_input", "integrated_gradients", "expected_gradients", "lrp", "generic_attention"]
)
def test_a_head_that_detaches_the_last_states_is_refused(method, low_memory):
    model = copy.deepcopy(models.model("llama", "text-generation"))
    model.model.norm.register_forward_hook(lambda module, args, state: state.detach())
    with pytest.raises(UnsupportedModelError, match="the explained score has no gradient"):
        tl.attribute(model, models.ids(), method=method, target=7, low_memory=low_memory)


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("method", ["gradient_x_input", "cat", "attcat", "generic_attention", "lrp", "zplus_lrp"])
def test_blocks_that_are_cut_off_from_the_text_are_refused(method, low_memory):
    """Methods that add up layers would leave out the lower ones without saying so."""
    model = copy.deepcopy(models.model("llama", "text-generation"))
    model.model.layers[0].register_forward_hook(lambda module, args, state: state.detach())
    with pytest.raises(UnsupportedModelError, match=r"block [01] \(LlamaDecoderLayer\) computes without a gradient"):
        tl.attribute(model, models.ids(), method=method, target=7, low_memory=low_memory)


@pytest.mark.parametrize("low_memory", [False, True])
def test_attention_without_a_gradient_is_refused_where_its_gradient_is_read(low_memory):
    model = copy.deepcopy(models.model("llama", "text-generation"))
    attention = model.model.layers[0].self_attn
    kind = type(attention)
    attention.__class__ = type("Attention", (kind,), {"forward": torch.no_grad()(kind.forward)})
    with pytest.raises(UnsupportedModelError, match="the attention of block 0 computes without a gradient"):
        tl.attribute(model, models.ids(), method="generic_attention", target=7, low_memory=low_memory)


class Checkpointed(torch.nn.Module):
    """Computes an MLP again in the backward pass, also of a model that does not train."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, state):
        return checkpoint(self.inside, state, use_reentrant=False)


def checkpointed():
    model = copy.deepcopy(models.model("llama", "text-generation"))
    model.model.layers[0].mlp = Checkpointed(model.model.layers[0].mlp)
    return model


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("method", ["lrp", "attn_lrp", "zplus_lrp"])
def test_checkpointing_is_refused_with_rules(method, low_memory):
    with pytest.raises(UnsupportedModelError, match="switch checkpointing off"):
        tl.attribute(checkpointed(), models.ids(), method=method, target=7, low_memory=low_memory)


def test_checkpointing_changes_no_plain_gradient():
    scores = tl.attribute(checkpointed(), models.ids(), method="gradient_x_input", target=7)
    plain = tl.attribute(models.model("llama", "text-generation"), models.ids(), method="gradient_x_input", target=7)
    torch.testing.assert_close(scores, plain)


def test_saved_tensor_hooks_around_the_call_change_no_score():
    model = models.model("llama", "text-generation")
    plain = tl.attribute(model, models.ids(), method="attn_lrp", target=7)
    with torch.autograd.graph.save_on_cpu():
        scores = tl.attribute(model, models.ids(), method="attn_lrp", target=7)
    torch.testing.assert_close(scores, plain, rtol=0, atol=0)
