"""What is removed at each point: grids, rounding, eligible tokens, the behavior of published code."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.tokenizers_ import explainer_for
from tokenlight.metrics.perturbation import BINS, NINTHS, TENTHS, Perturbation, perturb
from tokenlight.text.tokenized_text import TokenizedText

DELETE = Perturbation(removal="delete", grid=None)


def row(words: int, types: bool = False) -> TokenizedText:
    """[CLS] 10 11 12 ... [SEP]"""
    n = words + 2
    return TokenizedText(
        text="text",
        input_ids=[2, *range(10, 10 + words), 3],
        token_type_ids=[0] * 2 + [1] * words if types else None,
        tokens=["[CLS]", *(f"w{i}" for i in range(words)), "[SEP]"],
        special=[True] + [False] * words + [True],
        segments=[None] + [0] * words + [None],
        spans=[(0, 0)] * n,
        truncated=0,
    )


SCORES = torch.tensor([9.0, 0.2, -0.9, 0.5, 0.2, -5.0])  # [CLS] w0 w1 w2 w3 [SEP]


def ids(changed) -> list[list[int]]:
    return [list(one.input_ids) for one in changed]


def test_deleting_token_by_token():
    assert ids(perturb(row(4), SCORES, DELETE)) == [
        [2, 10, 11, 12, 13, 3],
        [2, 10, 11, 13, 3],
        [2, 11, 13, 3],  # of the two that tie the earlier goes first
        [2, 11, 3],
        [2, 3],
    ]
    kept = [one.kept for one in perturb(row(4), SCORES, DELETE)]
    assert kept[1] == (0, 1, 2, 4, 5)


def test_replacing_moves_nothing():
    changed = perturb(row(4), SCORES, Perturbation(removal=99, grid=(1, 3)))
    assert ids(changed) == [[2, 10, 11, 12, 13, 3], [2, 10, 11, 99, 13, 3], [2, 99, 11, 99, 99, 3]]
    assert all(one.kept == tuple(range(6)) and one.original_ids == (2, 10, 11, 12, 13, 3) for one in changed)


def test_keeping_the_top_alone():
    perturbation = replace(DELETE, keep="top", empty=True)
    changed = perturb(row(4), SCORES, perturbation)
    assert ids(changed) == [
        [2, 10, 11, 12, 13, 3],
        [2, 3],
        [2, 12, 3],
        [2, 10, 12, 3],
        [2, 10, 12, 13, 3],
        [2, 10, 11, 12, 13, 3],
    ]
    assert [one.share for one in changed] == [1, 0, 0.25, 0.5, 0.75, 1]


def test_the_order_may_go_by_absolute_scores():
    first = perturb(row(4), SCORES, replace(DELETE, absolute=True))[1]
    assert list(first.input_ids) == [2, 10, 12, 13, 3]


def test_special_tokens_go_only_on_request():
    every = ids(perturb(row(4), SCORES, replace(DELETE, eligible="all")))
    assert every[1] == [10, 11, 12, 13, 3]
    assert every[-1] == []


def test_what_is_read_never_goes():
    assert ids(perturb(row(4), SCORES, replace(DELETE, eligible="all"), protected=(3,)))[-1] == [12]
    with pytest.raises(ValueError, match="can be removed"):
        perturb(row(1), torch.zeros(3), DELETE, protected=(1,))


def test_the_lowest_token_of_all_is_never_visited_by_the_releases():
    skipping = replace(DELETE, skip_last=True)
    assert ids(perturb(row(4), SCORES, skipping)) == ids(perturb(row(4), SCORES, DELETE))  # the lowest is [SEP]
    scores = SCORES.clone()
    scores[5] = 1.0
    assert ids(perturb(row(4), scores, skipping))[-1] == [2, 11, 3]  # now it is a word, which survives 100 %
    assert ids(perturb(row(4), scores, DELETE))[-1] == [2, 3]


def test_types_go_with_their_tokens():
    changed = perturb(row(4, types=True), SCORES, DELETE)
    assert changed[2].token_type_ids == (0, 1, 1, 1)  # [CLS] w1 w3 [SEP]
    zero = perturb(row(4, types=True), SCORES, replace(DELETE, zero_types=True))
    assert all(set(one.token_type_ids or ()) == {0} for one in zero)  # the whole input too


# --- Grids ---------------------------------------------------------------------------------------------------------


def test_the_default_grid():
    assert Perturbation().counts(10, 12) == list(range(1, 11))
    assert Perturbation().counts(3, 5) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert Perturbation().counts(30, 32) == [3 * k for k in range(1, 11)]
    assert TENTHS[-1] == 1.0


def test_bins_are_rounded_up_over_eligible_tokens():
    assert Perturbation(grid=BINS).counts(21, 23) == [1, 2, 3, 5, 11]


def test_half_is_rounded_to_even_over_all_tokens():
    halves = Perturbation(grid=(0.5,), rounding="half_even", share_of="all")
    assert [halves.counts(99, total)[0] for total in (1, 3, 5, 7, 9)] == [0, 2, 2, 4, 4]
    assert Perturbation(grid=(0.5,)).counts(5, 7) == [3]


@pytest.mark.parametrize("total", range(10, 130))
def test_the_released_grid(total):
    """Ten points of linspace, rounded with T counting special tokens, without 0 and repetitions."""
    released = Perturbation(grid=NINTHS, rounding="half_even", share_of="all", distinct=True)
    expected = sorted({int(k) for k in np.round(np.linspace(0, 1, 10) * total)} - {0})
    assert len(expected) == 9
    assert released.counts(total, total) == expected
    # All tokens are never more than there are, but a point that cannot be reached stays a point.
    assert released.counts(total - 2, total) == [min(k, total - 2) for k in expected]


def test_numbers_of_tokens():
    assert Perturbation(grid=(1, 2, 30)).counts(5, 7) == [1, 2, 5]
    assert Perturbation(grid=(0, 2)).counts(5, 7) == [0, 2]
    assert Perturbation(grid=(0, 2, 2), distinct=True).counts(5, 7) == [2]


@pytest.mark.parametrize("grid", [(), (0.1, 1), (1.5,), (-1,), (True,), ("a",), (float("nan"),)])
def test_senseless_grids_are_refused(grid):
    with pytest.raises(ValueError, match="shares"):
        Perturbation(grid=grid)


def test_senseless_combinations_are_refused():
    with pytest.raises(ValueError, match="keep='top'"):
        Perturbation(empty=True)
    with pytest.raises(ValueError, match="4 scores for a text of 6 tokens"):
        perturb(row(4), torch.zeros(4), DELETE)
    with pytest.raises(ValueError, match="fit"):
        perturb(row(4), SCORES, Perturbation())


@pytest.mark.parametrize(
    "settings",
    [
        {"removal": "zero"},
        {"removal": "hide"},  # which is for methods
        {"removal": True},
        {"removal": 1.5},
        {"rounding": "down"},
        {"share_of": "words"},
        {"eligible": "tokens"},
        {"keep": "bottom"},
        {"absolute": "no"},
        {"ablations": -1},
        {"ablations": 1.5},
        {"seed": "a"},
    ],
)
def test_settings_that_do_not_exist_are_refused(settings):
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=rf"^{name} is .*; found {re.escape(repr(value))}$"):
        Perturbation(**settings)


def test_a_grid_may_be_a_list():
    assert Perturbation(grid=[0.1, 0.5]) == Perturbation(grid=(0.1, 0.5))  # type: ignore[arg-type]


# --- What a model gets by default -------------------------------------------------------------------------------


def fitted(family: str, task: str = "text-classification", **settings) -> str | int | None:
    explainer = explainer_for(family, task)
    found = Perturbation(**settings).fit(explainer.model, explainer.tokenizer)
    return found.removal


def test_defaults_by_model():
    assert fitted("bert") == 4  # [MASK]
    assert fitted("bert", removal="pad") == 0
    assert fitted("bert", removal="delete") == "delete"
    assert fitted("bert", "fill-mask") == 4
    assert fitted("gpt2", "text-generation") == "delete"
    assert fitted("gpt2", "text-generation", removal="mask") == 1
    assert fitted("gpt2") == "delete"
    assert fitted("bert", removal=7) == 7


def test_a_token_that_the_vocabulary_lacks():
    with pytest.raises(ValueError, match="no mask token"):
        fitted("llama", "text-generation", removal="mask")
    assert fitted("llama", "text-generation", removal="pad") == 1  # there is padding


def test_padding_inside_a_text_would_end_it_for_some_classifiers():
    with pytest.raises(ValueError, match="finds the end of a text by the padding token"):
        fitted("gpt2", removal="pad")
