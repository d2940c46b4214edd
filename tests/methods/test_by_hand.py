"""Every method on three tokens against the formula, written out over a plain autograd pass of an eager model."""

import copy
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS, Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.methods.gradients import quadrature_rule
from tokenlight.model import block_structure
from tokenlight.model.capture import state_out
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.probe import Probe
from tokenlight.record.recorder import record
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

TASKS = {"bert": "text-classification", "llama": "text-generation"}
IDS = torch.tensor([[11, 42, 27]])
LABEL = {"bert": 2, "llama": 7}  # no clamp leaves everything empty for these
ROW = {"bert": 0, "llama": 2}
# Eager Llama casts to float32 inside its norms even when its weights are double; ours does not.
PRECISION = {"bert": torch.float64, "llama": torch.float32}
FAMILIES = list(TASKS)


@dataclass(frozen=True)
class Plain:
    """Batch axis dropped. Lists over layers: A, G [head, query, key]; over blocks' inputs and the last output: X, dX
    [token, dim]; E, dE the embeddings."""

    A: list[Tensor]
    G: list[Tensor]
    X: list[Tensor]
    dX: list[Tensor]
    E: Tensor
    dE: Tensor


def scalar(family: str, logits: Tensor) -> Tensor:
    return logits[0, LABEL[family]] if family == "bert" else logits[0, -1, LABEL[family]]


@cache
def eager(family: str) -> Any:
    model = copy.deepcopy(models.model(family, TASKS[family], torch.float64))
    model.set_attn_implementation("eager")
    return model


@cache
def plain(family: str) -> Plain:
    model = copy.deepcopy(eager(family)).requires_grad_(True)
    states: list[Tensor] = []

    def note(tensor: Tensor | None) -> None:
        assert tensor is not None
        tensor.retain_grad()
        states.append(tensor)

    model.get_input_embeddings().register_forward_hook(lambda _, args, output: note(output))
    for block in block_structure.blocks(model):
        block.register_forward_pre_hook(lambda _, args: note(args[0]))
    block_structure.blocks(model)[-1].register_forward_hook(lambda _, args, output: note(state_out(output)))
    output = model(input_ids=IDS, output_attentions=True)
    for attention in output.attentions:
        attention.retain_grad()
    scalar(family, output.logits).backward()
    grads = [tensor.grad for tensor in (*states, *output.attentions)]
    assert all(grad is not None for grad in grads)
    values = [tensor.detach()[0] for tensor in (*states, *output.attentions)]
    slopes = [grad[0] for grad in grads if grad is not None]
    return Plain(A=values[4:], G=slopes[4:], X=values[1:4], dX=slopes[1:4], E=values[0], dE=slopes[0])


def raw_attention(p: Plain, row: int) -> Tensor:
    return sum_of(p.A[1][h, row] for h in range(4)) / 4


def rollout(p: Plain, row: int) -> Tensor:
    one, two = (0.5 * A.mean(0) + 0.5 * torch.eye(3, dtype=A.dtype) for A in p.A)
    return (two @ one)[row]


def attention_flow(p: Plain, row: int) -> Tensor:
    """The smallest cut between the position and a token: each node between them is on one side or the other."""
    one, two = (0.5 * A.mean(0) + 0.5 * torch.eye(3, dtype=A.dtype) for A in p.A)
    sides = [torch.tensor(side, dtype=torch.bool) for side in product([False, True], repeat=3)]
    return torch.stack([torch.stack([two[row, ~s].sum() + one[s, t].sum() for s in sides]).amin() for t in range(3)])


def attention_gradient(p: Plain, row: int) -> Tensor:
    return sum_of(p.G[1][h, row] for h in range(4)) / 4


def attention_x_gradient(p: Plain, row: int) -> Tensor:
    return sum_of(A[h, row] * G[h, row] for A, G in zip(p.A, p.G, strict=True) for h in range(4)) / 4


def grad_sam(p: Plain, row: int) -> Tensor:
    return sum_of(
        A[h, i] * G[h, i].clamp_min(0) for A, G in zip(p.A, p.G, strict=True) for h in range(4) for i in range(3)
    ) / (2 * 4 * 3)


def grad_sam_query(p: Plain, row: int) -> Tensor:
    return sum_of(
        A[h, :, j] * G[h, :, j].clamp_min(0) for A, G in zip(p.A, p.G, strict=True) for h in range(4) for j in range(3)
    ) / (2 * 4 * 3)


