"""Tokens that are removed at each point: grids, rounding, eligible tokens, compatibility with released code."""

import json
import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tokenizers_ import explainer_for
from tokenlight.heads.mask import CALIBRATED, PACKAGED, HeadMask
from tokenlight.metrics.perturbation import BINS, NINTHS, TENTHS, Perturbation, perturb
from tokenlight.text.tokenized_text import TokenizedText

DELETE = Perturbation(removal="delete", grid=None)


def make_text(words: int, types: bool = False) -> TokenizedText:
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
    return [list(input_.input_ids) for input_ in changed]


def test_tokens_are_deleted_one_by_one():
    assert ids(perturb(make_text(4), SCORES, DELETE)) == [
        [2, 10, 11, 12, 13, 3],
        [2, 10, 11, 13, 3],
        [2, 11, 13, 3],  # of two equal scores, the earlier token is removed first
        [2, 11, 3],
        [2, 3],
    ]
    kept = [input_.kept for input_ in perturb(make_text(4), SCORES, DELETE)]
    assert kept[1] == (0, 1, 2, 4, 5)


def test_replacing_tokens_keeps_positions():
    changed = perturb(make_text(4), SCORES, Perturbation(removal=99, grid=(1, 3)))
    assert ids(changed) == [[2, 10, 11, 12, 13, 3], [2, 10, 11, 99, 13, 3], [2, 99, 11, 99, 99, 3]]
    assert all(input_.kept == tuple(range(6)) and input_.original_ids == (2, 10, 11, 12, 13, 3) for input_ in changed)


def test_keep_top_starts_from_the_empty_text():
    perturbation = replace(DELETE, keep="top", empty=True)
    changed = perturb(make_text(4), SCORES, perturbation)
    assert ids(changed) == [
        [2, 10, 11, 12, 13, 3],
        [2, 3],
        [2, 12, 3],
        [2, 10, 12, 3],
        [2, 10, 12, 13, 3],
        [2, 10, 11, 12, 13, 3],
    ]
    assert [input_.share for input_ in changed] == [1, 0, 0.25, 0.5, 0.75, 1]


def test_tokens_can_be_ordered_by_absolute_score():
    first = perturb(make_text(4), SCORES, replace(DELETE, absolute=True))[1]
    assert list(first.input_ids) == [2, 10, 12, 13, 3]


def test_special_tokens_are_removed_only_on_request():
    removed_any = ids(perturb(make_text(4), SCORES, replace(DELETE, eligible="all")))
    assert removed_any[1] == [10, 11, 12, 13, 3]
    assert removed_any[-1] == []


def test_protected_tokens_are_never_removed():
    assert ids(perturb(make_text(4), SCORES, replace(DELETE, eligible="all"), protected=(3,)))[-1] == [12]
    with pytest.raises(ValueError, match="can be removed"):
        perturb(make_text(1), torch.zeros(3), DELETE, protected=(1,))


def test_skip_last_keeps_the_token_with_the_lowest_score_as_released_code_does():
    skipping = replace(DELETE, skip_last=True)
    assert ids(perturb(make_text(4), SCORES, skipping)) == ids(
        perturb(make_text(4), SCORES, DELETE)
    )  # the lowest is [SEP]
    scores = SCORES.clone()
    scores[5] = 1.0
    assert ids(perturb(make_text(4), scores, skipping))[-1] == [
        2,
        11,
        3,
    ]  # now the lowest is a word, which is kept even at 100 %
    assert ids(perturb(make_text(4), scores, DELETE))[-1] == [2, 3]


def test_token_type_ids_are_deleted_with_their_tokens():
    changed = perturb(make_text(4, types=True), SCORES, DELETE)
    assert changed[2].token_type_ids == (0, 1, 1, 1)  # [CLS] w1 w3 [SEP]
    zero = perturb(make_text(4, types=True), SCORES, replace(DELETE, zero_types=True))
    assert all(set(input_.token_type_ids or ()) == {0} for input_ in zero)  # also in the unchanged input


# --- Grids ---------------------------------------------------------------------------------------------------------


def test_the_default_grid():
    assert Perturbation().counts(10, 12) == list(range(1, 11))
    assert Perturbation().counts(3, 5) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert Perturbation().counts(30, 32) == [3 * k for k in range(1, 11)]
    assert TENTHS[-1] == 1.0


