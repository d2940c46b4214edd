"""Shapley values against all orders of five tokens, and against loops and least squares that are written out."""

import copy
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import comb
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.methods.test_common import padded, uneven_rows
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.methods import shapley
from tokenlight.model.instrumented import InstrumentedModel

BOTH = ["shapley_sampling", "kernel_shap"]
FAMILIES = ["bert", "roberta", "distilbert", "gpt2"]  # whose eager models keep double precision
START, PAD = 2, 1  # as in tests/models.py
TEXTS = ["it is a good movie", "The keys to the cabinet are on the table", "ok"]


# --- the game, played with the plain model ------------------------------------------------------------------------


@cache
def eager(family: str) -> Any:
    model = copy.deepcopy(models.model(family, models.default_task(family), torch.float64))
    model.set_attn_implementation("eager")
    return model


def worth_by_hand(family: str, ids: Tensor, removal: str) -> Callable[[frozenset[int]], float]:
    """The model's output if only these tokens are present; positions are explicit, so they do not change."""
    model, length, known = eager(family), len(ids), {}
    inputs: dict[str, Tensor] = {}
    if family != "distilbert":
        first = 2 if family == "roberta" else 0  # RoBERTa counts from its padding index + 1
        inputs["position_ids"] = torch.arange(first, first + length)[None]

    def worth(there: frozenset[int]) -> float:
        if there not in known:
            changed, mask = ids[None].clone(), torch.ones(1, length, dtype=torch.long)
            for token in set(range(length)) - there:
                if removal == "pad":
                    changed[0, token] = PAD
                elif token == 0:  # a model has to see something
                    changed[0, token] = START
                else:
                    mask[0, token] = 0
            with torch.no_grad():
                logits = model(input_ids=changed, attention_mask=mask, **inputs).logits
            encoder = family in models.ENCODERS
            known[there] = float(logits[0, 1] if encoder else logits[0, length - 1, 7])
        return known[there]

    return worth


def added_in_order(order: list[int], worth: Callable[[frozenset[int]], float]) -> Tensor:
    """What each token adds to those before it."""
    added, there = torch.zeros(len(order), dtype=torch.float64), frozenset[int]()
    for token in order:
        added[token] = worth(there | {token}) - worth(there)
        there |= {token}
    return added


def attribute(family: str, ids: Tensor, method: str, mask: Tensor | None = None, **options: Any) -> Tensor:
    task = models.default_task(family)
    model = models.model(family, task, torch.float64)
    return tl.attribute(model, ids, mask, method=method, target=models.target(task), **options)


# --- exact values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("removal", ["hide", "pad"])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_sets_give_the_mean_over_all_orders(family, removal):
    ids = models.ids(1, 5)
    worth = worth_by_hand(family, ids[0], removal)
    expected = torch.stack([added_in_order(list(order), worth) for order in permutations(range(5))]).mean(0)
    size = max(abs(worth(frozenset(range(k)))) for k in range(6))
    orders = attribute(family, ids, "shapley_sampling", removal=removal, permutations=4)[0]
    fit = attribute(family, ids, "kernel_shap", removal=removal, samples=30)[0]
    assert_near(orders, expected, size=size, what="shapley_sampling")
    assert_near(fit, expected, size=size, what="kernel_shap")


@pytest.mark.parametrize("method", BOTH)
def test_a_text_of_one_token(method):
    ids = models.ids(1, 1)
    worth = worth_by_hand("bert", ids[0], "hide")
    assert_near(attribute("bert", ids, method)[0, 0], worth(frozenset({0})) - worth(frozenset()), size=1.0)


# --- sampling -----------------------------------------------------------------------------------------------------


def key_by_hand(ids: Tensor, token: int, seed: int, count: int) -> Tensor:
    read = zlib.crc32((0).to_bytes(8, "little") + ids[: token + 1].numpy().astype("<i8").tobytes())
    return torch.rand(count, generator=torch.Generator().manual_seed(read ^ seed), dtype=torch.float64)


