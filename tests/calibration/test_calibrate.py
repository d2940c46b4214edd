"""Calibrated heads: effects by brute force, slopes by differences, planted masks found again, and nothing in noise."""

import copy
import itertools
import json
import random
from typing import Any

import pytest
import torch
from transformers import BertTokenizer

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.calibration import calibrate
from tokenlight.calibration.calibrate import interval
from tokenlight.calibration.effects import Effects, distribute_losses, measure_effects, random_orders
from tokenlight.calibration.search import (
    PATIENCE,
    RATE,
    Checkpoint,
    HeadOptimizer,
    Measured,
    Search,
    agreement_and_gradient,
    agreements,
    measured_batches,
)
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import METHODS
from tokenlight.metrics.perturbation import Perturbation, remove_tokens
from tokenlight.metrics.probability import log_probabilities, make_changed_input
from tokenlight.model.fingerprint import fingerprint
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.views.heads import calibration_sentence

WORDS = ["the", "keys", "are", "good", "bad", "movie", "they", "is", "not", "here", "book", "author", "young", "film"]
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=5 + i % 4)) for i in range(40)]
FEW = TEXTS[:12]


def effects_of(explainer, texts, orders, points=30, perturbation=None):
    rows = explainer.encode(texts)
    fitted = (perturbation or Perturbation()).fit(explainer.inner, explainer.tokenizer)
    targets = [ResolvedTarget((1,))] * len(rows)
    return rows, measure_effects(
        explainer, InstrumentedModel(explainer.model), rows, targets, texts, fitted, orders, points
    )


def log_odds(explainer, row, gone):
    fitted = Perturbation().fit(explainer.inner, explainer.tokenizer)
    question = make_changed_input(explainer, remove_tokens(row, gone, fitted, 0.0), ResolvedTarget((1,)))
    return float(torch.logit(log_probabilities(explainer, [question]).exp())[0])


def test_effects_add_up_to_the_effect_of_removing_all_tokens():
    explainer = explainer_for("bert", "text-classification")
    tokenized_texts, found = effects_of(explainer, TEXTS[:3], orders=3, points=4)
    for tokenized_text, one in zip(tokenized_texts, found, strict=True):
        words = [i for i, special in enumerate(tokenized_text.special) if not special]
        worth = log_odds(explainer, tokenized_text, []) - log_odds(explainer, tokenized_text, words)
        assert one.values.sum() == pytest.approx(worth, abs=1e-6)
        assert one.measured.nonzero()[:, 0].tolist() == words


def test_with_every_order_effects_are_shapley_values():
    explainer = explainer_for("bert", "text-classification")
    (tokenized_text,) = explainer.encode(["they are not bad"])
    words = [i for i, special in enumerate(tokenized_text.special) if not special]
    worth = {
        gone: log_odds(explainer, tokenized_text, list(gone))
        for size in range(len(words) + 1)
        for gone in itertools.combinations(words, size)
    }
    exact = torch.zeros(len(tokenized_text), dtype=torch.float64)
    orders = list(itertools.permutations(words))
    for order in orders:
        for place, word in enumerate(order):
            before, after = tuple(sorted(order[:place])), tuple(sorted(order[: place + 1]))
            exact[word] += (worth[before] - worth[after]) / len(orders)
    lines = [
        ([[word] for word in order], torch.tensor([worth[tuple(sorted(order[:k]))] for k in range(len(order) + 1)]))
        for order in orders
    ]
    found = distribute_losses(len(tokenized_text), [(order, -line.double().diff()) for order, line in lines])
    torch.testing.assert_close(found.values, exact, atol=1e-6, rtol=0)
    estimated = effects_of(explainer, ["they are not bad"], orders=200)[1][0].values
    torch.testing.assert_close(estimated, exact, atol=0.15 * float(exact.abs().max()), rtol=0)


def test_orders_cover_every_token_once_and_every_second_one_runs_backwards():
    explainer = explainer_for("bert", "text-classification")
    (tokenized_text,) = explainer.encode([TEXTS[0]])
    fitted = Perturbation().fit(explainer.inner, explainer.tokenizer)
    plan = list(random_orders(tokenized_text, ResolvedTarget((1,)), "a name", fitted, orders=4, points=3))
    flat = [[token for group in order for token in group] for order in plan]
    words = [i for i, special in enumerate(tokenized_text.special) if not special]
    assert [len(order) for order in plan] == [3] * 4
    assert all(sorted(order) == words for order in flat)
    assert flat[1] == flat[0][::-1]
    assert flat[3] == flat[2][::-1]
    assert flat[2] not in flat[:2]
    assert plan == list(random_orders(tokenized_text, ResolvedTarget((1,)), "a name", fitted, orders=4, points=3))
    assert plan != list(random_orders(tokenized_text, ResolvedTarget((1,)), "another", fitted, orders=4, points=3))


