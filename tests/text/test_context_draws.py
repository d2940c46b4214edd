"""Random numbers of texts depend on nothing but the text and the seed."""

import pytest
import torch

from tests import models
from tokenlight.text import context_draws
from tokenlight.text.batch import Batch


def normal(generator):
    return torch.randn(3, generator=generator)


def drawn(ids, mask=None, special=None, seed=0, step=0):
    return context_draws.by_token(
        Batch(ids, torch.ones_like(ids) if mask is None else mask, special=special), seed, step, normal
    )


def test_draws_for_a_text_do_not_depend_on_the_batch():
    ids = models.ids(3, 6)
    found = drawn(ids)
    assert found.shape == (3, 6, 3)
    assert torch.equal(found[1:2], drawn(ids[1:2]))
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_draws_nothing_and_changes_nothing(side):
    ids = models.ids(1, 4)
    fill = torch.ones(1, 2, dtype=torch.long)
    wide = torch.cat([fill, ids] if side == "left" else [ids, fill], 1)
    mask = torch.cat([0 * fill, ids > 0] if side == "left" else [ids > 0, 0 * fill], 1).long()
    found = drawn(wide, mask)
    assert (found[mask == 0] == 0).all()
    assert torch.equal(found[mask == 1], drawn(ids)[0])


def test_appended_tokens_do_not_change_earlier_draws():
    ids = models.ids(1, 6)
    assert torch.equal(drawn(ids)[:, :4], drawn(ids[:, :4]))
    other = ids.clone()
    other[0, 1] += 1
    same = (drawn(other) == drawn(ids)).all(-1)[0]
    assert same.tolist() == [True] + [False] * 5  # from the changed token on


def test_special_tokens_draw_nothing_but_count_as_text():
    ids, special = models.ids(1, 4), torch.tensor([[True, False, False, True]])
    found = drawn(ids, special=special)
    assert (found[special] == 0).all()
    assert torch.equal(found[~special], drawn(ids)[~special])


def test_draws_differ_between_steps_and_seeds():
    ids = models.ids(1, 4)
    found = [drawn(ids), drawn(ids, step=1), drawn(ids, seed=1), drawn(ids, seed=1, step=1)]
    assert len({float(one.sum()) for one in found}) == 4
    assert not (found[0] == found[1]).any()


@pytest.mark.parametrize("seed", [1.5, "one", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match="seed must be a whole number, found"):
        context_draws.of_text(models.ids(1, 4)[0], seed)
    with pytest.raises(ValueError, match="seed must be a whole number, found"):
        drawn(models.ids(1, 4), seed=seed)


def test_a_seed_of_more_than_64_bits_is_refused():
    with pytest.raises(ValueError, match="at most 64 bits"):
        context_draws.of_text(models.ids(1, 4)[0], 10**30)
