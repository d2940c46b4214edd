"""The table of operations is complete and free of contradictions, and spellings of one operation are treated alike."""

from collections import Counter
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.rules.test_lrp_rules import BATCH, constant, signal
from tokenlight.model.precision import KeepDouble
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.ops import FACTS, OPERATIONS, OPS, Kind, OpSpec, functions_of, functions_where, op_spec
from tokenlight.rules.tables import GUIDED, LRP, LRP_UNIFORM, TABLES

LINEAR_KINDS = {kind for kind, facts in FACTS.items() if facts.get("linear")}


def test_no_function_is_listed_twice():
    listed = Counter(function for line in OPERATIONS for function in line.functions)
    listed.update(line.in_place for line in OPERATIONS if line.in_place is not None)
    assert len(listed) > 300
    assert set(listed.values()) == {1}
    assert set(listed) == set(OPS)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_operations(kind):
    assert functions_of(kind)


def test_an_in_place_function_has_the_name_of_its_plain_form():
    forms = {function: spec.plain_form for function, spec in OPS.items() if spec.plain_form is not None}
    assert len(forms) > 40
    named = {f.__name__.strip("_") for f in forms} - {f.__name__ for f in forms.values()}
    assert named == {"copy", "setitem"}  # operations of ours, as torch has no plain form of them
    assert all(op_spec(plain).plain_form is None for plain in forms.values())


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_every_operation_has_a_rule_or_needs_none(number):
    """Operations with a kind are linear, are rewritten as others, or have a rule in every table of LRP."""
    table = TABLES[number]
    without = {
        function
        for function, spec in OPS.items()
        if spec.kind not in (LINEAR_KINDS | {"other", "comparison", "metadata"})
        and spec.plain_form is None
        and spec.decompose is None
        and function not in table
    }
    assert without == {F.group_norm}  # refused


def test_guided_backpropagation_has_a_rule_for_every_activation():
    assert set(functions_of("activation", "clip", "extreme")) <= set(GUIDED)


def test_an_unknown_function_has_no_facts():
    assert op_spec(torch.sinh) == OpSpec()


def test_functions_where_lists_the_functions_with_a_fact():
    assert set(functions_where("exponential")) == {torch.exp, Tensor.exp}


@pytest.mark.parametrize("join", [torch.cat, torch.concat, torch.concatenate, torch.hstack, torch.vstack])
def test_every_spelling_of_a_concatenation_begins_a_new_source(join):
    """So that a product with what was concatenated is a product of two signals and not an activation."""
    x = signal(BATCH, 4, 5)
    with RuleMode(LRP_UNIFORM, Ledger(BATCH)):
        product = join([x.flip(-1)]) * x
    assert torch.isfinite(torch.autograd.grad(product.sum(), x)[0]).all()


@pytest.mark.parametrize(("convolve", "axes"), [(F.conv1d, 1), (F.conv2d, 2)])
def test_every_convolution_begins_a_new_source(convolve, axes):
    x, kernel = signal(BATCH, 2, *[4] * axes), constant(2, 2, *[1] * axes, seed=1)
    with RuleMode(LRP_UNIFORM, Ledger(BATCH)):
        product = convolve(x, kernel) * x
    assert torch.isfinite(torch.autograd.grad(product.sum(), x)[0]).all()


def test_both_spellings_of_a_transposed_matrix_are_known():
    x = signal(4, 5)
    with RuleMode(LRP, Ledger(1)):
        assert torch.equal(torch.t(x), x.t())


def test_every_matrix_product_widens_what_stands_beside_a_double():
    weight, x = constant(3, 4).float(), constant(4, 5)
    with KeepDouble():
        assert torch.equal(x.__rmatmul__(weight), weight.double() @ x)
