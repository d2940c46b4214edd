"""Random draws for a text depend only on the text and the seed."""

import pytest
import torch

from tests import models
from tokenlight.text import context_draws
from tokenlight.text.batch import Batch


def draw_normal(generator):
    return torch.randn(3, generator=generator)


def draw(ids, mask=None, special=None, seed=0, step=0):
    return context_draws.by_token(
        Batch(ids, torch.ones_like(ids) if mask is None else mask, special=special), seed, step, draw_normal
    )


def test_draws_for_a_text_do_not_depend_on_the_batch():
    ids = models.ids(3, 6)
    draws = draw(ids)
    assert draws.shape == (3, 6, 3)
    assert torch.equal(draws[1:2], draw(ids[1:2]))
    assert not torch.allclose(draws[0], draws[1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_gets_no_draws_and_does_not_change_others(side):
    ids = models.ids(1, 4)
    fill = torch.ones(1, 2, dtype=torch.long)
    padded = torch.cat([fill, ids] if side == "left" else [ids, fill], 1)
    mask = torch.cat([0 * fill, ids > 0] if side == "left" else [ids > 0, 0 * fill], 1).long()
    draws = draw(padded, mask)
    assert (draws[mask == 0] == 0).all()
    assert torch.equal(draws[mask == 1], draw(ids)[0])


def test_appended_tokens_do_not_change_earlier_draws():
    ids = models.ids(1, 6)
    assert torch.equal(draw(ids)[:, :4], draw(ids[:, :4]))
    changed = ids.clone()
    changed[0, 1] += 1
    same = (draw(changed) == draw(ids)).all(-1)[0]
    assert same.tolist() == [True] + [False] * 5  # from the changed token on


def test_special_tokens_get_no_draws_but_affect_later_ones():
    ids, special = models.ids(1, 4), torch.tensor([[True, False, False, True]])
    draws = draw(ids, special=special)
    assert (draws[special] == 0).all()
    assert torch.equal(draws[~special], draw(ids)[~special])


def test_draws_differ_between_steps_and_seeds():
    ids = models.ids(1, 4)
    draws = [draw(ids), draw(ids, step=1), draw(ids, seed=1), draw(ids, seed=1, step=1)]
    assert len({float(values.sum()) for values in draws}) == 4
    assert not (draws[0] == draws[1]).any()


@pytest.mark.parametrize("seed", [1.5, "one", None])
def test_a_seed_that_is_not_a_whole_number_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be a whole number, found"):
        context_draws.of_text(models.ids(1, 4)[0], seed)
    with pytest.raises(ValueError, match="seed must be a whole number, found"):
        draw(models.ids(1, 4), seed=seed)


def test_a_seed_of_more_than_64_bits_is_refused():
    with pytest.raises(ValueError, match="at most 64 bits"):
        context_draws.of_text(models.ids(1, 4)[0], 10**30)
