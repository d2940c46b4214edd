"""Shapley values: the mean, over sets of other tokens of the text, of what a token adds to the score.

In terms of game theory, the tokens are players, and the worth of a set of tokens is the explained score when the other
tokens are removed. Special tokens are never removed.
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
from tokenlight.methods import ModelRuns, method
from tokenlight.methods.erasure import (
    CHUNK,
    begin_with_empty_text,
    check_removal,
    is_padded,
    scores_without,
    with_fixed_positions,
)
from tokenlight.methods.gradients import check_count
from tokenlight.model.config import has_windows
from tokenlight.record.probe import Probe
from tokenlight.text import context_draws

FEWEST_SETS, SETS_FOR_EACH = 512, 16  # default number of sets of kernel_shap: at least, and for each token


def runs_on_sets(limit: Callable[[Mapping[str, Any], int], int], parts: bool) -> ModelRuns:
    """Model runs on sets of tokens: their number is at most `limit(options, tokens)`, and at most that of all sets."""

    def sets(options: Mapping[str, Any], tokens: int) -> int:
        return max(1, min(limit(options, tokens), 2**tokens) - 1)  # the score of the whole text is known

    return ModelRuns(
        passes=lambda options, tokens: ceil(sets(options, tokens) / CHUNK),
        at_once=lambda options, texts, tokens: max(texts, min(CHUNK, sets(options, tokens))),
        parts=parts,
    )


def sets_in_orders(permutations: Any, tokens: int) -> int:
    """The number of beginnings of random orders and their reverses; the empty and the full one are counted once."""
    return 2 * check_count(permutations, "permutations") * (tokens - 1) + 2


@method(
    title="Shapley Sampling",
    paper="Castro et al. 2009; Štrumbelj & Kononenko 2010",
    signed=True,
    cost="2 × permutations × tokens × forward",
    model_runs=runs_on_sets(lambda options, tokens: sets_in_orders(options["permutations"], tokens), parts=True),
    aliases=("Shapley Value Sampling",),
)
def shapley_sampling(probe: Probe, *, permutations: int = 10, removal: str = "hide", seed: int = 0) -> Tensor:
    """What a token adds to those before it, mean over random orders and their reverses; exact for short texts.

    removal: as in erasure.
    """
    check_count(permutations, "permutations")
    # Keys are drawn token by token, so that the orders of an answer's earlier tokens do not depend on later ones.
    keys = context_draws.by_token(probe.batch, seed, 0, lambda generator: random_keys(permutations, generator))

    def values(game: Game) -> Tensor:
        if 2**game.size <= sets_in_orders(permutations, game.size):  # computing all sets costs no more
            return exact_values(game)
        return mean_over_orders(game, with_reverses(keys[game.row, game.tokens.cpu()].T))

    return shapley_values(probe, removal, values)


@method(
    title="Kernel SHAP",
    paper="Lundberg & Lee 2017; Covert & Lee 2021",
    signed=True,
    cost="samples × forward",
    # Not for all parts of an answer at once: tokens after a part would get shares by the fit.
    model_runs=runs_on_sets(lambda options, tokens: set_count(options["samples"], tokens) + 2, parts=False),
    aliases=("KernelSHAP",),
)
def kernel_shap(probe: Probe, *, samples: int | None = None, removal: str = "hide", seed: int = 0) -> Tensor:
    """The additive model of the score that fits random sets of tokens best, weighted by the Shapley kernel.

    samples: the number of sets, complements included; None takes 16 for each token, at least 512. removal: as in
    erasure.
    """

    def values(game: Game) -> Tensor:
        batch = game.probe.batch
        generator = context_draws.of_text(batch.input_ids[0][batch.attention_mask[0].bool()], seed)
        return weighted_fit(game, *kernel_sets(game.size, set_count(samples, game.size), generator))

    return shapley_values(probe, removal, values)[0]


@dataclass(frozen=True)
class Game:
    """A text and its removable tokens, the players."""

    probe: Probe  # of two rows: the text, and the text with the first token of an empty text
    row: int  # of the text in its batch
    tokens: Tensor  # [player] the positions of the removable tokens
    removal: str
    replaces_first: bool  # the first token is removed by taking the second row of the probe

    @property
    def size(self) -> int:
        return len(self.tokens)

    def worth(self, present: Tensor) -> Tensor:
        """The worth [part, set] of sets of players [set, player], in double precision.

        The model runs once for each distinct set, and not for the whole text, whose score is known.
        """
        distinct, indices = present.unique(dim=0, return_inverse=True)
        whole = distinct.all(1)
        worth = self.probe.scores_as_they_are()[:, :1].double().cpu().repeat(1, len(distinct))
        if not whole.all():
            worth[:, ~whole] = self._scores(distinct[~whole])
        return worth[:, indices]

    def _scores(self, distinct: Tensor) -> Tensor:
        """The scores [part, set] of sets of players [set, player], by running the model."""
        width, device = self.probe.batch.input_ids.shape[1], self.tokens.device
        removed = torch.zeros(len(distinct), width, dtype=torch.bool, device=device)
        removed[:, self.tokens] = ~distinct.to(device)
        rows = torch.zeros(len(distinct), dtype=torch.long, device=device)
        if self.replaces_first:
            rows += removed[:, self.tokens[0]]
            removed[:, self.tokens[0]] = False
        by_length = self.removal == "hide" and is_padded(self.probe.batch)
        return scores_without(self.probe, rows, removed, self.removal, by_length).double().cpu()


def shapley_values(probe: Probe, removal: str, values: Callable[[Game], Tensor]) -> Tensor:
    """Scores [part, batch, token] from a function that computes the values [part, player] of one text."""
    check_removal(probe, removal)
    if removal == "hide" and has_windows(probe.instrumented.model) and bool((probe.batch.first > 0).any()):
        raise RefusedValue(
            f"{type(probe.instrumented.model).__name__} attends within windows: if all tokens of a window are hidden, "
            "it would attend to padding on the left. Pad on the right, or replace tokens: removal='mask' or "
            "removal='pad'"
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
    """The game of a text of the batch.

    If hiding could hide all tokens, the first is replaced by the one that an empty text begins with: attention with all
    keys hidden would attend to all of them.
    """
    batch, tokens = probe.batch, probe.batch.own[row].nonzero()[:, 0]
    twice = probe.rows(torch.tensor([row, row], device=batch.input_ids.device))
    replaces_first = removal == "hide" and len(tokens) > 0 and bool(tokens[0] == batch.first[row])
    if replaces_first:
        empty = begin_with_empty_text(twice).batch.input_ids
        ids = torch.stack([twice.batch.input_ids[0], empty[1]])
        twice = replace(twice, batch=replace(twice.batch, input_ids=ids))
    return Game(twice, row, tokens, removal, replaces_first)


def all_sets(players: int) -> Tensor:
    """All sets of players, as booleans [set, player]; the players are the binary digits of the set's index."""
    return (torch.arange(2**players)[:, None] >> torch.arange(players) & 1).bool()


