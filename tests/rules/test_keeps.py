"""Rules keep for the backward pass what they say, no more and no less."""

from functools import partial, wraps
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules import lrp_rules
from tokenlight.rules import lrp_rules as rules
from tokenlight.rules.keeps import Keeps, kept_by
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import TABLES

TOKENS, WIDE, NARROW = 400, 60, 30


def facts(rule: Any) -> Keeps:
    found = kept_by(rule)
    assert found is not None
    return found


def signal(width: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, TOKENS, width, dtype=torch.float64, requires_grad=True)


def saved(rule: Any, function: Any, *args: Any) -> dict[int, float]:
    """Tokens of what is saved by width; constants of the layer are too small to count, single precision counts half."""
    found: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        found[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), RuleMode({function: rule}, Ledger(2)):
        function(*args)
    widths = [(t.shape[-1], t.itemsize / 8) for t in found.values() if t.ndim == 3 and t.shape[-1] > 1]
    return {width: sum(share for other, share in widths if other == width) for width, _ in widths}


WEIGHT, BIAS = torch.randn(NARROW, WIDE), torch.randn(NARROW)


@pytest.mark.parametrize("rule", [rules.identity, rules.cut])
def test_activations(rule):
    assert saved(rule, F.gelu, signal(WIDE)) == {WIDE: 1} == {WIDE: facts(rules.identity).results}  # a head's: no block


@pytest.mark.parametrize(("rule", "own"), [(rules.plain, 2), (rules.halved, 2), (rules.through_signal, 1)])
def test_products(rule, own):
    gate = rules.identity(torch.sigmoid, signal(WIDE))
    assert saved(rule, torch.mul, gate, signal(WIDE)) == {WIDE: own} == {WIDE: 2 * facts(rule).own}


@pytest.mark.parametrize("rule", [rules.conserving_sum, rules.absorbing_sum])
def test_sums(rule):
    assert saved(rule, torch.add, signal(WIDE), signal(WIDE)).get(WIDE, 0) == facts(rule).results


@pytest.mark.parametrize("rule", [lrp_rules.zplus_linear, lrp_rules.alpha_beta_linear])
def test_positive_linear_layers(rule):
    half = {WIDE: 0.5, NARROW: 0.5}  # in single precision, although the values are in double
    assert saved(rule, F.linear, signal(WIDE), WEIGHT, BIAS) == half
    assert facts(rule) == Keeps(inputs=1, results=1, single=True)


def test_linear_layers_by_their_gradient():
    weight, bias = WEIGHT.double(), BIAS.double()
    assert saved(rules.absorbing_linear, F.linear, signal(WIDE), weight, bias) == {}


@pytest.mark.parametrize("rule", [rules.linear_norm, rules.identity_norm])
def test_norms(rule):
    weight = torch.randn(WIDE, dtype=torch.float64)
    found = saved(rule, F.layer_norm, signal(WIDE), (WIDE,), weight, weight)
    assert found.get(WIDE, 0) == facts(rule).results


def test_softmax():
    assert saved(rules.identity, F.softmax, signal(WIDE), -1) == {WIDE: facts(rules.identity).results}
    both = saved(rules.gradient_softmax, F.softmax, signal(WIDE), -1)
    assert both == {WIDE: facts(rules.gradient_softmax).results + 1}  # the weights, which what follows keeps as well


@pytest.mark.parametrize("rule", [rules.constant])
def test_constants(rule):
    assert saved(rule, F.gelu, signal(WIDE)) == {}
    assert facts(rule) == Keeps(passes=False)


def test_every_published_rule_declares_what_it_keeps():
    assert all(kept_by(rule) is not None for table in TABLES for rule in table.values())


def test_the_declaration_is_found_through_wrappers():
    @wraps(lrp_rules.zplus_linear)
    def noted(*args: Any) -> Any:
        return lrp_rules.zplus_linear(*args)

    assert (
        kept_by(noted) == kept_by(partial(partial(lrp_rules.zplus_linear), F.linear)) == facts(lrp_rules.zplus_linear)
    )
    assert kept_by(lambda *args: lrp_rules.zplus_linear(*args)) is None