@pytest.mark.parametrize(("removal", "seed"), [("hide", 0), ("hide", 5), ("pad", 0)])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_sampling_equals_a_loop_over_orders_there_and_back(family, removal, seed):
    ids, count = models.ids(1, 9), 3
    worth = worth_by_hand(family, ids[0], removal)
    keys = torch.stack([key_by_hand(ids[0], token, seed, count) for token in range(9)])  # [token, permutation]
    orders = [sorted(range(9), key=keys[:, i].tolist().__getitem__) for i in range(count)]
    assert len({tuple(order) for order in orders}) == count
    expected = torch.stack([added_in_order(way, worth) for order in orders for way in (order, order[::-1])]).mean(0)
    found = attribute(family, ids, "shapley_sampling", permutations=count, removal=removal, seed=seed)[0]
    assert_near(found, expected, size=max(abs(worth(frozenset(range(k)))) for k in range(10)))


@dataclass(frozen=True)
class Made:
    """A game without a model."""

    size: int
    value: Callable[[Tensor], Tensor]  # [set, player] -> [set]

    def worth(self, present: Tensor) -> Tensor:
        return self.value(present.double())[None]


def pairs_count(there: Tensor) -> Tensor:
    """Players 0 and 1 are worth 6 together and nothing alone; player 2 is worth 1; the others nothing."""
    return 6 * there[:, 0] * there[:, 1] + there[:, 2] + 10


def test_the_mean_over_all_orders_is_the_exact_value():
    game: Any = Made(4, pairs_count)
    places = torch.tensor(list(permutations(range(4))))
    expected = torch.tensor([[3.0, 3.0, 1.0, 0.0]], dtype=torch.float64)
    assert_near(shapley.mean_over_orders(game, places), expected)
    assert_near(shapley.exact_values(game), expected)
    assert_near(shapley.weighted_fit(game, *shapley.kernel_sets(4, 14, torch.Generator())), expected)


def test_there_and_back_is_an_order_and_its_reverse():
    keys = torch.tensor([[0.3, 0.1, 0.9], [0.2, 0.7, 0.5]])
    assert shapley.with_reverses(keys).tolist() == [[1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1]]


def test_a_pair_is_shared_evenly_by_one_order_there_and_back():
    game: Any = Made(4, pairs_count)
    found = shapley.mean_over_orders(game, shapley.with_reverses(torch.rand(1, 4)))
    assert_near(found, torch.tensor([[3.0, 3.0, 1.0, 0.0]], dtype=torch.float64))


# --- Kernel SHAP --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("players", [2, 3, 5, 6])
def test_enough_samples_are_all_sets_with_the_weights_of_the_kernel(players):
    sets, weights = shapley.kernel_sets(players, 2**players - 2, torch.Generator())
    assert len(sets.unique(dim=0)) == len(sets) == 2**players - 2
    for present, weight in zip(sets, weights, strict=True):
        size = int(present.sum())
        assert weight * comb(players, size) * size * (players - size) == pytest.approx(1.0)


@pytest.mark.parametrize("samples", [10, 61, 200, 1000])
def test_fewer_samples_are_pairs_within_the_budget(samples):
    players = 11
    sets, weights = shapley.kernel_sets(players, samples, torch.Generator().manual_seed(1))
    assert samples - 1 <= len(sets) <= samples
    sizes = sets.sum(1)
    assert ((sizes > 0) & (sizes < players)).all()
    rows = sets.tolist()
    assert sorted(rows) == sorted((~sets).tolist())
    assert float(weights.sum()) == pytest.approx(sum(1 / (k * (players - k)) for k in range(1, players)))


def test_small_and_large_sets_are_complete_where_the_budget_allows():
    sets, weights = shapley.kernel_sets(11, 200, torch.Generator().manual_seed(1))
    sizes = sets.sum(1)
    assert len(sets[sizes == 1].unique(dim=0)) == int((sizes == 1).sum()) == 11
    assert weights[sizes == 1].tolist() == pytest.approx([1 / (10 * 11)] * 11)
    assert (sizes[22:] > 1).all()


