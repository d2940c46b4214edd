"""Shapley values: what a token adds to other tokens of its text, a mean over all sets of these that there are.

A set of tokens is worth what the model says where the others are taken away. Special tokens always stay.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, comb
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.methods import Asking, method
from tokenlight.methods.gradients import check_count
from tokenlight.methods.perturbation import (
    CHUNK,
    begin_with_empty_text,
    check_removal,
    is_padded,
    scores_without,
    with_fixed_positions,
)
from tokenlight.model.config import has_windows
from tokenlight.record.scorer import Probe
from tokenlight.text import removal as text_removal

FEWEST, FOR_EACH = 512, 16  # sets that kernel_shap asks about where nobody says how many: in all, for each token


def asking(most: Callable[[Mapping[str, Any], int], int], parts: bool) -> Asking:
    """`most`: from options and tokens how many sets, if so many tokens have them."""

    def sets(options: Mapping[str, Any], tokens: int) -> int:
        return max(1, min(most(options, tokens), 2**tokens) - 1)  # what the whole text says is known

    return Asking(
        passes=lambda options, tokens: ceil(sets(options, tokens) / CHUNK),
        together=lambda options, texts, tokens: max(texts, min(CHUNK, sets(options, tokens))),
        parts=parts,
    )


def sets_in_orders(permutations: Any, tokens: int) -> int:
    """Beginnings of the orders, there and back. The shortest and the longest one are the same in all of them."""
    return 2 * check_count(permutations, "permutations") * (tokens - 1) + 2


@method(
    title="Shapley Sampling",
    paper="Castro et al. 2009; Štrumbelj & Kononenko 2010",
    signed=True,
    cost="2 × permutations × tokens × forward",
    asks=asking(lambda options, tokens: sets_in_orders(options["permutations"], tokens), parts=True),
    aliases=("Shapley Value Sampling",),
)
def shapley_sampling(probe: Probe, *, permutations: int = 10, removal: str = "hide", seed: int = 0) -> Tensor:
    """What a token adds to those before it, mean over random orders, each there and back; exact for short texts.

    how: as in erasure, what it means that a token is not there.
    """
    check_count(permutations, "permutations")
    # Drawn for each token: in an answer, where a token may not look ahead, what follows it leaves its orders alone.
    keys = text_removal.by_token(probe.batch, seed, 0, lambda generator: random_keys(permutations, generator))

    def values(game: Game) -> Tensor:
        if 2**game.size <= sets_in_orders(permutations, game.size):  # all sets there are cost no more
            return exact_values(game)
        return mean_over_orders(game, there_and_back(keys[game.row, game.tokens.cpu()].T))

    return shapley_values(probe, removal, values)


@method(
    title="Kernel SHAP",
    paper="Lundberg & Lee 2017; Covert & Lee 2021",
    signed=True,
    cost="samples × forward",
    # Not all parts of an answer at once: a fit to tokens that a part cannot see would give them a share.
    asks=asking(lambda options, tokens: sets_wanted(options["samples"], tokens) + 2, parts=False),
    aliases=("KernelSHAP",),
)
def kernel_shap(probe: Probe, *, samples: int | None = None, removal: str = "hide", seed: int = 0) -> Tensor:
    """The additive model of the score that fits random sets of tokens best, weighted by the Shapley kernel.

    samples: sets, each with its complement; None takes 16 for each token, at least 512. how: as in erasure.
    """

    def values(game: Game) -> Tensor:
        batch = game.probe.batch
        generator = text_removal.of_text(batch.input_ids[0][batch.attention_mask[0].bool()], seed)
        return weighted_fit(game, *kernel_sets(game.size, sets_wanted(samples, game.size), generator))

    return shapley_values(probe, removal, values)[0]


@dataclass(frozen=True)
class Game:
    """A text whose own tokens can be taken away, in any combination."""

    probe: Probe  # the text, and the text with another beginning
    row: int  # of the batch that the text is from
    tokens: Tensor  # [player] the places of its own tokens
    removal: str
    opens: bool  # where the first token is gone, the other beginning is there

    @property
    def size(self) -> int:
        return len(self.tokens)

    def worth(self, present: Tensor) -> Tensor:
        """[part, set] of sets [set, player] of the tokens, in double precision; each distinct one is asked once.

        What the model says of the whole text is known.
        """
        distinct, places = present.unique(dim=0, return_inverse=True)
        whole = distinct.all(1)
        worth = self.probe.scores_as_they_are()[:, :1].double().cpu().repeat(1, len(distinct))
        if not whole.all():
            worth[:, ~whole] = self._ask(distinct[~whole])
        return worth[:, places]

    def _ask(self, distinct: Tensor) -> Tensor:
        """[part, set]"""
        width, device = self.probe.batch.input_ids.shape[1], self.tokens.device
        gone = torch.zeros(len(distinct), width, dtype=torch.bool, device=device)
        gone[:, self.tokens] = ~distinct.to(device)
        rows = torch.zeros(len(distinct), dtype=torch.long, device=device)
        if self.opens:
            rows += gone[:, self.tokens[0]]
            gone[:, self.tokens[0]] = False
        alone = self.removal == "hide" and is_padded(self.probe.batch)
        return scores_without(self.probe, rows, gone, self.removal, alone).double().cpu()


def shapley_values(probe: Probe, removal: str, values: Callable[[Game], Tensor]) -> Tensor:
    """[part, batch, token] from the values [part, player] that are found for each text."""
    check_removal(probe, removal)
    if removal == "hide" and has_windows(probe.instrumented.model) and bool((probe.batch.first > 0).any()):
        raise RefusedValue(
            f"{type(probe.instrumented.model).__name__} attends within windows: where all of one is "
            "hidden, it would attend to "
            "padding on the left. Pad on the right, or replace tokens: removal='mask' or removal='pad'"
        )
    full = probe.scores_as_they_are()
    scores = full.new_zeros(len(full), *probe.batch.input_ids.shape)
    fixed = with_fixed_positions(probe)
    for row in range(len(probe.batch.input_ids)):
        game = game_of(fixed, row, removal)
        if game.size:
            scores[:, row, game.tokens] = values(game).to(scores)
    return scores


def game_of(probe: Probe, row: int, removal: str) -> Game:
    """Where all tokens of a text would be hidden, its beginning is replaced: a model has to see something.

    A token that may look nowhere looks everywhere, even at what is hidden.
    """
    batch, tokens = probe.batch, probe.batch.own[row].nonzero()[:, 0]
    twice = probe.rows(torch.tensor([row, row], device=batch.input_ids.device))
    opens = removal == "hide" and len(tokens) > 0 and bool(tokens[0] == batch.first[row])
    if opens:
        empty = begin_with_empty_text(twice).batch.input_ids
        ids = torch.stack([twice.batch.input_ids[0], empty[1]])
        twice = replace(twice, batch=replace(twice.batch, input_ids=ids))
    return Game(twice, row, tokens, removal, opens)


def all_sets(players: int) -> Tensor:
    """[set, player] bool; the number of a set is that of its players as binary digits."""
    return (torch.arange(2**players)[:, None] >> torch.arange(players) & 1).bool()


def exact_values(game: Game) -> Tensor:
    """[part, player] from all sets: Shapley's own formula."""
    present = all_sets(game.size)
    worth, numbers, others = game.worth(present), torch.arange(len(present)), game.size - 1
    chances = torch.tensor([1 / (game.size * comb(others, size)) for size in range(game.size)], dtype=torch.float64)
    values: list[Tensor] = []
    for player in range(game.size):
        without = numbers[~present[:, player]]
        added = worth[:, without + 2**player] - worth[:, without]
        values.append((chances[present[without].sum(1)] * added).sum(1))
    return torch.stack(values, 1)


