"""Projection and norms of a block are found in what its modules give, and refused where it does not add up."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tokenlight.families.tiny_models import tiny_model
from tokenlight.methods.contributions import Layer, contributions
from tokenlight.model.anatomy import blocks, listed_anatomy, norm_at
from tokenlight.model.dissecting import anatomy_of, dissect
from tokenlight.model.twin import Twin
from tokenlight.record.planned_pass import PlannedPass
from tokenlight.record.recording import record
from tokenlight.tasks.targets import Target, Wanted
from tokenlight.text.batches import Batch

JOINED = {  # the module of a block that reads the stream after the attention joined it
    "arcee": "post_attention_layernorm",
    "biogpt": "final_layer_norm",
    "glm": "post_attention_layernorm",
    "glm4": "post_attention_layernorm",  # a norm on the branch
    "granite": "post_attention_layernorm",  # the branch joins with a factor
    "helium": "post_attention_layernorm",
    "nanochat": "post_attention_layernorm",  # norms without weights
    "nemotron": "post_attention_layernorm",
    "olmo": "post_attention_layernorm",
    "starcoder2": "post_attention_layernorm",
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # DeBERTa's modelling file uses torch.jit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_what_is_listed_would_be_found(family, dtype):
    model = models.model(family, models.default_task(family), dtype)
    listed = listed_anatomy(model)
    assert listed is not None
    assert dissect(Twin(model)) == replace(listed, second_norm=None)  # which has to be recorded


@pytest.mark.parametrize("family", JOINED)
def test_the_pieces_add_up_to_the_real_state(family):
    model, ids = tiny_model(family, "text-generation").double(), models.ids(2, 7)
    assert listed_anatomy(model) is None
    found: list[Tensor] = []
    twin = Twin(model)
    (name,) = {name for name, _ in twin.model.named_modules() if name.endswith(f".0.{JOINED[family]}")}

    def note(module: Any, args: Any) -> None:
        found.append(args[0])

    handle = twin.model.get_submodule(name).register_forward_pre_hook(note)
    target = Target(models.task("text-generation"), (Wanted(7),) * 2)
    needs = frozenset({"hidden", "attention", "values", "context"})
    (trace,) = record(twin, Batch(ids, torch.ones_like(ids)), target, PlannedPass(needs)).traces
    handle.remove()
    layers: list[Layer] = []

    def keep(layer: Layer) -> Tensor:
        layers.append(layer)
        return layer.attention[0]

    contributions(trace, keep)(list(trace.blocks_downwards())[-1])
    for layer, real in zip(layers, found[0], strict=True):
        assert_near(layer.output, real)
        sent = torch.einsum("hqk,hkd->qd", layer.attention * layer.scale[:, None], layer.vectors) + layer.residual
        rest = layer.output - sent  # what a bias of the projection or of a norm adds: the same at every token
        assert_near(rest, rest[:1].expand_as(rest), size=layer.output)


def test_blocks_that_do_not_add_up_are_refused():
    model = tiny_model("bitnet", "text-generation")  # a norm between the heads and their projection
    assert anatomy_of(model) is None
    with pytest.raises(tl.UnsupportedModelError, match="0 linear layers that read the heads' outputs as they are"):
        tl.attribute(model, models.ids(), method="alti", target=7)
    doubled = tiny_model("arcee", "text-generation")
    twin = Twin(doubled)
    for name, module in twin.model.named_modules():
        if name.endswith("layers.1"):
            module.register_forward_hook(lambda module, args, output: output * 2, prepend=True)
    assert "does not add up" in str(dissect(twin))


def albert(groups: int) -> Any:
    """Three layers of one block, or of three that have its weights."""
    torch.manual_seed(5)
    settings = {**models.ENCODER, "embedding_size": 8, "num_hidden_layers": 3}
    shared = hf.AlbertForSequenceClassification(hf.AlbertConfig(**settings)).double().eval()
    weights = shared.state_dict()
    for name in [name for name in weights if "albert_layer_groups.0" in name]:
        weights |= {name.replace("groups.0", f"groups.{n}"): weights[name] for n in range(groups)}
    made = hf.AlbertForSequenceClassification(hf.AlbertConfig(**settings, num_hidden_groups=groups)).double().eval()
    made.load_state_dict(weights)
    return made


def test_a_block_that_is_called_several_times_is_as_several_blocks():
    shared, apart = albert(1), albert(3)
    assert dissect(Twin(shared)) == dissect(Twin(apart))
    for method in ("alti", "alti_logit", "globenc"):
        one, other = (tl.attribute(model, models.ids(), method=method, target=1) for model in (shared, apart))
        assert_near(one, other)


@pytest.mark.parametrize("family", ["albert", "deberta", "deberta-v2", "mpnet"])
def test_listed_families_with_code_of_their_own_would_be_found_too(family):
    model = tiny_model(family, "text-classification").double()
    listed = listed_anatomy(model)
    assert listed is not None
    assert dissect(Twin(model)) == replace(listed, second_norm=None)
    target = Target(models.task("text-classification"), (Wanted(1),) * 2)
    ids = models.ids(2, 7)
    one = PlannedPass(frozenset({"hidden", "second_norm"}))
    (trace,) = record(model, Batch(ids, torch.ones_like(ids)), target, one).traces
    for number, block in enumerate(blocks(trace.model)):
        last = norm_at(block, str(listed.second_norm))
        assert_near(last(trace.second_norm[number].value), trace.hidden[number + 1].value)


def test_a_last_norm_that_nobody_records_is_named():
    model = tiny_model("roformer", "text-classification")
    with pytest.raises(tl.UnsupportedModelError, match="norm at the end of a block of RoFormer"):
        tl.attribute(model, models.ids(), method="globenc", target=1)