def test_sizes_are_drawn_by_the_kernel():
    sets, _ = shapley.kernel_sets(7, 60_000, torch.Generator().manual_seed(0))
    assert len(sets) == 126  # more than there are: each once
    drawn = shapley.draw_pairs(7, 1, torch.tensor([2 / 6, 2 / 10, 2 / 12]), 60_000, torch.Generator().manual_seed(0))
    share = drawn.sum(1).bincount(minlength=8)[1:7] / len(drawn)
    expected = torch.tensor([1 / (k * (7 - k)) for k in range(1, 7)])
    torch.testing.assert_close(share, expected / expected.sum(), rtol=0, atol=0.01)  # five standard deviations
    torch.testing.assert_close(drawn.float().mean(0), torch.full((7,), 0.5), rtol=0, atol=0.01)


@pytest.mark.parametrize(("family", "seed"), [("bert", 0), ("bert", 5), ("gpt2", 0)])
def test_the_fit_solves_least_squares_with_a_constraint(family, seed):
    """With Lagrange's multiplier, instead of leaving a token out."""
    ids, samples = models.ids(1, 9), 60
    worth = worth_by_hand(family, ids[0], "hide")
    text = torch.Generator().manual_seed(zlib.crc32(ids[0].numpy().astype("<i8").tobytes()) ^ seed)
    sets, weights = shapley.kernel_sets(9, samples, text)
    sizes = [worth(frozenset(one.nonzero()[:, 0].tolist())) for one in sets]
    nothing, everything = worth(frozenset()), worth(frozenset(range(9)))
    there, outcome = sets.double(), torch.tensor(sizes, dtype=torch.float64) - nothing
    system = torch.zeros(10, 10, dtype=torch.float64)
    system[:9, :9] = there.T @ (weights[:, None] * there)
    system[:9, 9] = system[9, :9] = 1
    right = torch.cat([there.T @ (weights * outcome), torch.tensor([everything - nothing], dtype=torch.float64)])
    expected = torch.linalg.solve(system, right)[:9]
    found = attribute(family, ids, "kernel_shap", samples=samples, seed=seed)[0]
    assert_near(found, expected, size=max(map(abs, sizes)), growth=float(torch.linalg.cond(system)))


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match=r"6 sets of tokens do not determine the values of 9 tokens.*None for 512"):
        attribute("bert", models.ids(1, 9), "kernel_shap", samples=6)


@pytest.mark.parametrize(("tokens", "expected"), [(3, 512), (100, 1600)])
def test_without_samples_they_grow_with_the_text(tokens, expected):
    assert shapley.set_count(None, tokens) == expected


# --- both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("removal", ["hide", "pad"])
@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_scores_add_up_to_what_all_tokens_change(family, method, removal):
    rows = uneven_rows()
    ids, mask = padded(rows)
    scores = attribute(family, ids, method, mask, removal=removal, **models.quick_options(method))
    for row, found in zip(rows, scores, strict=True):
        worth = worth_by_hand(family, row, removal)
        everything, nothing = worth(frozenset(range(len(row)))), worth(frozenset())
        assert abs(everything - nothing) > 1e-3
        assert_near(found.sum(), everything - nothing, size=max(abs(everything), abs(nothing)))


@pytest.mark.parametrize("method", BOTH)
def test_an_additive_game_is_solved_by_the_smallest_sample(method):
    weights = torch.tensor([3.0, -1.0, 0.0, 2.5, 1.0], dtype=torch.float64)
    game: Any = Made(5, lambda there: there @ weights + 4)
    few = (
        shapley.mean_over_orders(game, shapley.with_reverses(torch.rand(1, 5)))
        if method == "shapley_sampling"
        else shapley.weighted_fit(game, *shapley.kernel_sets(5, 16, torch.Generator().manual_seed(0)))
    )
    assert_near(few[0], weights)


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize(
    ("family", "side"), [("bert", "right"), ("roberta", "right"), ("llama", "right"), ("llama", "left")]
)
def test_padding_on_either_side_changes_nothing(family, side, method):
    ids, fill = models.ids(1, 7), torch.ones(1, 3, dtype=torch.long)
    pair = [fill, ids] if side == "left" else [ids, fill]
    mask = torch.cat([(part != PAD).long() for part in pair], 1)
    options = models.quick_options(method)
    alone = attribute(family, ids, method, **options)
    found = attribute(family, torch.cat(pair, 1), method, mask, **options)
    assert_near(found[mask.bool()], alone[0])


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize(("family", "task"), [("bert", "text-classification"), ("gpt2", "text-generation")])
@pytest.mark.parametrize("method", BOTH)
def test_texts_together_are_as_alone(method, family, task, low_memory):
    explainer = explainer_for(family, task, dtype=torch.float64)
    settings = {**models.quick_options(method), "progress": False}
    together = explainer.explain(TEXTS, method, low_memory=low_memory, **settings)
    for text, e in zip(TEXTS, together, strict=True):
        assert_near(e.scores, explainer.explain(text, method, **settings).scores)