def random_keys(permutations: int, generator: torch.Generator) -> Tensor:
    """By which a token is put into its place in each order."""
    return torch.rand(permutations, generator=generator, dtype=torch.float64)


def there_and_back(keys: Tensor) -> Tensor:
    """[order, player] the place of each player, counted from 0, in the orders of these keys and in their reverses."""
    places = keys.argsort(1).argsort(1)
    return torch.cat([places, keys.shape[1] - 1 - places])


def mean_over_orders(game: Game, places: Tensor) -> Tensor:
    """[part, player] what each adds to those before it, in orders that are given as the players' places."""
    steps = torch.arange(game.size + 1)
    present = places[:, None, :] < steps[None, :, None]  # [order, step, player]
    worth = game.worth(present.flatten(0, 1)).unflatten(1, present.shape[:2])  # [part, order, step]
    return worth.diff(dim=2).gather(2, places.expand(len(worth), *places.shape)).mean(1)


def sets_wanted(samples: Any, players: int) -> int:
    return max(FEWEST, FOR_EACH * players) if samples is None else check_count(samples, "samples")


def kernel_sets(players: int, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sets [set, player] with their weights: neither the empty nor the full one, and of each also the complement.

    From the smallest and the largest inwards, all sets of a size are taken while drawing would give each of them once
    or more; the others are drawn in proportion to the kernel. With 2^players - 2 samples that is all sets.
    """
    sizes = range(1, players // 2 + 1)  # of the smaller one of each pair
    mass = torch.tensor([(1 if 2 * k == players else 2) / (k * (players - k)) for k in sizes], dtype=torch.float64)
    sets, weights = [torch.zeros(0, players, dtype=torch.bool)], [torch.zeros(0, dtype=torch.float64)]
    for size in sizes:
        count = comb(players, size) * (1 if 2 * size == players else 2)
        if count > samples * mass[size - 1] / mass[size - 1 :].sum():
            pairs = samples // 2
            sets.append(drawn_pairs(players, size, mass[size - 1 :], pairs, generator))
            weights.append((mass[size - 1 :].sum() / (2 * max(1, pairs))).expand(2 * pairs))
            break
        some = sets_of_size(players, size)
        sets.append(some if 2 * size == players else torch.cat([some, ~some]))
        weights.append((mass[size - 1] / count).expand(count))
        samples -= count
    return torch.cat(sets), torch.cat(weights)


def sets_of_size(players: int, size: int) -> Tensor:
    chosen = torch.tensor(list(combinations(range(players), size)))
    return torch.zeros(len(chosen), players, dtype=torch.bool).scatter_(1, chosen, True)


def drawn_pairs(players: int, smallest: int, mass: Tensor, pairs: int, generator: torch.Generator) -> Tensor:
    """[set, player] sets of a size of at least `smallest`, sizes by their mass, and then their complements."""
    if not pairs:
        return torch.zeros(0, players, dtype=torch.bool)
    sizes = smallest + mass.multinomial(pairs, replacement=True, generator=generator)
    order = torch.rand(pairs, players, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
    present = order < sizes[:, None]
    return torch.cat([present, ~present])


def weighted_fit(game: Game, present: Tensor, weights: Tensor) -> Tensor:
    """[part, player] values that add up to the worth of all, and fit that of the sets best by weighted least squares.

    The last player's value is what the others leave, which makes the constraint part of the fit.
    """
    ends = torch.tensor([[False], [True]]).expand(2, game.size)
    worth = game.worth(torch.cat([ends, present]))
    nothing, everything, worth = worth[:, 0], worth[:, 1], worth[:, 2:]
    change, there = everything - nothing, present.double()
    columns = there[:, :-1] - there[:, -1:]
    outcomes = worth - nothing[:, None] - there[:, -1] * change[:, None]
    root = weights.sqrt()[:, None]
    found, _, rank, _ = np.linalg.lstsq((root * columns).numpy(), (root * outcomes.T).numpy(), rcond=None)
    if rank < game.size - 1:
        raise RefusedValue(
            f"{len(present)} sets of tokens say too little about {game.size} tokens: take more samples, or None for "
            f"{sets_wanted(None, game.size)}"
        )
    first = torch.from_numpy(found).T  # [part, player]
    return torch.cat([first, change[:, None] - first.sum(1, keepdim=True)], 1)