def test_agreement_is_the_correlation_over_removable_tokens():
    one = Effects(torch.tensor([9.0, 1.0, 2.0, 4.0]).double(), torch.tensor([False, True, True, True]))
    scores = torch.tensor([-5.0, 3.0, 1.0, 7.0])
    expected = torch.corrcoef(torch.stack([one.values[1:], scores[1:].double()]))[0, 1]
    torch.testing.assert_close(one.agreement(scores), expected)
    assert one.agreement(torch.ones(4)) == 0  # constant scores agree with nothing


@pytest.mark.parametrize(
    ("family", "method"),
    [
        *(("bert", n) for n in ("attn_lrp", "lrp", "alpha_beta_lrp", "zplus_lrp", "mask_lrp", "calibrated_lrp")),
        *((family, name) for family in ("gpt2", "llama") for name in ("attn_lrp", "mask_lrp")),
    ],
)
def test_gradients_equal_finite_differences(family, method):
    explainer = explainer_for(family, "text-classification")
    explainer.model.double()
    try:
        check_slopes(explainer, METHODS[method])
    finally:
        explainer.model.float()


def check_slopes(explainer, method):
    instrumented = InstrumentedModel(explainer.model)
    rows, found = effects_of(explainer, TEXTS[:2], orders=2)
    target = explainer.task.resolve_target(rows[0], 1, None)
    batches = measured_batches(
        explainer, instrumented, [Measured(r, target, e) for r, e in zip(rows, found, strict=True)]
    )
    strengths = torch.linspace(0.3, 0.9, 8, dtype=torch.float64).view(2, 4)
    mean, slope = agreement_and_gradient(instrumented, batches, method, strengths)
    assert mean == pytest.approx(float(agreements(instrumented, batches, method, strengths).mean()), abs=1e-9)
    assert slope.abs().max() > 1e-4
    step = 1e-5
    for layer, head in ((0, 1), (1, 2), (1, 3)):
        moved = strengths.clone(), strengths.clone()
        moved[0][layer, head] += step
        moved[1][layer, head] -= step
        up, down = (float(agreements(instrumented, batches, method, one).mean()) for one in moved)
        assert float(slope[layer, head]) == pytest.approx((up - down) / (2 * step), rel=1e-3, abs=1e-6)


def test_the_optimizer_converges_to_the_maximum_in_the_unit_cube():
    top = torch.tensor([[0.2, 1.4], [0.7, -0.3]], dtype=torch.float64)
    climb = HeadOptimizer.start(2, 2)
    for _ in range(80):
        climb = climb.step(-2 * (climb.strengths - top))
    torch.testing.assert_close(climb.strengths, top.clamp(0, 1), atol=2 * RATE, rtol=0)
    assert climb.trail.shape == (81, 2, 2)
    assert climb.trail[0].equal(torch.ones(2, 2).double())


def searched(judged, folds=2):
    """Climbs whose strengths say which climb and step they are of."""
    steps = len(judged)
    trails = [(10.0 * number + torch.arange(steps)).double().view(-1, 1, 1) for number in range(folds + 1)]
    nothing = torch.zeros(1, 1).double()
    return Search(tuple(HeadOptimizer(trail, nothing, nothing) for trail in trails), torch.tensor(judged).double())


def test_the_search_stops_when_held_out_texts_gain_no_more():
    rising = [[float(i)] * 4 for i in range(4)]
    falling = [[-float(i)] * 4 for i in range(PATIENCE)]
    assert not searched(rising).stalled
    assert not searched(rising + falling[:-1]).stalled
    assert searched(rising + falling).stalled
    assert searched(rising + falling).best == 3
    assert searched(rising + falling).strengths.item() == 23  # of the optimizer trained on all texts