@pytest.fixture
def asked(monkeypatch):
    """The batches that ran."""
    seen, run = [], InstrumentedModel.run

    def watched(self: InstrumentedModel, batch: Any, *more: Any, **settings: Any) -> Any:
        seen.append(batch)
        return run(self, batch, *more, **settings)

    monkeypatch.setattr(InstrumentedModel, "run", watched)
    return seen


@pytest.mark.parametrize("method", BOTH)
def test_special_tokens_stay(method, asked):
    e = explainer_for("bert").explain(TEXTS[1], method, progress=False, **models.quick_options(method))
    assert (e.scores[e.special] == 0).all()
    assert (e.scores[~e.special] != 0).all()
    for batch in asked:
        assert batch.attention_mask[:, e.special].all()
    hidden = torch.cat([batch.attention_mask == 0 for batch in asked[1:]])
    assert hidden[:, ~e.special].all(1).any()  # all others are gone at once


@pytest.mark.parametrize("removal", ["hide", "mask"])
@pytest.mark.parametrize("method", BOTH)
def test_every_distinct_input_is_asked_once(method, removal, asked):
    options = {**models.quick_options(method), "removal": removal, "progress": False}
    explainer_for("bert").explain(TEXTS[1], method, **options)
    inputs = torch.cat([torch.cat([batch.input_ids, batch.attention_mask], 1) for batch in asked[1:]])
    assert len(inputs.unique(dim=0)) == len(inputs) > 30
    assert all(len(batch.input_ids) <= shapley.CHUNK for batch in asked)


@pytest.mark.parametrize("method", BOTH)
def test_a_seed_decides(method):
    options = models.quick_options(method)
    one, same, other = (attribute("bert", models.ids(1, 9), method, seed=seed, **options) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("method", BOTH)
def test_an_extractive_answer_is_start_plus_end(method):
    model, ids = models.model("bert", "question-answering", torch.float64), models.ids(1, 6)
    resolved = [(1, 4), lambda output: output.start_logits[:, 1], lambda output: output.end_logits[:, 3]]
    both, start, end = (tl.attribute(model, ids, method=method, target=target) for target in resolved)
    assert_near(both, start + end)


@pytest.mark.parametrize("method", BOTH)
def test_half_precision(method):
    ids, options = models.ids(2, 6), {"method": method, "target": 1}
    exact = tl.attribute(models.model("bert"), ids, **options)
    rough = tl.attribute(models.model("bert", dtype=torch.bfloat16), ids, **options)
    assert (rough - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        *((method, {"removal": "delete"}, "found 'delete'") for method in BOTH),
        *((method, {"removal": "mask"}, "found 'mask'") for method in BOTH),
        *((method, {"seed": 0.5}, "seed must be a whole number, found 0.5") for method in BOTH),
        ("shapley_sampling", {"permutations": 0}, "permutations is a positive number, found 0"),
        ("shapley_sampling", {"permutations": None}, "permutations is a positive number, found None"),
        ("kernel_shap", {"samples": 0}, "samples is a positive number, found 0"),
        ("kernel_shap", {"samples": 2.5}, "samples is a positive number, found 2.5"),
    ],
)
def test_wrong_values_of_options_are_named(method, options, message):
    with pytest.raises(ValueError, match=message):
        attribute("bert", models.ids(1, 9), method, **options)


def test_a_vocabulary_without_a_token_for_an_empty_text_is_refused():
    model: Any = copy.deepcopy(models.model("gpt2", "text-generation"))
    model.config.bos_token_id = model.config.eos_token_id = model.config.pad_token_id = None
    with pytest.raises(ValueError, match=r"no token that an empty text begins with.*bos_token_id or pad_token_id"):
        tl.attribute(model, models.ids(1, 4), method="shapley_sampling", target=7)
