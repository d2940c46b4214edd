"""SmoothGrad and Expected Gradients against loops that are written out, in double precision."""

import zlib

import pytest
import torch
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.methods.test_by_hand import IDS, LABEL, eager, linear_model, ours, probe_of, score_at
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.methods.averaged_gradients import expected_gradients, smooth_grad
from tokenlight.model.behavior_probes import ordinary_ids
from tokenlight.text.batch import Batch

TEXTS = ["it is a good movie", "The keys to the cabinet are on the table", "ok"]
FAMILIES = ["bert", "llama"]
PRECISION = {"bert": torch.float64, "llama": torch.float32}  # of the eager model's norms


def generators(step: int, seed: int) -> list[torch.Generator]:
    """For each of the three tokens, from the ids up to it."""
    ids = IDS[0].numpy().astype("<i8")
    keys = [zlib.crc32(step.to_bytes(8, "little") + ids[: token + 1].tobytes()) ^ seed for token in range(3)]
    return [torch.Generator().manual_seed(key) for key in keys]


def embedded(family: str, ids: Tensor = IDS) -> Tensor:
    with torch.no_grad():
        return eager(family).get_input_embeddings()(ids)


def gradient_at(family: str, place: Tensor) -> Tensor:
    place = place.detach().requires_grad_()
    return torch.autograd.grad(score_at(family, place).sum(), place)[0]


# --- SmoothGrad ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_smooth_grad_equals_a_loop_over_noisy_copies(family, seed):
    text, steps, noise = embedded(family), 5, 0.2
    expected = torch.zeros(3, dtype=torch.float64)
    for step in range(steps):
        noisy = text.clone()
        for token, generator in enumerate(generators(step, seed)):
            vector = text[0, token]
            deviation = noise * (vector.max() - vector.min())
            noisy[0, token] += deviation * torch.randn(16, generator=generator).double()
        expected += (text * gradient_at(family, noisy)).sum(-1)[0] / steps
    actual = ours(family, "smooth_grad", steps=steps, noise=noise, seed=seed)
    assert_near(actual, expected, precision=PRECISION[family])


def test_without_noise_it_is_gradient_times_input():
    assert_near(ours("bert", "smooth_grad", steps=3, noise=0), ours("bert", "gradient_x_input"))
    assert not torch.allclose(ours("bert", "smooth_grad", steps=3, noise=0.01), ours("bert", "gradient_x_input"))


def test_special_tokens_have_no_noise():
    everything = Batch(IDS, torch.ones_like(IDS), special=torch.ones_like(IDS).bool())
    probe = probe_of(models.model("bert", dtype=torch.float64), everything)
    assert_near(smooth_grad(probe, steps=2, noise=5.0)[0, 0], ours("bert", "gradient_x_input"))


# --- Expected Gradients -------------------------------------------------------------------------------------------


def baseline_by_hand(family: str, baseline: str | int, step: int, seed: int) -> Tensor:
    if baseline == "zero":
        return torch.zeros(1, 3, 16, dtype=torch.float64)
    if baseline != "vocabulary":
        return embedded(family, torch.full((1, 3), 1 if baseline == "pad" else int(baseline)))
    free = [i for i in range(60) if i not in (1, 2, 3)]  # padding, beginning and end
    drawn = [free[int(torch.randint(len(free), (), generator=one))] for one in generators(step, seed)]
    return embedded(family, torch.tensor([drawn]))