def attention_cam(p: Plain, row: int) -> Tensor:
    return (sum_of(p.G[1][h, i] for h in range(4) for i in range(3)) / 12).clamp_min(0)


def attention_grad_cam(p: Plain, row: int) -> Tensor:
    maps = (sum_of(p.G[1][h].mean() * p.A[1][h] for h in range(4)) / 4).clamp_min(0)
    low, high = maps.min(), maps.max()
    return torch.zeros(3, dtype=maps.dtype) if high == low else ((maps - low) / (high - low))[row]


def generic_attention(p: Plain, row: int) -> Tensor:
    R = torch.eye(3, dtype=torch.float64)
    for A, G in zip(p.A, p.G, strict=True):
        R = R + (A * G).clamp_min(0).mean(0) @ R
    return R[row]


def cat(p: Plain, row: int) -> Tensor:
    return sum_of(cat_terms(p, "inputs"))


def attcat(p: Plain, row: int) -> Tensor:
    return sum_of(attcat_terms(p, "inputs"))


def cat_terms(p: Plain, states: str) -> list[Tensor]:
    """Qiang et al. 2022, eq. 9 and 10 for each layer l, token by token: its output h^l, or what goes into it."""
    shift = {"inputs": 0, "outputs": 1}[states]
    return [
        torch.stack([sum_of(p.dX[layer + shift][i, d] * p.X[layer + shift][i, d] for d in range(16)) for i in range(3)])
        for layer in range(2)
    ]


def attcat_terms(p: Plain, states: str) -> list[Tensor]:
    """Eq. 11 for each layer: mean over the heads of the attention that token i receives from all queries, times CAT."""
    received = [sum_of(A[h, q] for h in range(4) for q in range(3)) / (4 * 3) for A in p.A]
    return [weights * term for weights, term in zip(received, cat_terms(p, states), strict=True)]


FORMULAS: list[tuple[str, dict[str, Any], Any]] = [
    ("raw_attention", {}, raw_attention),
    ("rollout", {}, rollout),
    ("attention_flow", {}, attention_flow),
    ("attention_gradient", {}, attention_gradient),
    ("attention_x_gradient", {}, attention_x_gradient),
    ("grad_sam", {}, grad_sam),
    ("grad_sam", {"score_per": "query"}, grad_sam_query),
    ("attention_cam", {}, attention_cam),
    ("attention_grad_cam", {}, attention_grad_cam),
    ("generic_attention", {}, generic_attention),
    ("cat", {}, cat),
    ("attcat", {}, attcat),
    ("cat", {"states": "outputs"}, lambda p, row: sum_of(cat_terms(p, "outputs"))),
    ("attcat", {"states": "outputs"}, lambda p, row: sum_of(attcat_terms(p, "outputs"))),  # eq. 12
    ("gradient_l1", {}, lambda p, row: p.dE.abs().sum(1)),
    ("gradient_l1", {"read": "blocks"}, lambda p, row: p.dX[0].abs().sum(1)),
    ("gradient_l2", {}, lambda p, row: p.dE.pow(2).sum(1).sqrt()),
    ("gradient_l2", {"squared": True}, lambda p, row: p.dE.pow(2).sum(1)),
    ("gradient_x_input", {}, lambda p, row: (p.E * p.dE).sum(1)),
    ("gradient_x_input", {"read": "blocks"}, lambda p, row: (p.X[0] * p.dX[0]).sum(1)),
    ("gradient_x_input", {"reduce": "l2"}, lambda p, row: (p.E * p.dE).pow(2).sum(1).sqrt()),
    ("gradient_x_input", {"reduce": "mean_abs"}, lambda p, row: (p.E * p.dE).abs().mean(1)),
]


def sum_of(tensors: Any) -> Tensor:
    return torch.stack(list(tensors)).sum(0)


def ours(family: str, method: str, **options: Any) -> Tensor:
    model = models.model(family, TASKS[family], torch.float64)
    return tl.attribute(model, IDS, method=method, target=LABEL[family], **options)[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("method", "options", "formula"), FORMULAS, ids=lambda x: x if isinstance(x, str) else "")
def test_method_equals_its_formula(family, method, options, formula):
    expected = formula(plain(family), ROW[family])
    assert float(expected.abs().max()) > 1e-6
    assert_near(ours(family, method, **options), expected, precision=PRECISION[family])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["cat", "attcat"])