def test_folds_are_evaluated_with_strengths_and_steps_of_the_other_folds():
    # Step 1 is best for fold 0, step 2 for fold 1: each is evaluated at the best step of the other.
    search = searched([[0.1, 0.1, 0.2, 0.2], [0.9, 0.7, 0.3, 0.4], [0.2, 0.3, 0.5, 0.9]])
    folds = [[0, 1], [2, 3]]
    assert [strength.item() for strength in search.held_out_strengths(folds)] == [2, 11]
    torch.testing.assert_close(search.gains(folds), torch.tensor([0.1, 0.2, 0.1, 0.2]).double())


@pytest.fixture
def planted(monkeypatch):
    """Effects equal to the scores of attn_lrp under a known mask, which calibration should find."""
    lit = torch.tensor([[1.0, 0.0, 1.0, 0.3], [0.0, 1.0, 0.6, 1.0]], dtype=torch.float64)

    def measure(explainer, instrumented, rows, *settings):
        found = explainer.explain([row.text for row in rows], "attn_lrp", heads=lit, progress=False)
        return [Effects(e.scores.double(), ~e.special) for e in found]

    monkeypatch.setattr(calibrate, "measure_effects", measure)
    return lit


def test_a_planted_mask_is_found(planted):
    explainer = explainer_for("bert", "text-classification")
    mask = tl.calibrate(explainer, FEW, steps=60, folds=2, progress=False)
    assert mask.made["helped"]
    found = mask.made["agreement"]
    assert found["all heads"] < 0.9
    assert found["all heads"] + found["gain"] > 0.99
    torch.testing.assert_close(mask.lit, planted, atol=0.15, rtol=0)


def test_calibration_is_deterministic(planted):
    one, again = (tl.calibrate(explainer_for("bert"), FEW, steps=3, progress=False) for _ in range(2))
    assert not one.lit.equal(torch.ones(2, 4).double())
    assert again.lit.equal(one.lit)


def test_noise_gives_no_gain(monkeypatch):
    """Except in 2 of 100 cases, by construction."""

    def noise(explainer, instrumented, rows, targets, names, *settings):
        chance = [random.Random(name) for name in names]
        values = [torch.tensor([g.gauss(0, 1) for _ in row.tokens]) for g, row in zip(chance, rows, strict=True)]
        return [Effects(v.double(), ~torch.tensor(row.special)) for v, row in zip(values, rows, strict=True)]

    monkeypatch.setattr(calibrate, "measure_effects", noise)
    explainer = explainer_for("bert", "text-classification")
    masks = [tl.calibrate(explainer, TEXTS[:20], steps=4, seed=seed, progress=False) for seed in range(4)]
    assert sum(mask.made["helped"] for mask in masks) <= 1
    unchanged = [mask for mask in masks if not mask.made["helped"]]
    assert all(mask.lit.equal(torch.ones(2, 4).double()) for mask in unchanged)
    assert all(mask.made["aopc"]["all heads"] == mask.made["aopc"]["calibrated"] for mask in unchanged)


def test_folds_are_not_evaluated_with_strengths_trained_on_them(monkeypatch):
    explainer = explainer_for("bert", "text-classification")
    settings = calibrate.CalibrationSettings(Perturbation().fit(explainer.inner, explainer.tokenizer), 1, 2, 3, seed=5)
    nothing = [None] * len(TEXTS)
    calibration = calibrate.Calibration(explainer, METHODS["attn_lrp"], TEXTS, nothing, nothing, settings)
    assert [len(fold) for fold in calibration.folds] == [14, 13, 13]
    assert sorted(i for fold in calibration.folds for i in fold) == list(range(len(TEXTS)))
    monkeypatch.setattr(calibrate, "TEXTS_PER_STEP", 20)
    trained_on = []

    def gradient(self, effects, indices, strengths):
        trained_on.append(indices)
        return torch.zeros_like(strengths)

    monkeypatch.setattr(calibrate.Calibration, "gradient", gradient)
    store = Checkpoint(None, {})
    search = calibration.search(calibration.measure(store, False), 4, store, False)
    assert search.steps == 4
    assert {len(indices) for indices in trained_on} == {20}
    for number, fold in enumerate(calibration.folds):
        assert not set(fold) & {i for indices in trained_on[number::4] for i in indices}
    all_folds = trained_on[3::4]
    assert {i for indices in all_folds for i in indices} > set(all_folds[0])  # others are drawn for every step


def test_the_p_value_is_that_of_random_signs():
    assert calibrate.sign_flip_p_value(torch.ones(6).double()) == pytest.approx(1 / 64, abs=0.005)
    assert calibrate.sign_flip_p_value(torch.tensor([1.0, -1.0, 1.0, -1.0]).double()) > 0.5


