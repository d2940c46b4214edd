"""Projection and norms of a block are found in what its modules give, and refused where it does not add up."""

import copy
from dataclasses import replace
from typing import Any

import peft
import pytest
import torch
import transformers as hf
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.diagnostics.tiny_models import tiny_model
from tokenlight.methods.contributions import Layer, contributions
from tokenlight.model.block_structure import blocks, listed_structure, norm_at
from tokenlight.model.block_structure_discovery import discover_structure, structures_of
from tokenlight.model.capture import Capture
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import record
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

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
    "bitnet": "post_attention_layernorm",  # a norm between the heads and their projection
    "granitemoeshared": "post_attention_layernorm",  # experts and an MLP for all
    "starcoder2": "post_attention_layernorm",
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # DeBERTa's modeling file uses torch.jit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_discovery_finds_the_listed_structure(family, dtype):
    model = models.model(family, models.default_task(family), dtype)
    listed = listed_structure(model)
    assert listed is not None
    assert set(discover_structure(InstrumentedModel(model))) == {
        replace(listed, second_norm=None)
    }  # which has to be recorded


@pytest.mark.parametrize("family", JOINED)
def test_decomposed_terms_add_up_to_the_state(family):
    model = tiny_model(family, "text-generation").double()
    assert listed_structure(model) is None
    layers, real = layers_and_inputs(model, "text-generation", JOINED[family])
    for layer, state in zip(layers[0], real[0], strict=True):
        assert_near(layer.output, state)
        sent = torch.einsum("hqk,hkd->qd", layer.attention * layer.scale[:, None], layer.vectors) + layer.residual
        rest = layer.output - sent  # what a bias of the projection or of a norm adds: the same at every token
        assert_near(rest, rest[:1].expand_as(rest), size=layer.output)


@pytest.mark.parametrize("family", ["falcon[alibi]", "falcon[new decoder]"])
def test_a_parallel_mlp_with_an_overwritten_output_is_found(family):
    model = tiny_model(family, "text-generation").double()
    layers, real = layers_and_inputs(model, "text-generation", "self_attention.dense", output=True)
    for layer, branch in zip(layers[0], real[0], strict=True):
        assert_near(layer.output - layer.residual, branch, size=layer.output)


def layers_and_inputs(
    model: Any, task: str, module: str, output: bool = False
) -> tuple[list[list[Layer]], list[Tensor]]:
    """Every block taken apart for two texts; and what a module of the first block reads, or gives, in every call."""
    ids, instrumented, found = models.ids(2, 7), InstrumentedModel(model), list[Tensor]()
    instrumented.run(Batch(ids, torch.ones_like(ids)), Capture())  # it has seen how the model runs
    (name,) = {name for name, _ in instrumented.model.named_modules() if name.endswith(f".0.{module}")}
    noted = instrumented.model.get_submodule(name)
    if output:
        handle = noted.register_forward_hook(lambda module, args, output: found.append(output.clone()))
    else:
        handle = noted.register_forward_pre_hook(lambda module, args: found.append(args[0].clone()))
    needs = frozenset({"hidden", "attention", "values", "context"})
    target = BatchTarget(models.task(task), (ResolvedTarget((1,)),) * 2)
    (trace,) = record(instrumented, Batch(ids, torch.ones_like(ids)), target, PassSpec(needs)).traces
    handle.remove()
    layers: list[list[Layer]] = []

    def keep(layer: Layer) -> Tensor:
        layers[0].append(layer)
        return layer.attention[0]

    matrix_of = contributions(trace, keep)
    for block in trace.blocks_downwards():
        layers.insert(0, [])
        matrix_of(block)
    return layers, found


def test_blocks_that_do_not_add_up_are_refused():
    model = tiny_model("jetmoe", "text-generation")  # experts bring the heads together
    assert structures_of(model) is None
    with pytest.raises(tl.UnsupportedModelError, match="no linear layer that reads the heads' outputs"):
        tl.attribute(model, models.ids(), method="alti", target=7)
    instrumented = InstrumentedModel(tiny_model("arcee", "text-generation"))
    for name, module in instrumented.model.named_modules():
        if name.endswith("layers.1.self_attn"):
            module.register_forward_hook(lambda module, args, output: (output[0] + output[0] ** 2, *output[1:]))
    assert "do not add up" in str(discover_structure(instrumented))


