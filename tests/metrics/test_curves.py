"""Curves to numbers, by hand."""

import math

import pytest
import torch

from tokenlight.metrics.curves import aopc, area, comprehensiveness, deletion, insertion, log_odds, sufficiency

CURVE = torch.tensor([0.8, 0.4, 0.9, 0.2], dtype=torch.float64)


def test_aopc_is_the_mean_fall():
    assert aopc(CURVE) == pytest.approx((0.4 - 0.1 + 0.6) / 3)
    assert aopc(CURVE, absolute=True) == pytest.approx((0.4 + 0.1 + 0.6) / 3)


def test_log_odds_is_natural():
    assert log_odds(CURVE) == pytest.approx((math.log(0.5) + math.log(9 / 8) + math.log(0.25)) / 3)


def test_a_probability_of_zero_counts_as_the_floor():
    gone = torch.tensor([0.5, 0.0])
    assert log_odds(gone) == pytest.approx(math.log(1e-12 / 0.5))
    assert log_odds(gone, floor=1e-3) == pytest.approx(math.log(1e-3 / 0.5))
    assert log_odds(gone, floor=0.0) == -math.inf


def test_comprehensiveness_plain_and_with_the_envelope():
    assert comprehensiveness(CURVE) == pytest.approx((0.4 - 0.1 + 0.6) / 3)
    assert comprehensiveness(CURVE, envelope=True) == pytest.approx((0.4 + 0.4 + 0.6) / 3)
    assert comprehensiveness(CURVE, envelope=True, plus_one=True) == pytest.approx((0.4 + 0.4 + 0.6) / 4)
    rising = torch.tensor([0.5, 0.7, 0.9])
    assert comprehensiveness(rising) == pytest.approx(-0.3)
    assert comprehensiveness(rising, envelope=True) == 0  # the whole input belongs to the envelope


def test_sufficiency_plain_and_with_the_envelope():
    curve = torch.tensor([0.8, 0.5, 0.3, 0.7], dtype=torch.float64)
    assert sufficiency(curve) == pytest.approx((0.3 + 0.5 + 0.1) / 3)
    assert sufficiency(curve, envelope=True) == pytest.approx((0.3 + 0.3 + 0.1) / 3)  # never with p itself
    # Point 1 is the input without tokens: for the envelope, not for the sum.
    assert sufficiency(curve, empty=True) == pytest.approx((0.5 + 0.1) / 2)
    assert sufficiency(curve, empty=True, envelope=True) == pytest.approx((0.3 + 0.1) / 2)
    assert sufficiency(curve, empty=True, envelope=True, plus_one=True) == pytest.approx((0.3 + 0.1) / 3)


def test_envelopes_never_hurt():
    for seed in range(50):
        curve = torch.rand(7, generator=torch.Generator().manual_seed(seed))
        assert comprehensiveness(curve, envelope=True) >= max(comprehensiveness(curve), 0)
        assert sufficiency(curve, envelope=True) <= sufficiency(curve)
        assert aopc(curve) == pytest.approx(comprehensiveness(curve))


def test_the_area_by_trapezoids():
    assert area(torch.tensor([1.0, 0.0])) == 0.5
    assert area(torch.tensor([1.0, 0.5, 0.5]), torch.tensor([0.0, 0.1, 1.0])) == pytest.approx(0.075 + 0.45)
    assert area(torch.tensor([1.0, 0.5]), torch.tensor([0.2, 0.4])) == pytest.approx(0.75)  # a mean height
    at = torch.tensor([1.0, 0.0, 0.5, 1.0])
    assert deletion(CURVE[:3], at=torch.tensor([0.0, 0.5, 1.0])) == pytest.approx((0.6 + 0.65) / 2)
    assert insertion(CURVE, at=at) == pytest.approx((0.65 + 0.55) / 2)  # the whole input is no part of it


@pytest.mark.parametrize("at", [[0.0, 1.0], [0.0, 0.5, 0.4], [1.0, 1.0, 1.0]])
def test_points_in_no_order_have_no_area(at):
    with pytest.raises(ValueError, match=r"one position for each|rising"):
        area(CURVE[:3], torch.tensor(at))


@pytest.mark.parametrize("function", [aopc, log_odds, comprehensiveness, sufficiency, deletion, insertion])
def test_a_single_point_is_no_curve(function):
    with pytest.raises(ValueError, match="whole input first"):
        function(CURVE[:1])