def test_bins_are_rounded_up_over_eligible_tokens():
    assert Perturbation(grid=BINS).counts(21, 23) == [1, 2, 3, 5, 11]


def test_half_even_rounding_of_a_share_of_all_tokens():
    halves = Perturbation(grid=(0.5,), rounding="half_even", share_of="all")
    assert [halves.counts(99, total)[0] for total in (1, 3, 5, 7, 9)] == [0, 2, 2, 4, 4]
    assert Perturbation(grid=(0.5,)).counts(5, 7) == [3]


@pytest.mark.parametrize("total", range(10, 130))
def test_the_grid_of_released_code(total):
    """Ten points of linspace times T, the number of all tokens, rounded; without 0 and duplicates."""
    released = Perturbation(grid=NINTHS, rounding="half_even", share_of="all", distinct=True)
    expected = sorted({int(k) for k in np.round(np.linspace(0, 1, 10) * total)} - {0})
    assert len(expected) == 9
    assert released.counts(total, total) == expected
    # Counts are clipped to the number of eligible tokens, and the number of points stays the same.
    assert released.counts(total - 2, total) == [min(k, total - 2) for k in expected]


def test_a_grid_of_token_counts():
    assert Perturbation(grid=(1, 2, 30)).counts(5, 7) == [1, 2, 5]
    assert Perturbation(grid=(0, 2)).counts(5, 7) == [0, 2]
    assert Perturbation(grid=(0, 2, 2), distinct=True).counts(5, 7) == [2]


@pytest.mark.parametrize("grid", [(), (0.1, 1), (1.5,), (-1,), (True,), ("a",), (float("nan"),)])
def test_invalid_grids_are_refused(grid):
    with pytest.raises(ValueError, match="shares"):
        Perturbation(grid=grid)


def test_invalid_combinations_are_refused():
    with pytest.raises(ValueError, match="keep='top'"):
        Perturbation(empty=True)
    with pytest.raises(ValueError, match="4 scores for a text of 6 tokens"):
        perturb(make_text(4), torch.zeros(4), DELETE)
    with pytest.raises(ValueError, match="fit"):
        perturb(make_text(4), SCORES, Perturbation())


@pytest.mark.parametrize(
    "settings",
    [
        {"removal": "zero"},
        {"removal": "hide"},  # allowed for methods only
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
def test_invalid_settings_are_refused(settings):
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=rf"^{name} is .*; found {re.escape(repr(value))}$"):
        Perturbation(**settings)


def test_a_grid_may_be_a_list():
    assert Perturbation(grid=[0.1, 0.5]) == Perturbation(grid=(0.1, 0.5))  # type: ignore[arg-type]


# --- Defaults by model ------------------------------------------------------------------------------------------


def fitted_removal(family: str, task: str = "text-classification", **settings) -> str | int | None:
    explainer = explainer_for(family, task)
    perturbation = Perturbation(**settings).fit(explainer.model, explainer.tokenizer)
    return perturbation.removal


def test_defaults_by_model():
    assert fitted_removal("bert") == 4  # [MASK]
    assert fitted_removal("bert", removal="pad") == 0
    assert fitted_removal("bert", removal="delete") == "delete"
    assert fitted_removal("bert", "fill-mask") == 4
    assert fitted_removal("gpt2", "text-generation") == "delete"
    assert fitted_removal("gpt2", "text-generation", removal="mask") == 1
    assert fitted_removal("gpt2") == "delete"
    assert fitted_removal("bert", removal=7) == 7


def test_a_missing_mask_token_is_refused():
    with pytest.raises(ValueError, match="no mask token"):
        fitted_removal("llama", "text-generation", removal="mask")
    assert fitted_removal("llama", "text-generation", removal="pad") == 1  # llama has a padding token


def test_pad_removal_is_refused_where_padding_marks_the_end_of_the_text():
    with pytest.raises(ValueError, match="finds the end of a text by the padding token"):
        fitted_removal("gpt2", removal="pad")


def test_a_token_id_of_numpy_can_be_stored():
    token_id: Any = np.int64(3)
    perturbation = Perturbation(removal=token_id)
    assert json.loads(json.dumps(asdict(perturbation)))["removal"] == 3


def test_the_packaged_mask_names_the_perturbation_that_it_was_calibrated_with():
    made = HeadMask.load(PACKAGED[CALIBRATED]).made["perturbation"]
    assert isinstance(Perturbation(**{**made, "grid": tuple(made["grid"])}).removal, int)
