"""Calibrated heads: effects by brute force, slopes by differences, planted masks found again, and nothing in noise."""

import itertools
import json
import random

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.calibration import work
from tokenlight.calibration.agreement import Measured, agreement_and_slope, agreements, measured_batches
from tokenlight.calibration.effects import Effects, measure_effects, random_orders, share_out
from tokenlight.calibration.search import PATIENCE, RATE, Climb, climb
from tokenlight.heads.masks import HeadMask
from tokenlight.methods import METHODS
from tokenlight.metrics.perturbation import Perturbation, change
from tokenlight.metrics.probability import Goal, ask, probabilities
from tokenlight.twin import Twin

WORDS = ["the", "keys", "are", "good", "bad", "movie", "they", "is", "not", "here", "book", "author", "young", "film"]
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=5 + i % 4)) for i in range(40)]


def effects_of(explainer, texts, orders, points=30, perturbation=None):
    rows = explainer.encode(texts)
    fitted = (perturbation or Perturbation()).fit(explainer._names.model, explainer.tokenizer)
    goals = [Goal((1,))] * len(rows)
    return rows, measure_effects(explainer, Twin(explainer.model), rows, goals, texts, fitted, orders, points)


def log_odds(explainer, row, gone):
    fitted = Perturbation().fit(explainer._names.model, explainer.tokenizer)
    question = ask(explainer, change(row, gone, fitted, 0.0), Goal((1,)))
    return float(torch.logit(probabilities(explainer, [question]))[0])


def test_effects_add_up_to_what_all_tokens_are_worth():
    explainer = explainer_for("bert", "text-classification")
    rows, found = effects_of(explainer, TEXTS[:3], orders=3, points=4)
    for row, one in zip(rows, found, strict=True):
        words = [i for i, special in enumerate(row.special) if not special]
        worth = log_odds(explainer, row, []) - log_odds(explainer, row, words)
        assert one.values.sum() == pytest.approx(worth, abs=1e-6)
        assert one.measured.nonzero()[:, 0].tolist() == words


def test_with_every_order_effects_are_shapley_values():
    explainer = explainer_for("bert", "text-classification")
    (row,) = explainer.encode(["they are not bad"])
    words = [i for i, special in enumerate(row.special) if not special]
    worth = {
        gone: log_odds(explainer, row, list(gone))
        for size in range(len(words) + 1)
        for gone in itertools.combinations(words, size)
    }
    exact = torch.zeros(len(row), dtype=torch.float64)
    orders = list(itertools.permutations(words))
    for order in orders:
        for place, word in enumerate(order):
            before, after = tuple(sorted(order[:place])), tuple(sorted(order[: place + 1]))
            exact[word] += (worth[before] - worth[after]) / len(orders)
    lines = [
        ([[word] for word in order], torch.tensor([worth[tuple(sorted(order[:k]))] for k in range(len(order) + 1)]))
        for order in orders
    ]
    found = share_out(len(row), [(order, -line.double().diff()) for order, line in lines])
    torch.testing.assert_close(found.values, exact, atol=1e-6, rtol=0)
    estimated = effects_of(explainer, ["they are not bad"], orders=200)[1][0].values
    torch.testing.assert_close(estimated, exact, atol=0.15 * float(exact.abs().max()), rtol=0)


def test_orders_cover_every_token_once_and_every_second_one_runs_backwards():
    explainer = explainer_for("bert", "text-classification")
    (row,) = explainer.encode([TEXTS[0]])
    fitted = Perturbation().fit(explainer._names.model, explainer.tokenizer)
    plan = list(random_orders(row, Goal((1,)), "a name", fitted, orders=4, points=3))
    flat = [[token for group in order for token in group] for order in plan]
    words = [i for i, special in enumerate(row.special) if not special]
    assert [len(order) for order in plan] == [3] * 4
    assert all(sorted(order) == words for order in flat)
    assert flat[1] == flat[0][::-1]
    assert flat[3] == flat[2][::-1]
    assert flat[2] not in flat[:2]
    assert plan == list(random_orders(row, Goal((1,)), "a name", fitted, orders=4, points=3))
    assert plan != list(random_orders(row, Goal((1,)), "another", fitted, orders=4, points=3))