def test_information_between_tokens_outside_of_attention_is_detected():
    instrumented = InstrumentedModel(tiny_model("arcee", "text-generation"))
    assert not isinstance(discover_structure(instrumented), str)
    for name, module in instrumented.model.named_modules():
        if name.endswith("layers.1.mlp"):
            module.register_forward_hook(lambda module, args, output: output + 0.01 * output.roll(1, 1))
    assert "between tokens" in str(discover_structure(instrumented))


@pytest.mark.parametrize(("family", "projection"), [("llama", "o_proj"), ("bert", "attention.output.dense")])
def test_the_projection_includes_an_adapter_on_it(family, projection):
    plain = explained(fresh(family))
    settings = peft.LoraConfig(r=2, target_modules=[projection], init_lora_weights=False)
    adapted = peft.get_peft_model(fresh(family), settings)
    found = explained(adapted)
    assert not torch.allclose(found, plain, rtol=0.01)
    assert_near(found, explained(adapted.merge_and_unload()))


def test_the_projection_includes_a_hook_on_it():
    hooked, other = fresh("bert"), fresh("bert")
    for name, module in hooked.named_modules():
        if name.endswith("attention.output.dense"):
            module.register_forward_hook(lambda module, args, output: 2 * output)
    with torch.no_grad():
        for name, weight in other.named_parameters():
            if "attention.output.dense" in name:
                weight.mul_(2)
    assert_near(explained(hooked), explained(other))
    assert_near(explained(hooked, "globenc"), explained(other, "globenc"))


def fresh(family: str) -> Any:
    """One that may be changed."""
    return copy.deepcopy(models.model(family, models.default_task(family), torch.float64))


def explained(model: Any, method: str = "alti") -> Tensor:
    return tl.attribute(model, models.ids(), method=method, target=1)


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


def test_a_block_called_several_times_counts_as_several_blocks():
    shared, apart = albert(1), albert(3)
    assert discover_structure(InstrumentedModel(shared)) == discover_structure(InstrumentedModel(apart))
    for method in ("alti", "alti_logit", "globenc"):
        one, other = (tl.attribute(model, models.ids(), method=method, target=1) for model in (shared, apart))
        assert_near(one, other)


@pytest.mark.parametrize("family", ["albert", "deberta", "deberta-v2", "mpnet"])
def test_discovery_finds_the_structure_of_listed_families_with_custom_code(family):
    model = tiny_model(family, "text-classification").double()
    listed = listed_structure(model)
    assert listed is not None
    assert set(discover_structure(InstrumentedModel(model))) == {replace(listed, second_norm=None)}
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 2)
    ids = models.ids(2, 7)
    one = PassSpec(frozenset({"hidden", "second_norm"}))
    (trace,) = record(model, Batch(ids, torch.ones_like(ids)), target, one).traces
    for number, block in enumerate(blocks(trace.model)):
        last = norm_at(block, str(listed.second_norm))
        assert_near(last(trace.second_norm[number].value), trace.hidden[number + 1].value)


def test_a_second_norm_that_was_not_captured_is_named():
    model = tiny_model("roformer", "text-classification")
    with pytest.raises(tl.UnsupportedModelError, match="norm at the end of a block of RoFormer"):
        tl.attribute(model, models.ids(), method="globenc", target=1)


def test_several_states_per_token_are_refused():
    """Gemma 3n hands on four."""
    with pytest.raises(UnsupportedModelError, match="more than one state per token"):
        tl.attribute(tiny_model("gemma3n_text", "text-generation"), models.ids(), method="alti", target=7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("factor", [0.05, 0.95])
def test_a_fitted_factor_is_more_exact_than_the_rounded_numbers(factor, dtype):
    config = hf.GraniteConfig(**models.DECODER, residual_multiplier=factor)
    found = structures_of(hf.GraniteForCausalLM(config).eval().to(dtype))
    assert found is not None
    assert {one.residual_scale for one in found} == {1.0}
    for one in found:
        assert abs(one.scale - factor) < torch.finfo(dtype).eps