@pytest.mark.parametrize(
    ("family", "baseline", "seed"),
    [("bert", "vocabulary", 0), ("bert", "vocabulary", 4), ("llama", "vocabulary", 0)]
    + [("bert", baseline, 1) for baseline in ("pad", "zero", 9)],
)
def test_expected_gradients_equal_a_loop_over_baselines(family, baseline, seed):
    text, steps = embedded(family), 6
    shares = torch.rand(steps, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = torch.zeros(3, dtype=torch.float64)
    for step in range(steps):
        origin = baseline_by_hand(family, baseline, step, seed)
        place = origin + shares[step] * (text - origin)
        expected += ((text - origin) * gradient_at(family, place)).sum(-1)[0] / steps
    actual = ours(family, "expected_gradients", steps=steps, baseline=baseline, seed=seed)
    assert_near(actual, expected, precision=PRECISION[family])


@pytest.mark.parametrize("baseline", ["vocabulary", "pad"])
def test_completeness_is_the_difference_from_the_sum(baseline):
    probe = probe_of(models.model("bert", dtype=torch.float64), Batch(IDS, torch.ones_like(IDS), pad_id=1))
    found = expected_gradients(probe, steps=40, baseline=baseline)
    with torch.no_grad():
        origins = torch.cat([baseline_by_hand("bert", baseline, step, 0) for step in range(40)])
        change = score_at("bert", embedded("bert")) - score_at("bert", origins).mean()
    assert_near(found.extras["completeness"][0], found.scores[0].sum(-1) - change, size=found.scores)


def test_completeness_falls_with_more_steps():
    probe = probe_of(models.model("bert", dtype=torch.float64), Batch(IDS, torch.ones_like(IDS)))
    few, many = (expected_gradients(probe, steps=steps).extras["completeness"].abs() for steps in (2, 500))
    assert float(many) < 0.3 * float(few)


@pytest.mark.parametrize("steps", [1, 4])
def test_on_a_linear_model_one_baseline_gives_gradient_times_input(steps):
    model = linear_model()
    expected = tl.attribute(model, IDS, method="gradient_x_input", target=7)
    found = tl.attribute(model, IDS, method="expected_gradients", target=7, steps=steps, baseline="zero")
    assert_near(found, expected)


def test_special_tokens_stay_in_random_baselines():
    special = torch.tensor([[True, False, True]])
    probe = probe_of(models.model("bert", dtype=torch.float64), Batch(IDS, torch.ones_like(IDS), special=special))
    scores = expected_gradients(probe, steps=5).scores[0, 0]
    assert scores[1] != 0
    assert (scores[[0, 2]] == 0).all()


def test_baselines_have_no_tokens_with_a_role():
    assert ordinary_ids(models.model("bert")) == [0, *range(4, 60)]


# --- both ---------------------------------------------------------------------------------------------------------

BOTH = ["smooth_grad", "expected_gradients"]


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize(("family", "task"), [("bert", "text-classification"), ("gpt2", "text-generation")])
@pytest.mark.parametrize("method", BOTH)
def test_texts_together_are_as_alone(method, family, task, low_memory):
    explainer = explainer_for(family, task, dtype=torch.float64)
    settings = {"steps": 5, "progress": False}
    together = explainer.explain(TEXTS, method, low_memory=low_memory, **settings)
    for text, e in zip(TEXTS, together, strict=True):
        alone = explainer.explain(text, method, **settings)
        assert_near(e.scores, alone.scores)
        assert e.extras == pytest.approx(alone.extras)


@pytest.mark.parametrize("method", BOTH)
def test_a_seed_decides(method):
    one, same, other = (ours("bert", method, steps=3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("method", BOTH)
def test_half_precision(method):
    model, ids = models.model("bert"), models.ids(2, 6)
    exact = tl.attribute(model, ids, method=method, target=LABEL["bert"], steps=4)
    rough = tl.attribute(models.model("bert", dtype=torch.bfloat16), ids, method=method, target=LABEL["bert"], steps=4)
    assert (rough - exact).norm() < 0.1 * exact.norm()  # of three digits; other draws are farther away than that
    other = tl.attribute(model, ids, method=method, target=LABEL["bert"], steps=4, seed=1)
    assert (other - exact).norm() > 0.1 * exact.norm()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        *((method, {"steps": 0}, "steps is a positive number, found 0") for method in BOTH),
        *((method, {"steps": 2.5}, "steps is a positive number, found 2.5") for method in BOTH),
        *((method, {"seed": "x"}, "seed must be a whole number, found 'x'") for method in BOTH),
        ("smooth_grad", {"noise": -1}, "a number of at least 0; found -1"),
        ("smooth_grad", {"noise": float("nan")}, "a number of at least 0; found nan"),
        ("smooth_grad", {"noise": "much"}, "a number of at least 0; found 'much'"),
        ("expected_gradients", {"baseline": "mean"}, "no baseline 'mean'"),
        ("expected_gradients", {"baseline": 99}, "vocabulary of 60"),
    ],
)
def test_wrong_values_of_options_are_named(method, options, message):
    with pytest.raises(ValueError, match=message):
        ours("bert", method, **options)