@pytest.mark.parametrize("states", ["inputs", "outputs"])
def test_the_terms_of_layers_equal_their_formulas_and_add_up(family, method, states):
    terms = {"cat": cat_terms, "attcat": attcat_terms}[method](plain(family), states)
    expected = torch.stack(terms)  # [layer, token]
    found = run(family, method, detail="layers", states=states)
    assert_near(found.maps["layers"][0], expected, precision=PRECISION[family])
    assert_near(found.maps["layers"].sum(1), found.scores, size=found.maps["layers"], operations=2)
    assert not run(family, method).maps
    with pytest.raises(ValueError, match="detail is one or more of layers; found 'heads'"):
        run(family, method, detail="heads")


def run(family: str, method: str, **options: Any) -> Attribution:
    """The whole result of a method on the three tokens."""
    model = models.model(family, TASKS[family], torch.float64)
    batch = Batch(IDS, torch.ones_like(IDS))
    target = BatchTarget(models.task(TASKS[family]), (ResolvedTarget((LABEL[family],)),))
    return execute_plan(InstrumentedModel(model), batch, plan_passes(target, [MethodConfig(METHODS[method], options)]))[
        1
    ][0]


@pytest.mark.parametrize("family", FAMILIES)
def test_generic_attention_is_the_explicit_product(family):
    first, second = (
        torch.eye(3, dtype=torch.float64) + (A * G).clamp_min(0).mean(0) for A, G in zip(*layers(family), strict=True)
    )
    expected = (second @ first)[ROW[family]]
    assert_near(ours(family, "generic_attention"), expected, precision=PRECISION[family])


def layers(family: str) -> tuple[list[Tensor], list[Tensor]]:
    return plain(family).A, plain(family).G


@pytest.mark.parametrize("method", ["rollout", "raw_attention"])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_scores_of_attention_methods_sum_to_one(family, method):
    task = models.default_task(family)
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    model = models.model(family, task, torch.float64)
    scores = tl.attribute(model, models.ids(2, 6), mask, method=method, target=models.target(task))
    assert_near(scores.sum(1), 1)


def test_grad_cam_of_a_constant_map_is_zero_and_not_nan():
    model: Any = copy.deepcopy(models.model("bert"))
    with torch.no_grad():
        model.bert.encoder.layer[-1].attention.output.dense.weight.zero_()
    scores = tl.attribute(model, models.ids(), method="attention_grad_cam", target=1)
    assert (scores == 0).all()


@pytest.mark.parametrize("options", [{"score_per": "head"}, {"score_per": None}])
def test_grad_sam_names_its_choices(options):
    with pytest.raises(ValueError, match="'key' or 'query'"):
        ours("bert", "grad_sam", **options)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gradient_l1", {"read": "middle"}, "'embeddings' or 'blocks', found 'middle'"),
        ("cat", {"states": "middle"}, "'inputs' or 'outputs', found 'middle'"),
        ("attcat", {"states": None}, "'inputs' or 'outputs', found None"),
        ("gradient_x_input", {"reduce": "max"}, "'sum', 'l2' or 'mean_abs', found 'max'"),
        ("integrated_gradients", {"quadrature": "simpson"}, "'gauss-legendre' or 'riemann', found 'simpson'"),
        ("integrated_gradients", {"steps": 0}, "steps is a positive number, found 0"),
        ("integrated_gradients", {"steps": 2.5}, "steps is a positive number, found 2.5"),
        ("integrated_gradients", {"baseline": "mean"}, "no baseline 'mean'"),
        ("integrated_gradients", {"baseline": "mask"}, "no baseline 'mask'"),
        ("erasure", {"removal": "delete"}, "found 'delete'"),
        ("erasure", {"removal": "mask"}, "found 'mask'"),
    ],
)
def test_wrong_values_of_options_are_named(method, options, message):
    with pytest.raises(ValueError, match=message):
        ours("bert", method, **options)


@pytest.mark.parametrize("outside", [60, 1000, -1])
def test_a_baseline_outside_the_vocabulary_is_an_error(outside):
    with pytest.raises(ValueError, match=f"{outside}.*vocabulary of 60"):
        ours("bert", "integrated_gradients", baseline=outside, steps=2)


# --- Integrated gradients -----------------------------------------------------------------------------------------


def score_at(family: str, embeddings: Tensor) -> Tensor:
    """[step] the explained logit for embeddings [step, token, dim], from the eager model."""
    logits = eager(family)(inputs_embeds=embeddings).logits
    return logits[:, LABEL[family]] if family == "bert" else logits[:, -1, LABEL[family]]


