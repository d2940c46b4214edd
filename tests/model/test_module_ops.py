"""State spaces, linear attention and hybrids: nothing but the recurrence is special about them."""

import copy
import inspect
import sys
from typing import Any

import pytest
import torch
import transformers as hf

import tokenlight as tl
from tests import models
from tests.methods.test_relevance import uneven
from tests.rounding import assert_near
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.memory import Shape
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.config import largest
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.module_ops import as_custom_op, has_custom_ops
from tokenlight.model.precision import KeepDouble
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import LRP
from tokenlight.tasks.targets import BatchTarget

MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 4, "mamba_chunk_size": 4}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1, "experts_implementation": "eager"}
DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4}
OTHERS = {
    "mamba2": ("Mamba2Config", {"state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 2, "chunk_size": 4}),
    "falcon_h1": ("FalconH1Config", {"mamba_d_ssm": 32, **MAMBA2}),  # both in every block
    "qwen3_5": ("Qwen3_5TextConfig", {"layer_types": ["linear_attention", "full_attention"], **DELTA}),
}
OTHERS |= {
    "rwkv": ("RwkvConfig", {"context_length": 40, "rescale_every": 0}),
    "recurrent_gemma": ("RecurrentGemmaConfig", {"block_types": ["recurrent", "attention"], "lru_width": 16}),
    "xlstm": ("xLSTMConfig", {"num_heads": 4, "qk_dim_factor": 1.0, "chunk_size": 4, "mode": "inference"}),
    # Linear attention in chunks of 4 tokens, written out.
    "minimax": ("MiniMaxConfig", {"block_size": 4, "layer_types": ["linear_attention", "full_attention"], **EXPERTS}),
}
WRITTEN_OUT = ("lfm2", "minimax")  # no recurrence, but operations with rules of their own
FAMILIES = [*models.RECURRENT, *(name for name, (kind, _) in OTHERS.items() if hasattr(hf, kind))]


def model(family, dtype=torch.float64):
    if family in models.RECURRENT:
        return models.model(family, "text-generation", dtype)
    if family not in OTHERS:
        pytest.skip(f"this transformers' {family} is not among the families that are tested: see tests/models.py")
    kind, settings = OTHERS[family]
    torch.manual_seed(1)
    made = hf.AutoModelForCausalLM.from_config(getattr(hf, kind)(**{**models.DECODER, **settings})).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    if family == "xlstm":
        needs_a_model_that_runs(made)
    return made.to(dtype)


def needs_a_model_that_runs(made):
    """Without anything of ours: in transformers 5.0, xLSTM fails on texts that are no whole number of chunks."""
    try:
        made(models.ids())
    except (TypeError, RuntimeError) as error:
        pytest.skip(f"this transformers' {type(made).__name__} does not run on the text: {error}")


def needs_scans(made, family):
    if family not in WRITTEN_OUT and not has_custom_ops(made):
        pytest.skip("this transformers writes the recurrence out in the layer")
    own_code = inspect.getsource(sys.modules[type(made).__module__])
    if family == "recurrent_gemma" and "scaled_dot_product_attention" in own_code:
        pytest.skip("this transformers' RecurrentGemma calls fused attention itself, which has no rule")


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_those_of_the_model(family):
    made, ids = model(family), models.ids()
    embeddings = made.get_input_embeddings()(ids).detach().requires_grad_()
    with KeepDouble():  # some models compute their recurrence in single precision
        score = made(inputs_embeds=embeddings, attention_mask=torch.ones_like(ids)).logits[:, -1, 7]
    (gradient,) = torch.autograd.grad(score.sum(), embeddings)
    products = (gradient * embeddings).detach()
    found = tl.attribute(made, ids, method="gradient_x_input", target=7)
    assert_near(found, products.sum(-1), size=products.abs().sum(-1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_is_conserved(family, dtype):
    made = model(family, dtype)
    needs_scans(made, family)
    names = ("lrp", "attn_lrp", "alpha_beta_lrp", "zplus_lrp")
    method_configs = [MethodConfig.for_model(METHODS[name], {}, made) for name in names]
    task = models.task("text-generation")
    plan = plan_passes(BatchTarget(task, (task.resolve_target_ids(7, None),) * 3), method_configs)
    answer, results = execute_plan(InstrumentedModel(made), uneven(), plan)
    for name, result in zip(names, results, strict=True):
        shares = [result.scores.abs().sum(1), *(part.abs() for part in result.extras.values()), answer.score.abs()]
        assert_near(result.extras["residual"], 0.0, size=torch.stack(shares), precision=dtype)
        assert result.scores.abs().max() > 0, name


def test_relevance_through_the_scan_follows_its_constants():
    """Against the sum over all earlier tokens: decay from there to here, times what is written, times what is read."""
    from transformers.models.mamba import modeling_mamba

    if not hasattr(modeling_mamba, "mamba_selective_scan"):
        pytest.skip("this transformers writes the recurrence out in the layer")
    torch.manual_seed(0)
    batch, channels, tokens, size = 2, 3, 5, 4
    values, step, gate = (torch.randn(batch, channels, tokens, dtype=torch.float64) for _ in range(3))
    write, read = (torch.randn(batch, size, tokens, dtype=torch.float64) for _ in range(2))
    decay, skip = -torch.rand(channels, size, dtype=torch.float64), torch.randn(channels, dtype=torch.float64)
    signals = [x.requires_grad_() for x in (values, step, write, read, gate)]
    scan = as_custom_op(modeling_mamba.mamba_selective_scan, "hidden_states")
    with RuleMode(LRP, Ledger(batch)):
        result = scan(values, step, decay, write, read, D=skip, z=gate, delta_softplus=True)
    arriving = torch.randn_like(result)
    found = torch.autograd.grad(result, signals, arriving, allow_unused=True)
    assert [part is None for part in found] == [False, True, True, True, True]
    with torch.no_grad():
        width = torch.nn.functional.softplus(step)
        behind = arriving * torch.nn.functional.silu(gate)
        expected = behind * skip[:, None]
        for here in range(tokens):
            for there in range(here + 1):
                gone = width[:, :, there + 1 : here + 1].sum(-1)[..., None] * decay  # [batch, channel, size]
                weight = (gone.exp() * write[:, None, :, there] * read[:, None, :, here]).sum(-1) * width[:, :, there]
                expected[:, :, there] += weight * behind[:, :, here]
    assert_near(found[0], expected, precision=torch.float32)  # the scan casts to single precision inside


@pytest.mark.parametrize("name", ["raw_attention", "rollout", "attcat", "transformer_attribution"])
@pytest.mark.parametrize("family", FAMILIES)
def test_methods_that_read_attention_are_refused_for_recurrent_models(family, name):
    made = model(family)
    assert not METHODS[name].fits(made)
    with pytest.raises(UnsupportedModelError, match="blocks have attention"):
        tl.attribute(made, models.ids(), method=name, target=7)


def test_a_token_is_hidden_from_a_recurrence_or_hiding_is_refused():
    """Mamba sets hidden states to 0; a model that never looks at the mask would get scores of rounding errors."""
    made, ids = model("mamba"), models.ids()
    assert tl.attribute(made, ids, method="erasure", target=7).abs().max() > 1e-3
    deaf: Any = copy.deepcopy(made)
    deaf.backbone.register_forward_pre_hook(without_mask, with_kwargs=True)
    with pytest.raises(UnsupportedModelError, match="attention_mask hides"):
        tl.attribute(deaf, ids, method="erasure", target=7)
    assert tl.attribute(deaf, ids, method="erasure", removal="pad", target=7).abs().max() > 1e-3


def without_mask(module, args, kwargs):
    return args, {**kwargs, "attention_mask": None}


def test_head_masks_are_refused_for_recurrent_models():
    with pytest.raises(UnsupportedModelError, match="1 of the model's 2 blocks have attention"):
        tl.attribute(model("lfm2"), models.ids(), method="lrp", heads=models.SOME_HEADS, target=7)


def test_the_users_model_keeps_its_recurrence_functions():
    made = model("mamba")
    needs_scans(made, "mamba")
    before = [type(module).forward for module in made.modules()]
    instrumented = InstrumentedModel(made)
    assert [type(module).forward for module in made.modules()] == before
    assert not any("forward" in vars(module) for module in made.modules())
    changed = [
        module for module in instrumented.model.modules() if has_custom_ops(module) and "forward" in vars(module)
    ]
    assert len(changed) == 2


def test_a_model_without_attention_has_no_heads():
    shape = Shape.of(model("mamba"))
    assert (shape.blocks, shape.width, shape.heads) == (2, 16, 0)


def test_the_largest_of_per_layer_settings_is_found():
    config = hf.LlamaConfig(intermediate_size=24)
    config.per_layer = [4, 16, 8]
    assert largest(config, "nothing", "per_layer", "intermediate_size") == 16
    assert largest(config, "intermediate_size") == 24
    assert largest(config, "nothing") == 0


def test_gates_inside_a_recurrence_get_no_relevance():
    """RecurrentGemma: the state takes the values times gates that are computed from the same values."""
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru

    instrumented = InstrumentedModel(model("recurrent_gemma"))
    (layer,) = (module for module in instrumented.model.modules() if isinstance(module, RecurrentGemmaRglru))
    places = torch.arange(5)[None].expand(2, -1)
    values = torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
    with KeepDouble(), RuleMode(LRP, Ledger(2)):
        result = layer(values, position_ids=places)
    arriving = torch.randn_like(result)
    (found,) = torch.autograd.grad(result, values, arriving)
    assert_near((found * values.detach()).sum((1, 2)), (result * arriving).sum((1, 2)).detach(), size=10.0)
    layer.recurrent_states = None
    with KeepDouble():
        (plain,) = torch.autograd.grad(layer(values, position_ids=places), values, arriving)
    assert (found - plain).abs().max() > 1e-3


@pytest.mark.parametrize("training", [False, True])
def test_a_write_into_weights_is_refused_before_it_happens(training):
    small: Any = {**models.SMALL, "hidden_size": 16, "num_hidden_layers": 2, "rescale_every": 1}
    made = hf.RwkvForCausalLM(hf.RwkvConfig(**small)).eval()
    if training:
        made(models.ids())
        tl.attribute(made, models.ids(), method="gradient_x_input", target=7)
        made.train()(models.ids())
    before = {name: weight.clone() for name, weight in made.named_parameters()}
    with pytest.raises(UnsupportedModelError, match="run it once before"):
        tl.attribute(made, models.ids(), method="gradient_x_input", target=7)
    assert all(torch.equal(before[name], weight) for name, weight in made.named_parameters())
    made.eval()(models.ids())
    assert tl.attribute(made, models.ids(), method="gradient_x_input", target=7).abs().max() > 0
