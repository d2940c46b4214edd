"""Mixtures of experts, attention sinks and latent attention: conservation, the right text, the model's own numbers."""

import copy
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from transformers import AutoModelForCausalLM, PreTrainedModel

import tokenlight as tl
from tests import models
from tests.methods.test_relevance import attribution
from tests.rounding import SHARES, assert_near

# The grouped matrix product of transformers' own experts has no double precision.
pytestmark = pytest.mark.filterwarnings("ignore:.* could not be compared:RuntimeWarning")
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1}
LATENT = {"num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "head_dim": None, "qk_rope_head_dim": 4}
LATENT |= {"qk_nope_head_dim": 4, "v_head_dim": 4, "first_k_dense_replace": 1, "moe_intermediate_size": 12}
CONFIGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gpt_oss": (
        hf.GptOssConfig,
        {**models.DECODER, **models.SLIDING, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "deepseek_v3": (hf.DeepseekV3Config, {**models.DECODER, **LATENT, **ROUTED}),
    "llama4": (hf.Llama4TextConfig, {**models.DECODER, "num_local_experts": 4, "intermediate_size_mlp": 24}),
}


@cache
def model(family: str) -> PreTrainedModel:
    kind, settings = CONFIGS[family]
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(kind(**settings)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3 + 4 * name.endswith("sinks"))  # so that they take much
    return made.double()


@pytest.mark.parametrize("name", ["lrp", "attn_lrp", "zplus_lrp"])
@pytest.mark.parametrize("family", CONFIGS)
def test_relevance_is_conserved_for_every_text(family, name):
    """Experts see rows of several texts, in their own order: a share that is noted for the wrong text would show."""
    answer, result = attribution(model(family), "text-generation", name)
    total = torch.ones_like(answer.score) if name == "zplus_lrp" else answer.score
    shares = [share for key, share in result.extras.items() if key != "residual"]
    parts = torch.stack([result.scores.sum(1), *shares])
    assert_near(parts.sum(0), total, size=parts, growth=SHARES)
    assert ("sink_share" in result.extras) == (family == "gpt_oss" and name != "lrp")


@pytest.mark.parametrize("name", ["lrp", "attn_lrp", "raw_attention", "gradient_x_input"])
@pytest.mark.parametrize("family", CONFIGS)
def test_scores_in_a_batch_equal_those_of_single_texts(family, name):
    together = tl.attribute(model(family), models.ids(), method=name, target=7)
    apart = torch.cat([tl.attribute(model(family), row[None], method=name, target=7) for row in models.ids()])
    assert_near(together, apart)


def test_attention_to_a_sink_is_missing_from_the_row_sum():
    found = tl.attribute(model("gpt_oss"), models.ids(), method="raw_attention", target=7)
    with_maps: Any = copy.deepcopy(model("gpt_oss"))
    with_maps.set_attn_implementation("eager")
    with_maps.set_experts_implementation("eager")
    maps = with_maps(models.ids(), output_attentions=True).attentions[-1].mean(1)[:, -1].detach()
    assert_near(
        found, maps, precision=torch.float32
    )  # outside of the instrumented model, positions are in single precision
    assert (found.sum(1) < 0.95).any()


def test_sinks_cannot_be_fused():
    with pytest.raises(tl.UnsupportedModelError, match="no fused attention"):
        tl.attribute(model("gpt_oss"), models.ids(), method="lrp", target=7, fused=True)