def baseline_of(family: str, baseline: str | int) -> Tensor:
    table = eager(family).get_input_embeddings()
    if baseline == "zero":
        return torch.zeros(1, 3, 16, dtype=torch.float64)
    with torch.no_grad():
        return table(torch.full((1, 3), 1 if baseline == "pad" else int(baseline)))


@pytest.mark.parametrize("baseline", ["pad", "zero", 9])
def test_integrated_gradients_equal_a_loop_over_points(baseline):
    with torch.no_grad():
        end = eager("bert").get_input_embeddings()(IDS)
    start, steps = baseline_of("bert", baseline), 7
    total = torch.zeros_like(end)
    for k in range(1, steps + 1):
        point = (start + k / steps * (end - start)).requires_grad_()
        total += torch.autograd.grad(score_at("bert", point).sum(), point)[0] / steps
    expected = ((end - start) * total).sum(-1)[0]
    actual = ours("bert", "integrated_gradients", steps=steps, quadrature="riemann", baseline=baseline)
    assert_near(actual, expected)


# Not (llama, zero): an RMSNorm jumps at 0, and no number of steps finds that.
@pytest.mark.parametrize(("family", "baseline"), [("bert", "pad"), ("bert", "zero"), ("bert", 9), ("llama", 9)])
def test_integrated_gradients_are_complete_with_many_steps(family, baseline):
    scores = ours(family, "integrated_gradients", steps=300, baseline=baseline)
    with torch.no_grad():
        end = eager(family).get_input_embeddings()(IDS)
        change = score_at(family, end) - score_at(family, baseline_of(family, baseline))
    torch.testing.assert_close(scores.sum(), change[0], rtol=1e-4, atol=1e-4)  # the quadrature's error, not rounding