def test_a_gain_has_an_interval_where_one_is_known():
    gains = torch.randn(40, generator=torch.Generator().manual_seed(0)) + 1
    low, high = interval(gains) or (0.0, 0.0)
    assert 0 < low < float(gains.mean()) < high
    assert interval(torch.zeros(40)) is None  # no step has changed anything
    made = {"agreement": {"all heads": 0.5, "gain": 0.0, "interval": None}, "aopc": {}, "helped": False}
    assert calibration_sentence(made) == "no sure gain on texts held back in turn (+0.000): all heads stay lit"


def test_constant_scores_have_gradient_0():
    scores = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    one = Effects(torch.arange(4).double(), torch.ones(4, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(one.agreement(scores) + 0 * scores.sum(), scores)
    assert gradient.equal(torch.zeros(4).double())


def test_some_texts_may_have_a_foil():
    explainer = explainer_for("gpt2", "text-generation")
    foils = [" are" if i % 2 else None for i in range(len(FEW))]
    mask = tl.calibrate(explainer, FEW, target=" is", foil=foils, orders=1, points=2, steps=1, progress=False)
    assert mask.made["texts"] == len(FEW)


def test_targets_of_several_tokens_are_calibrated_as_they_are_explained():
    """Next to a text with a target of one token, which cannot share their batch."""
    explainer = explainer_for("gpt2", "text-generation")
    targets: list[Any] = [(5, 6), (7, 8, 9), 5]
    strengths = torch.linspace(0.3, 0.9, 8, dtype=torch.float64).view(2, 4)
    dark = torch.zeros_like(strengths)
    mask = HeadMask(dark, dark, calibrated=strengths)
    explainer.model.double()
    try:
        rows = explainer.encode(TEXTS[:3])
        effects = [Effects(torch.arange(len(row)).double(), torch.ones(len(row), dtype=torch.bool)) for row in rows]
        measured = [
            Measured(row, explainer.task.resolve_target(row, target, None), effects_of_text)
            for row, target, effects_of_text in zip(rows, targets, effects, strict=True)
        ]
        instrumented = InstrumentedModel(explainer.model)
        batches = measured_batches(explainer, instrumented, measured)
        found = agreements(instrumented, batches, METHODS["attn_lrp"], strengths)
        explanations = explainer.explain(TEXTS[:3], "attn_lrp", target=targets, heads=mask, progress=False)
        expected = [one.agreement(e.scores) for one, e in zip(effects, explanations, strict=True)]
        torch.testing.assert_close(found, torch.stack(expected), atol=1e-9, rtol=0)
    finally:
        explainer.model.float()


def test_calibration_with_real_effects_leaves_the_model_as_it_is():
    explainer = explainer_for("gpt2", "text-classification")
    before = {name: tensor.clone() for name, tensor in explainer.model.state_dict().items()}
    mask = tl.calibrate(explainer, FEW, "lrp", orders=2, steps=3, progress=False)
    assert all(tensor.equal(before[name]) for name, tensor in explainer.model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in explainer.model.parameters())
    assert mask.made["method"] == "lrp"
    assert mask.lit.shape == (2, 4)
    assert 0 <= float(mask.lit.min()) <= float(mask.lit.max()) <= 1


def test_next_tokens_are_calibrated_against_a_foil():
    explainer = explainer_for("gpt2", "text-generation")
    mask = tl.calibrate(explainer, FEW, target=" is", foil=" are", orders=2, steps=2, progress=False)
    assert mask.made["perturbation"]["removal"] == "delete"
    plain = explainer.explain(TEXTS[0], target=" is", foil=" are")
    assert explainer.explain(TEXTS[0], heads=mask, target=" is", foil=" are").score == plain.score


def test_a_stopped_run_continues(tmp_path, monkeypatch):
    explainer = explainer_for("bert", "text-classification")
    settings = {"orders": 2, "steps": 4, "progress": False}
    whole = tl.calibrate(explainer, TEXTS, **settings)
    path, honest, measured = tmp_path / "heads.json.partial", calibrate.measure_effects, []

    def counted(*arguments):
        measured.append(len(arguments[2]))
        if len(measured) == 2:
            raise KeyboardInterrupt
        return honest(*arguments)

    monkeypatch.setattr(calibrate, "measure_effects", counted)
    with pytest.raises(KeyboardInterrupt):
        tl.calibrate(explainer, TEXTS, checkpoint=path, **settings)
    taught = calibrate.agreement_and_gradient
    slopes = itertools.count()

    def stopped(*arguments):
        if next(slopes) == 5 * 2 + 3:  # in the third step of five climbs
            raise KeyboardInterrupt
        return taught(*arguments)

    monkeypatch.setattr(calibrate, "agreement_and_gradient", stopped)
    with pytest.raises(KeyboardInterrupt):
        tl.calibrate(explainer, TEXTS, checkpoint=path, **settings)
    assert len(json.loads(path.read_text())["search"]["judged"]) == 1 + 2
    mask = tl.calibrate(explainer, TEXTS, checkpoint=path, **settings)
    assert measured == [16, 16, 16, 8]  # the first 16 texts were measured once
    assert next(slopes) == 5 * 2 + 3 + 1 + 5 * (whole.made["steps"] - 2)  # two steps were taken once
    assert mask.made == whole.made
    assert mask.lit.equal(whole.lit)


def test_later_steps_of_a_checkpoint_are_ignored(tmp_path):
    explainer, path = explainer_for("bert", "text-classification"), tmp_path / "partial"
    settings = {"orders": 1, "progress": False}
    short = tl.calibrate(explainer, FEW, steps=1, **settings)
    tl.calibrate(explainer, FEW, steps=3, checkpoint=path, **settings)
    resumed = tl.calibrate(explainer, FEW, steps=1, checkpoint=path, **settings)
    assert resumed.made == short.made
    assert resumed.made["steps"] == 1
    assert resumed.lit.equal(short.lit)


@pytest.mark.parametrize("changed", ["biases", "tokenizer"])
def test_a_checkpoint_of_a_model_with_another_tokenizer_or_configuration_is_refused(changed, tmp_path):
    explainer, path = explainer_for("bert", "text-classification"), tmp_path / "partial"
    settings = {"orders": 1, "steps": 1, "target": 1, "checkpoint": path, "progress": False}
    tl.calibrate(explainer, FEW, **settings)
    model: Any = copy.deepcopy(explainer.model)
    vocabulary = explainer.tokenizer.get_vocab()
    if changed == "biases":  # the fingerprint knows some weights of some matrices
        with torch.no_grad():
            model.classifier.bias.add_(1)
    else:
        vocabulary |= {"good": vocabulary["bad"], "bad": vocabulary["good"]}
    other = tl.Explainer(model, BertTokenizer(vocab=vocabulary))
    assert fingerprint(model) == fingerprint(explainer.model)
    with pytest.raises(ValueError, match="with other model: delete it"):
        tl.calibrate(other, FEW, **settings)


def test_a_checkpoint_of_another_calibration_is_refused(tmp_path):
    explainer = explainer_for("bert", "text-classification")
    path = tmp_path / "partial"
    tl.calibrate(explainer, FEW, orders=1, steps=1, checkpoint=path, progress=False)
    with pytest.raises(ValueError, match="with other orders, seed: delete it"):
        tl.calibrate(explainer, FEW, orders=2, seed=1, checkpoint=path, progress=False)
    with pytest.raises(ValueError, match="with other texts"):
        tl.calibrate(explainer, [*FEW[:-1], "good"], orders=1, checkpoint=path, progress=False)
    whole = json.loads(path.read_text())
    damages = [
        ["list"],
        {"format": "something"},
        {**whole, "settings": []},
        {**whole, "effects": whole["effects"][::-1]},
        {**whole, "effects": [[float("nan")] * len(one) for one in whole["effects"]]},
        {**whole, "effects": whole["effects"][:3]},
        {**whole, "search": {**whole["search"], "judged": whole["search"]["judged"][:1]}},
        {**whole, "search": {**whole["search"], "judged": [[0.0]] * 2}},
        {**whole, "search": {**whole["search"], "climbs": []}},
    ]
    for damage in damages:
        path.write_text(json.dumps(damage))
        with pytest.raises(ValueError, match="not a calibration's checkpoint"):
            tl.calibrate(explainer, FEW, orders=1, steps=2, checkpoint=path, progress=False)


@pytest.mark.parametrize(
    ("texts", "settings", "words"),
    [
        (TEXTS[:3], {}, "3 different texts are too few"),
        (TEXTS[:3] * 20, {}, "3 different texts are too few"),
        ([text + blank for blank in ("", " ", "  ", "\t") for text in TEXTS[:3]], {}, "3 different texts are too few"),
        (TEXTS, {"folds": 21}, "and 2 for each of the 21 folds"),
        ([*TEXTS, ""], {}, "text 40: expected a text, found an empty one"),
        (TEXTS, {"method": "calibrated_lrp"}, "'calibrated_lrp' has no heads to calibrate"),
        (TEXTS, {"checkpoint": "nowhere/heads.partial"}, "there is no folder 'nowhere'"),
        (TEXTS, {"method": "rollout"}, "'rollout' has no heads to calibrate; methods that have: lrp"),
        (TEXTS, {"folds": 1}, "expected 2 folds or more"),
        (TEXTS, {"orders": 0}, "expected orders >= 1 and points >= 2"),
        (TEXTS, {"steps": 0}, "steps must be a positive number"),
        (TEXTS, {"target": ["positive"]}, "target"),
    ],
)
def test_bad_input_is_refused(texts, settings, words):
    with pytest.raises(ValueError, match=words):
        tl.calibrate(explainer_for("bert", "text-classification"), texts, progress=False, **settings)


@pytest.fixture
def mask():
    lit = torch.tensor([[1.0, 0.0, 0.5, 0.25], [0.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    syntactic, positional = torch.zeros(2, 4).double(), torch.zeros(2, 4).double()
    syntactic[0, 0] = syntactic[0, 1] = positional[1, 3] = 1
    return HeadMask(syntactic, positional, {"by": "calibration", "method": "attn_lrp", "texts": 24}, calibrated=lit)


def test_a_calibrated_mask_uses_only_its_strengths(mask, tmp_path):
    assert mask.lit.equal(mask.calibrated)
    assert mask.groups.equal(mask.calibrated[None])
    assert (mask.count, mask.explained) == (5, 2)
    expected = (
        "4 of 8 heads at half strength or more (calibrated for attn_lrp on 24 texts; 2 of them syntactic or positional)"
    )
    assert str(mask) == expected
    mask.save(tmp_path / "heads.json")
    loaded = HeadMask.load(tmp_path / "heads.json")
    assert all(getattr(loaded, name).equal(getattr(mask, name)) for name in ("calibrated", "syntactic", "positional"))
    explainer = explainer_for("bert", "text-classification")
    by_hand = explainer.explain(TEXTS[0], "attn_lrp", heads=mask.lit)
    assert explainer.explain(TEXTS[0], "attn_lrp", heads=mask).scores.equal(by_hand.scores)


def test_controls_of_a_calibrated_mask(mask):
    assert mask.complement().lit.equal(1 - mask.lit)
    drawn = mask.random(seed=3)
    assert drawn.lit.flatten().sort().values.equal(mask.lit.flatten().sort().values)
    assert not drawn.lit.equal(mask.lit)
    assert mask.corrupted(1.0).lit.gt(0).all()
    assert mask.only("syntactic").lit.equal(mask.syntactic)


def test_calibrated_lrp_runs_under_the_rules_that_the_mask_was_made_for(mask):
    explainer = explainer_for("bert", "text-classification")
    e = explainer.explain(TEXTS[0], "calibrated_lrp", heads=mask)
    assert e.scores.equal(explainer.explain(TEXTS[0], "attn_lrp", heads=mask).scores)
    assert any("calibrated for attn_lrp on 24 texts" in note for note in e.notes)
    for_lrp = HeadMask(mask.syntactic, mask.positional, {**mask.made, "method": "lrp"}, calibrated=mask.calibrated)
    e = explainer.explain(TEXTS[0], "calibrated_lrp", heads=for_lrp)
    assert e.scores.equal(explainer.explain(TEXTS[0], "lrp", heads=mask).scores)
    other = HeadMask(mask.syntactic, mask.positional, {**mask.made, "method": "mask_lrp"}, calibrated=mask.calibrated)
    with pytest.raises(ValueError, match="calibrated for mask_lrp: use it as method='mask_lrp'"):
        explainer.explain(TEXTS[0], "calibrated_lrp", heads=other)


def test_the_error_for_a_missing_calibrated_mask_names_the_command():
    explainer = explainer_for("bert", "text-classification")
    with pytest.raises(ValueError, match=r"comes without a calibrated head mask\. Make one: `tokenlight calibrate "):
        explainer.explain(TEXTS[0], "calibrated_lrp")
    assert "calibrated_lrp" not in explainer.explain_all(TEXTS[0])