def test_agreement_is_the_correlation_over_the_tokens_that_may_go():
    one = Effects(torch.tensor([9.0, 1.0, 2.0, 4.0]).double(), torch.tensor([False, True, True, True]))
    scores = torch.tensor([-5.0, 3.0, 1.0, 7.0])
    expected = torch.corrcoef(torch.stack([one.values[1:], scores[1:].double()]))[0, 1]
    torch.testing.assert_close(one.agreement(scores), expected)
    assert one.agreement(torch.ones(4)) == 0  # constant scores agree with nothing


@pytest.mark.parametrize("method", ["attn_lrp", "lrp", "alpha_beta_lrp", "zplus_lrp", "mask_lrp", "calibrated_lrp"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_slopes_are_those_of_differences(family, method):
    explainer = explainer_for(family, "text-classification")
    explainer.model.double()
    try:
        check_slopes(explainer, METHODS[method])
    finally:
        explainer.model.float()


def check_slopes(explainer, method):
    twin = Twin(explainer.model)
    rows, found = effects_of(explainer, TEXTS[:2], orders=2)
    wanted = explainer._names.want(rows[0], 1, None)
    batches = measured_batches(explainer, twin, [Measured(r, wanted, e) for r, e in zip(rows, found, strict=True)])
    strengths = torch.linspace(0.3, 0.9, 8, dtype=torch.float64).view(2, 4)
    mean, slope = agreement_and_slope(twin, batches, method, strengths)
    assert mean == pytest.approx(float(agreements(twin, batches, method, strengths).mean()), abs=1e-9)
    assert slope.abs().max() > 1e-4
    step = 1e-5
    for layer, head in ((0, 1), (1, 2), (1, 3)):
        moved = strengths.clone(), strengths.clone()
        moved[0][layer, head] += step
        moved[1][layer, head] -= step
        up, down = (float(agreements(twin, batches, method, one).mean()) for one in moved)
        assert float(slope[layer, head]) == pytest.approx((up - down) / (2 * step), rel=1e-3, abs=1e-6)


def test_the_search_climbs_to_the_top_of_a_hill_inside_the_box():
    top = torch.tensor([[0.2, 1.4], [0.7, -0.3]], dtype=torch.float64)
    *_, last = climb(Climb.start(2, 2), 80, lambda s: (0.0, -2 * (s - top)), lambda s: -float(((s - top) ** 2).sum()))
    torch.testing.assert_close(last.best, top.clamp(0, 1), atol=2 * RATE, rtol=0)


def test_the_search_stops_when_held_back_texts_gain_no_more():
    falling = itertools.count()
    states = list(climb(Climb.start(2, 2), 80, lambda s: (0.0, -torch.ones_like(s)), lambda s: -next(falling)))
    assert len(states) == PATIENCE
    assert states[-1].stalled
    torch.testing.assert_close(states[-1].best, torch.ones(2, 2).double())


@pytest.fixture
def planted(monkeypatch):
    """Effects that are exactly what attn_lrp says through some heads: these should be found."""
    lit = torch.tensor([[1.0, 0.0, 1.0, 0.3], [0.0, 1.0, 0.6, 1.0]], dtype=torch.float64)

    def measure(explainer, twin, rows, *settings):
        found = explainer.explain([row.text for row in rows], "attn_lrp", heads=lit, progress=False)
        return [Effects(e.scores.double(), ~e.special) for e in found]

    monkeypatch.setattr(work, "measure_effects", measure)
    return lit


def test_a_planted_mask_is_found(planted):
    explainer = explainer_for("bert", "text-classification")
    mask = tl.calibrate(explainer, TEXTS, steps=150, progress=False)
    assert mask.made["helped"]
    found = mask.made["agreement"]
    assert found["all heads"] < 0.9
    assert found["all heads"] + found["gain"] > 0.99
    torch.testing.assert_close(mask.lit, planted, atol=0.15, rtol=0)
    again = tl.calibrate(explainer, TEXTS, steps=150, progress=False)
    assert again.lit.equal(mask.lit)


def test_nothing_is_found_in_noise(monkeypatch):
    """Chance may deceive a few: 2 in 100 by construction."""

    def noise(explainer, twin, rows, goals, names, *settings):
        chance = [random.Random(name) for name in names]
        values = [torch.tensor([g.gauss(0, 1) for _ in row.tokens]) for g, row in zip(chance, rows, strict=True)]
        return [Effects(v.double(), ~torch.tensor(row.special)) for v, row in zip(values, rows, strict=True)]

    monkeypatch.setattr(work, "measure_effects", noise)
    explainer = explainer_for("bert", "text-classification")
    masks = [tl.calibrate(explainer, TEXTS, steps=8, seed=seed, progress=False) for seed in range(12)]
    assert sum(mask.made["helped"] for mask in masks) <= 2
    spared = [mask for mask in masks if not mask.made["helped"]]
    assert all(mask.lit.equal(torch.ones(2, 4).double()) for mask in spared)
    assert all(mask.made["aopc"]["all heads"] == mask.made["aopc"]["calibrated"] for mask in spared)


def test_texts_that_judge_are_seen_by_nobody_else():
    explainer = explainer_for("bert", "text-classification")
    settings = work.Settings(Perturbation(), 2, 30, 0.4, seed=5)
    nothing = [None] * len(TEXTS)
    parts = work.Calibration(explainer, METHODS["attn_lrp"], TEXTS, nothing, nothing, settings).parts
    assert (len(parts.learn), len(parts.stop), len(parts.judge)) == (24, 8, 8)
    assert sorted(parts.learn + parts.stop + parts.judge) == list(range(len(TEXTS)))


def test_chance_is_that_of_a_coin():
    assert work.chance_of(torch.ones(6).double()) == pytest.approx(1 / 64, abs=0.005)
    assert work.chance_of(torch.tensor([1.0, -1.0, 1.0, -1.0]).double()) > 0.5


def test_constant_scores_have_no_slope():
    scores = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    one = Effects(torch.arange(4).double(), torch.ones(4, dtype=torch.bool))
    (slope,) = torch.autograd.grad(one.agreement(scores) + 0 * scores.sum(), scores)
    assert slope.equal(torch.zeros(4).double())


def test_some_texts_may_have_a_foil():
    explainer = explainer_for("gpt2", "text-generation")
    foils = [" are" if i % 2 else None for i in range(len(TEXTS))]
    mask = tl.calibrate(explainer, TEXTS, target=" is", foil=foils, orders=1, points=2, steps=1, progress=False)
    assert mask.made["texts"] == len(TEXTS)


def test_calibration_with_real_effects_leaves_the_model_as_it_is():
    explainer = explainer_for("gpt2", "text-classification")
    before = {name: tensor.clone() for name, tensor in explainer.model.state_dict().items()}
    mask = tl.calibrate(explainer, TEXTS, "lrp", orders=2, steps=3, progress=False)
    assert all(tensor.equal(before[name]) for name, tensor in explainer.model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in explainer.model.parameters())
    assert mask.made["method"] == "lrp"
    assert mask.lit.shape == (2, 4)
    assert 0 <= float(mask.lit.min()) <= float(mask.lit.max()) <= 1


def test_next_tokens_are_calibrated_against_a_foil():
    explainer = explainer_for("gpt2", "text-generation")
    mask = tl.calibrate(explainer, TEXTS, target=" is", foil=" are", orders=2, steps=2, progress=False)
    assert mask.made["perturbation"]["how"] == "delete"
    plain = explainer.explain(TEXTS[0], target=" is", foil=" are")
    assert explainer.explain(TEXTS[0], heads=mask, target=" is", foil=" are").score == plain.score


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    explainer = explainer_for("bert", "text-classification")
    settings = {"orders": 2, "steps": 6, "progress": False}
    whole = tl.calibrate(explainer, TEXTS, **settings)
    path, honest, measured = tmp_path / "heads.json.partial", work.measure_effects, []

    def counted(*arguments):
        measured.append(len(arguments[2]))
        if len(measured) == 2:
            raise KeyboardInterrupt
        return honest(*arguments)

    monkeypatch.setattr(work, "measure_effects", counted)
    with pytest.raises(KeyboardInterrupt):
        tl.calibrate(explainer, TEXTS, checkpoint=path, **settings)
    taught = work.agreement_and_slope
    slopes = itertools.count()

    def stopped(*arguments):
        if next(slopes) == 3:
            raise KeyboardInterrupt
        return taught(*arguments)

    monkeypatch.setattr(work, "agreement_and_slope", stopped)
    with pytest.raises(KeyboardInterrupt):
        tl.calibrate(explainer, TEXTS, checkpoint=path, **settings)
    steps = len(json.loads(path.read_text())["climb"]["taught"])
    assert steps == 3
    mask = tl.calibrate(explainer, TEXTS, checkpoint=path, **settings)
    assert measured == [16, 16, 16, 8]  # the first 16 texts were measured once
    assert next(slopes) <= 4 + 1 + whole.made["steps"] - steps
    assert mask.made == whole.made
    assert mask.lit.equal(whole.lit)


def test_a_checkpoint_of_another_calibration_is_refused(tmp_path):
    explainer = explainer_for("bert", "text-classification")
    path = tmp_path / "partial"
    tl.calibrate(explainer, TEXTS, orders=1, steps=1, checkpoint=path, progress=False)
    with pytest.raises(ValueError, match="with other orders, seed: delete it"):
        tl.calibrate(explainer, TEXTS, orders=2, seed=1, checkpoint=path, progress=False)
    with pytest.raises(ValueError, match="with other texts"):
        tl.calibrate(explainer, [*TEXTS[:-1], "good"], orders=1, checkpoint=path, progress=False)
    whole = json.loads(path.read_text())
    damages = [
        ["list"],
        {"format": "something"},
        {**whole, "settings": []},
        {**whole, "effects": whole["effects"][::-1]},
        {**whole, "effects": [[float("nan")] * len(one) for one in whole["effects"]]},
        {**whole, "effects": whole["effects"][:3]},
    ]
    for damage in damages:
        path.write_text(json.dumps(damage))
        with pytest.raises(ValueError, match="not a calibration's checkpoint"):
            tl.calibrate(explainer, TEXTS, orders=1, steps=2, checkpoint=path, progress=False)


@pytest.mark.parametrize(
    ("texts", "settings", "words"),
    [
        (TEXTS[:3], {}, "3 different texts are too few"),
        (TEXTS[:3] * 20, {}, "3 different texts are too few"),
        (TEXTS, {"held_back": 0.1}, "each part needs 6 or more"),
        ([*TEXTS, ""], {}, "text 40: expected a text, found an empty one"),
        (TEXTS, {"method": "calibrated_lrp"}, "'calibrated_lrp' has no heads to calibrate"),
        (TEXTS, {"checkpoint": "nowhere/heads.partial"}, "there is no folder 'nowhere'"),
        (TEXTS, {"method": "rollout"}, "'rollout' has no heads to calibrate; methods that have: lrp"),
        (TEXTS, {"held_back": 1.5}, "held_back is the share"),
        (TEXTS, {"orders": 0}, "1 order and 2 points"),
        (TEXTS, {"steps": 0}, "steps is a positive number"),
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


def test_a_calibrated_mask_flows_by_its_strengths_alone(mask, tmp_path):
    assert mask.lit.equal(mask.calibrated)
    assert mask.groups.equal(mask.calibrated[None])
    assert (mask.count, mask.explained) == (5, 2)
    told = (
        "4 of 8 heads at half strength or more (calibrated for attn_lrp on 24 texts; 2 of them syntactic or positional)"
    )
    assert str(mask) == told
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


def test_a_model_without_a_calibrated_mask_is_told_how_to_get_one():
    explainer = explainer_for("bert", "text-classification")
    with pytest.raises(ValueError, match=r"comes without a calibrated head mask\. Make one: `tokenlight calibrate "):
        explainer.explain(TEXTS[0], "calibrated_lrp")
    assert "calibrated_lrp" not in explainer.explain_all(TEXTS[0])