def exact_values(game: Game) -> Tensor:
    """Shapley values [part, player] from all sets, by the definition."""
    present = all_sets(game.size)
    worth, indices, others = game.worth(present), torch.arange(len(present)), game.size - 1
    weights = torch.tensor([1 / (game.size * comb(others, size)) for size in range(game.size)], dtype=torch.float64)
    values: list[Tensor] = []
    for player in range(game.size):
        without = indices[~present[:, player]]
        added = worth[:, without + 2**player] - worth[:, without]
        values.append((weights[present[without].sum(1)] * added).sum(1))
    return torch.stack(values, 1)


def random_keys(permutations: int, generator: torch.Generator) -> Tensor:
    """Random sort keys of a token, one for each order."""
    return torch.rand(permutations, generator=generator, dtype=torch.float64)


def with_reverses(keys: Tensor) -> Tensor:
    """Ranks of players [2 * order, player], from 0, in the orders of sort keys [order, player] and their reverses."""
    ranks = keys.argsort(1).argsort(1)
    return torch.cat([ranks, keys.shape[1] - 1 - ranks])


def mean_over_orders(game: Game, ranks: Tensor) -> Tensor:
    """The mean of what each player adds to those before it [part, player], from ranks [order, player]."""
    steps = torch.arange(game.size + 1)
    present = ranks[:, None, :] < steps[None, :, None]  # [order, step, player]
    worth = game.worth(present.flatten(0, 1)).unflatten(1, present.shape[:2])  # [part, order, step]
    return worth.diff(dim=2).gather(2, ranks.expand(len(worth), *ranks.shape)).mean(1)


