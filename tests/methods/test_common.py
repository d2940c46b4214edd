"""What every method keeps on every family: scikit-learn's idea of common tests."""

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.together import together
from tokenlight.methods import METHODS as ALL

METHODS = {  # others: test_unit_ablation.py, test_guided_backpropagation.py
    name: entry for name, entry in ALL.items() if models.runs_here(name)
}
POST_NORM_ONLY = ("value_norms", "globenc")  # tested to refuse the others in methods/test_decomposition.py
FITTING = {
    name: models.ENCODERS
    if name in POST_NORM_ONLY
    else (*models.FAMILIES, *(one for one in models.RECURRENT if entry.fits(models.model(one, "text-generation"))))
    for name, entry in METHODS.items()
}
CASES = [(name, family) for name in METHODS for family in FITTING[name]]
HEAD_CASES = [
    (name, family, task)
    for name in METHODS
    for family, task in models.COMBINATIONS
    if family in FITTING[name] and task != models.default_task(family)
]


def some(cases, every):
    """One in `every` cases of each method, other ones of the next: all methods and all families have their turn."""
    of_methods = ([case for case in cases if case[0] == name] for name in METHODS)
    return [case for i, own in enumerate(of_methods) for j, case in enumerate(own) if (i + j) % every == 0]


# What a whole matrix of cases would say many times over: the padding test below runs all of it.
SOME_CASES, SOME_HEADS = some(CASES, 5), some(HEAD_CASES, 5)


def test_the_choice_leaves_nothing_out():
    assert {name for name, _ in SOME_CASES} == {name for name, *_ in SOME_HEADS} == set(METHODS)
    assert {family for _, family in SOME_CASES} == {*models.FAMILIES, *models.RECURRENT}
    assert {case[1:] for case in SOME_HEADS} == {case[1:] for case in HEAD_CASES}  # every head of every family
    assert {(name, task) for name, _, task in SOME_HEADS} == {(name, task) for name, _, task in HEAD_CASES}


def attribute(model, ids, name, mask=None, **resolved):
    return tl.attribute(model, ids, mask, method=name, **resolved, **models.quick_options(name))


def run(family, name, ids, mask=None, dtype=torch.float32):
    task = models.default_task(family)
    return attribute(models.model(family, task, dtype), ids, name, mask, target=models.target(task))


def run_all(family, names, ids, mask=None):
    task = models.default_task(family)
    return together(models.model(family, task, torch.float64), names, ids, mask, target=models.target(task))


def growth(name):
    """Of rounding errors, in double precision: methods that hand down shares run in it whatever the model's own is."""
    return SHARES if any(one.double for one in METHODS[name].passes) else 1.0


def padded(rows):
    width = max(map(len, rows))
    ids = torch.ones(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    return ids, mask


def uneven_rows():
    return [models.ids(1, length, seed=length)[0] for length in (4, 9)]


def assert_sound(name, scores, mask):
    assert scores.shape == mask.shape, name
    assert scores.isfinite().all(), name
    assert scores.abs().max() > 0, name
    if not METHODS[name].signed:
        assert (scores >= 0).all(), name


@pytest.mark.parametrize("family", [*models.FAMILIES, *models.RECURRENT])
def test_scores_are_sound_and_padding_changes_nothing(family):
    """Every method that there is for the family."""
    names = [name for name in METHODS if family in FITTING[name]]
    rows = uneven_rows()
    ids, mask = padded(rows)
    both = run_all(family, names, ids, mask)
    apart = [run_all(family, names, row[None]) for row in rows]
    for name in names:
        scores = both[name].scores
        assert_sound(name, scores, mask)
        assert (scores[mask == 0] == 0).all(), name
        for i, row in enumerate(rows):
            assert_near(scores[i, : len(row)], apart[i][name].scores[0], growth=growth(name), what=name)


@pytest.mark.parametrize(("name", "family"), SOME_CASES)
def test_the_same_in_single_precision(name, family):
    rows = uneven_rows()
    ids, mask = padded(rows)
    both = run(family, name, ids, mask)
    assert_sound(name, both, mask)
    for i, row in enumerate(rows):
        alone = run(family, name, row[None])[0]
        assert_near(both[i, : len(row)], alone, precision=torch.float32)


@pytest.mark.parametrize("family", [*models.FAMILIES, *models.RECURRENT])
def test_order_of_rows_does_not_matter(family):
    names = [name for name, of in SOME_CASES if of == family]
    ids, order = models.ids(), torch.tensor([2, 0, 1])
    forth, back = run_all(family, names, ids), run_all(family, names, ids[order])
    for name in names:
        assert_near(forth[name].scores[order], back[name].scores, growth=growth(name), what=name)


@pytest.mark.parametrize(("family", "task"), list(dict.fromkeys(case[1:] for case in SOME_HEADS)))
def test_every_head(family, task):
    names = [name for name, *of in SOME_HEADS if of == [family, task]]
    found = together(models.model(family, task), names, models.ids(2, 7), target=models.target(task))
    for name in names:
        assert found[name].scores.shape == (2, 7), name
        assert found[name].scores.isfinite().all(), name


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.class_specific and m.signed])
def test_a_foil_is_the_difference_for_linear_methods(name):
    model, ids = models.model("bert", dtype=torch.float64), models.ids()
    one, two = (attribute(model, ids, name, target=t) for t in (1, 2))
    both = attribute(model, ids, name, target=1, foil=2)
    assert_near(both, one - two, size=torch.stack([one, two]), growth=growth(name))


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if not m.class_specific])
def test_class_agnostic_methods_do_not_depend_on_the_target(name):
    model, ids = models.model("bert"), models.ids()
    one, two = (attribute(model, ids, name, target=t) for t in (1, 2))
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.class_specific])
def test_class_specific_methods_depend_on_the_target(name):
    model, ids = models.model("bert"), models.ids()
    one, two = (attribute(model, ids, name, target=t) for t in (1, 2))
    assert not torch.allclose(one, two)
