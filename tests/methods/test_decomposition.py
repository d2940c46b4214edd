"""Norms, GlobEnc, ALTI, ALTI-Logit: what adds up must add up, and shortcuts must equal the long way."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.methods.contributions import alti_matrix, attention_output, layer_of, normalize
from tokenlight.model import block_structure
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import record
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch

DOUBLE = torch.float64
SIGNALS = ("hidden", "attention", "values", "context", "second_norm")


def batch_target(task, foil=None, rows=3):
    return BatchTarget(
        models.task(task), tuple(models.task(task).resolve_target_ids(models.target(task), foil) for _ in range(rows))
    )


def uneven():
    ids = models.ids()
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = 1, 0
    return Batch(ids, mask)


def trace_of(family, task=None):
    task = task or models.default_task(family)
    return record(models.model(family, task, DOUBLE), uneven(), batch_target(task), PassSpec(set(SIGNALS))).traces[0]


def layer(trace, number, row=0, second=False):
    known = block_structure.known_structure(trace.model)
    block = {block.number: block for block in trace.blocks_downwards()}[number]
    joined = attention_output(known, block_structure.blocks(trace.model)[number], block, second)
    return layer_of(block, joined, row, trace.mask[row])


def long_way(one):
    """T_i(j) as the tensor [query, key, dim] that the package never builds."""
    mixed = torch.einsum("hij,hjd->ijd", one.attention, one.vectors) * one.scale[:, None, None]
    own = torch.arange(len(one.output))
    mixed[own, own] += one.residual
    return mixed


def real_outputs(family, number):
    """What the model itself computes after the attention of block `number`: by hooks, with eager attention."""
    task = models.default_task(family)
    model = models.model(family, task, DOUBLE)
    known, block = block_structure.known_structure(model), block_structure.blocks(model)[number]
    path = known.norm or known.branch_norm or known.projection
    seen = []
    handles = [
        block.get_submodule(path).register_forward_hook(lambda m, a, out: seen.append(out)),
        block.register_forward_pre_hook(
            lambda m, a, k: seen.append(a[0] if a else k["hidden_states"]), with_kwargs=True
        ),
    ]
    with torch.no_grad():
        model(**uneven().inputs())
    for handle in handles:
        handle.remove()
    before, after = seen
    return (after if known.norm else before + after.reshape(before.shape)), before


@pytest.mark.parametrize("family", models.FAMILIES)
@pytest.mark.parametrize("number", [0, 1])
def test_vectors_sum_to_the_real_output_of_the_attention_block(family, number):
    trace = trace_of(family)
    one = layer(trace, number)
    known, block = block_structure.known_structure(trace.model), block_structure.blocks(trace.model)[number]
    _, bias = block_structure.projection(block, known.projection, len(one.attention), one.values.shape[-1])
    total = long_way(one).sum(1)
    if known.norm:
        norm = block_structure.norm_at(block, known.norm)
        assert norm.bias is not None
        assert bias is not None
        total = total + norm.bias + norm.linear(bias) * one.scale[:, None]
    elif bias is not None:
        total = total + bias
    assert_near(total, one.output)
    real, _ = real_outputs(family, number)
    narrow = family not in (*models.ENCODERS, "gpt2", "opt")  # RMSNorm and rotary positions cast to float32
    assert_near(one.output, real[0], precision=torch.float32 if narrow else DOUBLE)


@pytest.mark.parametrize("family", models.FAMILIES)
@pytest.mark.parametrize("number", [0, 1])
def test_shortcuts_equal_the_long_way(family, number):
    one = layer(trace_of(family), number, row=1)
    vectors = long_way(one)
    assert_near(one.vector_lengths(), vectors.norm(dim=-1))
    difference = one.output[:, None] - vectors
    assert_near(one.distances("l1"), difference.abs().sum(-1))
    # Of squares, because the root of what rounding leaves of 0 is large, where a vector is the whole output.
    assert_near(one.distances("l2") ** 2, difference.norm(dim=-1) ** 2)


def test_small_chunks_change_nothing(monkeypatch):
    one = layer(trace_of("bert"), 0)
    whole = one.distances("l1")
    monkeypatch.setattr("tokenlight.methods.contributions.CHUNK", 1)
    torch.testing.assert_close(one.distances("l1"), whole)


@pytest.mark.parametrize("family", models.FAMILIES)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_alti_rows_are_shares(family, norm):
    task = models.default_task(family)
    method_config = MethodConfig(METHODS["alti"], {"norm": norm, "layers": True})
    _, (result,) = execute_plan(
        InstrumentedModel(models.model(family, task, DOUBLE)),
        uneven(),
        plan_passes(batch_target(task), [method_config]),
    )
    matrices = result.maps["contributions"]
    assert matrices.shape == (3, 2, 9, 9)
    assert (matrices >= 0).all()
    real = uneven().attention_mask.bool()
    torch.testing.assert_close(matrices.sum(-1), real[:, None].expand(3, 2, 9).double())
    assert (matrices.transpose(-1, -2)[~real[:, None].expand(3, 2, 9)] == 0).all()  # nothing comes from padding
    torch.testing.assert_close(result.scores.sum(1), torch.ones(3, dtype=DOUBLE))
    if family not in models.ENCODERS:
        assert (matrices.triu(1) == 0).all()
    product = matrices[:, 1] @ matrices[:, 0]
    rows = torch.zeros(3, dtype=torch.long) if family in models.ENCODERS else uneven().last
    torch.testing.assert_close(result.scores, product[torch.arange(3), rows])


def test_second_norm_sums_short_of_the_output_by_the_mlp_alone():
    trace = trace_of("bert")
    one = layer(trace, 0, second=True)
    known, block = block_structure.known_structure(trace.model), block_structure.blocks(trace.model)[0]
    first, second = (block_structure.norm_at(block, str(path)) for path in (known.norm, known.second_norm))
    _, bias = block_structure.projection(block, known.projection, len(one.attention), one.values.shape[-1])
    assert first.bias is not None
    assert second.bias is not None
    assert bias is not None
    before = trace.second_norm[0].value[0]
    attended = layer(trace, 0).output
    mlp = before - attended
    constants = second.linear(first.bias + first.linear(bias) * layer(trace, 0).scale[:, None] + mlp) / second.size(
        before
    )
    torch.testing.assert_close(long_way(one).sum(1) + constants + second.bias, one.output)
    torch.testing.assert_close(one.output, trace.hidden[1].value[0])


@pytest.mark.parametrize(("family", "task"), models.COMBINATIONS)
def test_logit_terms_add_up_to_the_score(family, task):
    method_configs = [MethodConfig(METHODS[name], {"detail": ("layers", "heads")}) for name in ("alti_logit", "logit")]
    with borrowed_model(models.model(family, task, DOUBLE)) as instrumented:
        answer, results = execute_plan(instrumented, uneven(), plan_passes(batch_target(task), method_configs))
    for result in results:
        total = result.scores.sum(1) + result.extras["mlp_share"] + result.extras["bias_share"]
        assert_near(total, answer.score, size=torch.stack([*result.extras.values(), *result.scores.T]))
        torch.testing.assert_close(result.maps["mlp"].sum(1), result.extras["mlp_share"])
        torch.testing.assert_close(result.maps["layers"].sum(1) * uneven().attention_mask, result.scores)
        if task == "text-generation":
            beyond = torch.arange(9) > uneven().last[:, None]
            assert (result.scores[beyond] == 0).all()
    torch.testing.assert_close(results[1].maps["heads"].sum(-1), results[1].maps["layers"][:, 1:].sum(-1))


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox", "olmo2", "qwen2"])
def test_alti_logit_is_the_papers_formula(family):
    """Ferrando et al. 2023: unembedding times final norm, linear at its real scale, of what attention adds."""
    model = models.model(family, "text-generation", DOUBLE)
    method_config = MethodConfig(METHODS["alti_logit"], {})
    _, (result,) = execute_plan(
        InstrumentedModel(model), uneven(), plan_passes(batch_target("text-generation", foil=8), [method_config])
    )
    trace = record(model, uneven(), batch_target("text-generation"), PassSpec(set(SIGNALS))).traces[0]
    paths = {"gpt2": "transformer.ln_f", "gpt_neox": "gpt_neox.final_layer_norm"}
    norm = block_structure.norm_at(trace.model, paths.get(family, "model.norm"))
    output: Any = trace.model.get_output_embeddings()
    resolved = output.weight[7] - output.weight[8]
    for row, position in enumerate(uneven().last.tolist()):
        state = trace.hidden[-1].value[row, position]

        def logit(vectors, state=state):
            return norm.linear(vectors) / norm.size(state) @ resolved

        layers = [layer(trace, number, row) for number in (0, 1)]
        below = alti_matrix(layers[0], "l1")
        expected = torch.zeros(position + 1, dtype=DOUBLE)
        for number, one in enumerate(layers):
            vectors = long_way(one)[position]
            vectors[position] -= one.residual[position]
            terms = logit(vectors)
            expected += terms @ below if number else terms
        expected[position] += logit(trace.hidden[0].value[row, position])
        assert_near(result.scores[row, : position + 1], expected)


def test_shared_key_value_heads_equal_repeated_ones():
    shared = models.model("llama", "text-generation", DOUBLE)
    settings = {**models.CONFIGS["llama"][1], "num_key_value_heads": 4}
    repeated = models.HEADS["text-generation"].from_config(models.CONFIGS["llama"][0](**settings)).double().eval()
    weights = dict(shared.state_dict())
    for name, weight in weights.items():
        if "k_proj" in name or "v_proj" in name:
            weights[name] = weight.view(2, 4, -1).repeat_interleave(2, 0).reshape(16, -1)
    repeated.load_state_dict(weights)
    for method in ("alti", "alti_logit"):
        one, two = (tl.attribute(m, models.ids(), method=method, target=7) for m in (shared, repeated))
        torch.testing.assert_close(one, two)


def test_a_row_without_contributions_keeps_its_position():
    matrix = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    assert normalize(matrix).tolist() == [[1.0, 0.0], [0.25, 0.75]]


@pytest.mark.parametrize(("method", "options"), [("value_norms", {}), ("globenc", {}), ("alti", {"second_norm": True})])
def test_post_norm_methods_refuse_pre_norm_models(method, options):
    with pytest.raises(ValueError, match="not a post-norm model"):
        tl.attribute(models.model("llama", "text-generation"), models.ids(), method=method, target=7, **options)


@pytest.mark.parametrize(("method", "wrong"), [("alti", {"norm": "l3"}), ("alti_logit", {"detail": "neurons"})])
def test_wrong_options_are_named(method, wrong):
    with pytest.raises(ValueError, match=r"'l1' or 'l2'|layers, heads"):
        tl.attribute(models.model("bert"), models.ids(), method=method, target=1, **wrong)


@pytest.mark.parametrize("method", ["value_norms", "globenc", "alti"])
def test_any_position_can_be_read(method):
    model, ids = models.model("bert", dtype=DOUBLE), models.ids()
    target = batch_target("text-classification")
    method_config = MethodConfig(METHODS[method], {"layers": True, "position": 4})
    _, (result,) = execute_plan(
        InstrumentedModel(model), Batch(ids, torch.ones_like(ids)), plan_passes(target, [method_config])
    )
    matrices = result.maps["contributions"]
    torch.testing.assert_close(result.scores, (matrices[:, 1] @ matrices[:, 0])[:, 4])
    with pytest.raises(ValueError, match="position 9"):
        tl.attribute(model, ids, method=method, target=1, position=9)


@pytest.mark.parametrize("name", ["logit", "alti", "alti_logit"])
def test_a_gate_on_the_heads_is_a_constant_factor_of_them(name):
    """A gate that is open by half at every token is as half the weights behind it."""
    gated, halved = (copy.deepcopy(models.model("llama", "text-generation", DOUBLE)) for _ in range(2))
    for block, other in zip(gated.model.layers, halved.model.layers, strict=True):
        gate_by_half(block.self_attn)
        other.self_attn.o_proj.weight.data /= 2
    plan = plan_passes(batch_target("text-generation"), [MethodConfig(METHODS[name], {})])
    found, expected = (execute_plan(InstrumentedModel(model), uneven(), plan)[1][0].scores for model in (gated, halved))
    assert_near(found, expected)


class HalfGated(torch.nn.Module):
    """A projection behind a gate that reads the attention's input."""

    def __init__(self, projection, read):
        super().__init__()
        self.projection, self.read = projection, read

    def forward(self, heads):
        return self.projection(heads * torch.sigmoid(0 * self.read()))