def set_count(samples: Any, players: int) -> int:
    """The number of sets of kernel_shap: `samples`, or the default for this many players."""
    return max(FEWEST_SETS, SETS_FOR_EACH * players) if samples is None else check_count(samples, "samples")


def kernel_sets(players: int, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sets [set, player] and their weights: each set with its complement, without the empty and the full set.

    Sizes are treated from 1 upwards, each with its complementary size. All sets of a size are taken as long as random
    draws would contain each of them once or more in the mean; other sets are drawn in proportion to the kernel. With
    2^players - 2 samples, the result has all sets.
    """
    sizes = range(1, players // 2 + 1)  # of the smaller set of each pair
    mass = torch.tensor([(1 if 2 * k == players else 2) / (k * (players - k)) for k in sizes], dtype=torch.float64)
    sets, weights = [torch.zeros(0, players, dtype=torch.bool)], [torch.zeros(0, dtype=torch.float64)]
    for size in sizes:
        count = comb(players, size) * (1 if 2 * size == players else 2)
        if count > samples * mass[size - 1] / mass[size - 1 :].sum():
            pairs = samples // 2
            sets.append(draw_pairs(players, size, mass[size - 1 :], pairs, generator))
            weights.append((mass[size - 1 :].sum() / (2 * max(1, pairs))).expand(2 * pairs))
            break
        all_of_size = sets_of_size(players, size)
        sets.append(all_of_size if 2 * size == players else torch.cat([all_of_size, ~all_of_size]))
        weights.append((mass[size - 1] / count).expand(count))
        samples -= count
    return torch.cat(sets), torch.cat(weights)


def sets_of_size(players: int, size: int) -> Tensor:
    """All sets of this many players, as booleans [set, player]."""
    chosen = torch.tensor(list(combinations(range(players), size)))
    return torch.zeros(len(chosen), players, dtype=torch.bool).scatter_(1, chosen, True)


def draw_pairs(players: int, smallest: int, mass: Tensor, pairs: int, generator: torch.Generator) -> Tensor:
    """Random sets, then their complements [2 * pairs, player]; `mass` weights their sizes, from `smallest` upwards."""
    if not pairs:
        return torch.zeros(0, players, dtype=torch.bool)
    sizes = smallest + mass.multinomial(pairs, replacement=True, generator=generator)
    order = torch.rand(pairs, players, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
    present = order < sizes[:, None]
    return torch.cat([present, ~present])


def weighted_fit(game: Game, present: Tensor, weights: Tensor) -> Tensor:
    """Values [part, player] that fit the worth of the sets by weighted least squares and add up to the worth of all.

    The constraint is part of the fit: the last player's value is the total minus the others' values.
    """
    ends = torch.tensor([[False], [True]]).expand(2, game.size)
    worth = game.worth(torch.cat([ends, present]))
    empty, full, worth = worth[:, 0], worth[:, 1], worth[:, 2:]
    total, indicators = full - empty, present.double()
    columns = indicators[:, :-1] - indicators[:, -1:]
    outcomes = worth - empty[:, None] - indicators[:, -1] * total[:, None]
    root = weights.sqrt()[:, None]
    solution, _, rank, _ = np.linalg.lstsq((root * columns).numpy(), (root * outcomes.T).numpy(), rcond=None)
    if rank < game.size - 1:
        raise RefusedValue(
            f"{len(present)} sets of tokens do not determine the values of {game.size} tokens: take more samples, or "
            f"None for "
            f"{set_count(None, game.size)}"
        )
    first = torch.from_numpy(solution).T  # [part, player], without the last player
    return torch.cat([first, total[:, None] - first.sum(1, keepdim=True)], 1)
