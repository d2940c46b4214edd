"""What stops a model: its own code, or the way in which it is recorded."""

import copy

import pytest
import torch

import tokenlight as tl
from tests import models
from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.model.own_errors import refusing_what_we_break


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
    with pytest.raises(UnsupportedModelError, match="runs, but not as this method runs it") as refusal:
        tl.attribute(model, models.ids(), method=method, target=7)
    assert isinstance(refusal.value.__cause__, RuntimeError)


def test_a_model_that_does_not_run_says_so_itself():
    with pytest.raises(UnsupportedModelError, match=r"does not run on a text of 4 .* own trouble"):
        tl.attribute(llama_with(Broken()), models.ids(), method="gradient_x_input", target=7)


def test_a_backward_pass_that_stops_is_refused_and_full_memory_is_not():
    with pytest.raises(UnsupportedModelError, match="in place"), refusing_what_we_break(torch.nn.Identity()):
        raise RuntimeError("written in place")
    with pytest.raises(RuntimeError, match="not enough memory"), refusing_what_we_break(torch.nn.Identity()):
        raise RuntimeError("DefaultCPUAllocator: not enough memory")


def test_a_slip_of_our_own_is_no_refusal(monkeypatch):
    """It would look as if the model were at fault."""
    model = copy.deepcopy(models.model("llama", "text-generation"))
    assert tl.attribute(model, models.ids(), method="raw_attention", target=7).isfinite().all()
    monkeypatch.setattr("tokenlight.model.attention.note_weights", None)
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


@pytest.mark.parametrize("method", ["gradient_x_input", "integrated_gradients", "smooth_grad", "expected_gradients"])
def test_a_model_that_cuts_its_graph_is_refused(method):
    model = copy.deepcopy(models.model("llama", "text-generation"))
    model.model.norm.register_forward_hook(lambda module, args, state: state.detach())
    with pytest.raises(UnsupportedModelError, match="runs, but not as this method runs it"):
        tl.attribute(model, models.ids(), method=method, target=7)