def gate_by_half(attention):
    states = []
    attention.register_forward_pre_hook(
        lambda m, args, kwargs: states.append(kwargs["hidden_states"]), with_kwargs=True
    )
    attention.o_proj = HalfGated(attention.o_proj, states.pop)


def test_a_gate_of_the_query_equals_the_long_way():
    one = layer(trace_of("llama"), 0, row=1)
    gate = torch.rand(len(one.output), *one.values.shape[::2], dtype=DOUBLE)  # [query, head, head dim]
    gated = replace(one, gate=gate)
    arriving = torch.einsum("hij,hjd,ihd->ijhd", one.attention, one.values, gate) * one.scale[:, None, None, None]
    vectors = torch.einsum("ijhd,hde->ije", arriving, one.weight)
    own = torch.arange(len(one.output))
    vectors[own, own] += one.residual
    assert_near(gated.vector_lengths(), vectors.norm(dim=-1))
    difference = one.output[:, None] - vectors
    assert_near(gated.distances("l1"), difference.abs().sum(-1))
    assert_near(gated.distances("l2"), difference.norm(dim=-1))


class HalvedMaximum(torch.nn.Module):
    """A ReLU that is not recognized as an activation."""

    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        return torch.stack([x, torch.zeros_like(x)]).amax(0)


def test_blocks_whose_mlp_is_not_recognized_are_refused():
    model: Any = models.make("bert", "text-classification", DOUBLE)
    for block in model.bert.encoder.layer:
        block.intermediate.intermediate_act_fn = HalvedMaximum()
    with pytest.raises(
        UnsupportedModelError, match="no block of BertForSequenceClassification adds the output of an MLP"
    ):
        tl.attribute(model, models.ids(1), method="logit", target=1)


def test_a_head_that_is_written_as_a_matrix_product_is_a_linear_layer():
    class Product(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input @ self.weight.T + self.bias

    model: Any = models.make("bert", "text-classification", DOUBLE)
    expected = tl.attribute(model, models.ids(), method="logit", target=1)
    model.classifier.__class__ = Product  # reads what the pooler's tanh gives
    assert_near(tl.attribute(model, models.ids(), method="logit", target=1), expected)