def test_the_quadratures_agree_in_the_limit_and_not_before():
    gauss = ours("bert", "integrated_gradients", steps=200)
    errors = [
        float((ours("bert", "integrated_gradients", steps=steps, quadrature="riemann") - gauss).abs().max())
        for steps in (20, 200, 2000)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 1e-2 * float(gauss.abs().max())


def linear_model() -> Any:
    """No attention output, no feed-forward output, no head non-linearity: only a norm and linear maps remain."""
    model: Any = copy.deepcopy(models.model("gpt2", "text-generation", torch.float64))
    with torch.no_grad():
        for block in model.transformer.h:
            for layer in (block.attn.c_proj, block.mlp.c_proj):
                layer.weight.zero_()
                layer.bias.zero_()
    model.transformer.ln_f = torch.nn.Identity()
    return model


@pytest.mark.parametrize("quadrature", ["gauss-legendre", "riemann"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_on_a_linear_model_integrated_gradients_are_exact_with_any_steps(steps, quadrature):
    model = linear_model()
    options: dict[str, Any] = {"steps": steps, "quadrature": quadrature, "baseline": "zero"}
    scores = tl.attribute(model, IDS, method="integrated_gradients", target=7, **options)[0]
    expected = model.transformer.wte.weight[IDS[0, -1]] @ model.lm_head.weight[7]
    torch.testing.assert_close(scores, torch.stack([0 * expected, 0 * expected, expected]))
    torch.testing.assert_close(scores, tl.attribute(model, IDS, method="gradient_x_input", target=7)[0])


def probe_of(model: Any, batch: Batch) -> Probe:
    recording = record(
        model,
        batch,
        BatchTarget(models.task("text-classification"), (ResolvedTarget((LABEL["bert"],)),) * len(batch.input_ids)),
    )
    return Probe(InstrumentedModel(model), batch, recording.selectors)


def test_completeness_is_reported_as_what_the_sum_misses():
    from tokenlight.methods.gradients import integrated_gradients

    probe = probe_of(models.model("bert", dtype=torch.float64), Batch(IDS, torch.ones_like(IDS), pad_id=1))
    rough, fine = (integrated_gradients(probe, steps=steps) for steps in (2, 300))
    with torch.no_grad():
        end = eager("bert").get_input_embeddings()(IDS)
        change = score_at("bert", end) - score_at("bert", baseline_of("bert", "pad"))
        torch.testing.assert_close(rough.extras["completeness"], rough.scores.sum(-1) - change)
    assert float(fine.extras["completeness"].abs()) < 1e-3 * float(rough.extras["completeness"].abs())


def test_special_tokens_stay_in_the_baseline():
    special = torch.tensor([[True, False, True]])
    probe = probe_of(models.model("bert", dtype=torch.float64), Batch(IDS, torch.ones_like(IDS), special=special))
    from tokenlight.methods.gradients import integrated_gradients

    for baseline in ("zero", 9):
        scores = integrated_gradients(probe, steps=5, baseline=baseline).scores[0, 0]
        assert scores[1] != 0
        assert (scores[[0, 2]] == 0).all()


@pytest.mark.parametrize("name", ["gauss-legendre", "riemann"])
@pytest.mark.parametrize("steps", [1, 2, 50, 101])
def test_quadrature_weights_sum_to_one_and_points_lie_inside(name, steps):
    points, weights = quadrature_rule(steps, name)
    assert len(points) == len(weights) == steps
    assert_near(weights.sum(), 1, operations=10 * steps)
    assert points.min() > 0
    assert points.max() <= 1
    exact = 1 / 2 if name == "gauss-legendre" else (steps + 1) / (2 * steps)
    assert_near((points * weights).sum(), exact, size=1, operations=10 * steps)


def test_riemann_points_are_as_exact_as_the_model():
    points, weights = quadrature_rule(3, "riemann")
    assert_near(points.double(), torch.tensor([1 / 3, 2 / 3, 1], dtype=torch.float64), operations=10)
    assert_near(weights.double().sum(), 1, operations=10)


# --- Erasure and the control --------------------------------------------------------------------------------------

ERASED = ["bert", "roberta", "distilbert", "gpt2", "opt", "llama", "gpt_neox"]


def erased_by_loop(family: str, ids: Tensor, removal: str) -> Tensor:
    """Positions are explicit, so they do not change."""
    task = models.default_task(family)
    model = copy.deepcopy(models.model(family, task))
    model.set_attn_implementation("eager")
    length = ids.shape[1]
    inputs: dict[str, Tensor] = {}
    if family != "distilbert":
        first = 2 if family == "roberta" else 0  # RoBERTa counts from its padding index + 1
        inputs["position_ids"] = torch.arange(first, first + length)[None]

    def score(ids: Tensor, mask: Tensor) -> float:
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask, **inputs).logits
        return float(logits[0, 1] if task == "text-classification" else logits[0, length - 1, 7])

    full = score(ids, torch.ones_like(ids))
    falls = []
    for token in range(length):
        changed, mask = ids.clone(), torch.ones_like(ids)
        if removal == "hide":
            mask[0, token] = 0
        else:
            changed[0, token] = 1
        falls.append(full - score(changed, mask))
    return torch.tensor(falls)


@pytest.mark.parametrize("removal", ["hide", "pad"])
@pytest.mark.parametrize("family", ERASED)
def test_erasure_equals_a_loop(family, removal):
    task, ids = models.default_task(family), models.ids(1, 5)
    scores = tl.attribute(
        models.model(family, task), ids, method="erasure", target=models.target(task), removal=removal
    )
    expected = erased_by_loop(family, ids, removal)
    assert_near(scores[0], expected)


def test_erasure_runs_many_tokens_in_chunks():
    ids = models.ids(5, 30)  # 150 changed texts, more than two chunks
    model = models.model("bert")
    together = tl.attribute(model, ids, method="erasure", target=1)
    alone = torch.cat([tl.attribute(model, row[None], method="erasure", target=1) for row in ids])
    assert_near(together, alone)


def test_erasure_of_an_extractive_answer_is_that_of_start_plus_end():
    model, ids = models.model("bert", "question-answering", torch.float64), models.ids(2, 6)
    both = tl.attribute(model, ids, method="erasure", target=(1, 4))
    start = tl.attribute(model, ids, method="erasure", target=lambda output: output.start_logits[:, 1])
    end = tl.attribute(model, ids, method="erasure", target=lambda output: output.end_logits[:, 3])
    torch.testing.assert_close(both, start + end)


def test_random_scores_depend_on_text_and_seed_only():
    model, ids = models.model("bert"), models.ids(4, 40)
    scores = tl.attribute(model, ids, method="random", target=1)
    assert torch.equal(scores, tl.attribute(model, ids, method="random", target=2))
    assert torch.equal(scores[2:3], tl.attribute(model, ids[2:3], method="random", target=1))
    assert not torch.allclose(scores, tl.attribute(model, ids, method="random", target=1, seed=1))
    assert not torch.allclose(scores[0], scores[1])
    assert scores.min() >= -1
    assert scores.max() < 1
    assert abs(float(scores.mean())) < 0.15
