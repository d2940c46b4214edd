"""LIME: a linear model of the probability, fitted to texts from which random sets of tokens or words are removed."""

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.methods import Attribution, ModelRuns, method
from tokenlight.methods.erasure import CHUNK
from tokenlight.methods.gradients import check_count
from tokenlight.methods.shapley import Game, shapley_values
from tokenlight.record.probe import Probe
from tokenlight.tasks.selectors import probability_minus_foil
from tokenlight.text import context_draws
from tokenlight.text.tokenized_text import Units

WIDTH = 25.0  # of the kernel, for cosine distances in hundredths, as in the release
PENALTY = 1.0  # of the ridge regression
PROBABILITY, SCORE = "probability", "score"


def removals(options: Mapping[str, Any], tokens: int) -> int:
    """Changed texts that the model runs on: all samples but the whole text, whose score is known."""
    return max(1, min(check_count(options["samples"], "samples"), 2**tokens) - 1)


@method(
    title="LIME",
    paper="Ribeiro et al. 2016",
    signed=True,
    cost="samples × forward",
    model_runs=ModelRuns(
        passes=lambda options, tokens: ceil(
            removals(options, tokens) / CHUNK
        ),  # at most: a set that is drawn again is not run again
        at_once=lambda options, texts, tokens: max(texts, min(CHUNK, removals(options, tokens))),
    ),
)
def lime(
    probe: Probe,
    *,
    samples: int = 1000,
    units: Units = "tokens",
    output: str = PROBABILITY,
    removal: str = "hide",
    seed: int = 0,
) -> Attribution:
    """Weights of a ridge regression of the probability on the presence of tokens, weighted by closeness to the text.

    output: "probability", or "score", the explained number. removal: as in erasure. The map "standard_error" has the
    standard errors of the weights over random samples.
    """
    if check_count(samples, "samples") == 1:
        raise RefusedValue(
            "samples is at least 2, found 1: the whole text is one of them, and others have to be compared with it"
        )
    if output not in (PROBABILITY, SCORE):
        raise RefusedValue(f"output is {PROBABILITY!r} or {SCORE!r}, found {output!r}")
    dtype = probe.scores_as_they_are().dtype
    numbers = unit_numbers(probe, units)
    errors = torch.zeros(numbers.shape, dtype=dtype)

    def values(game: Game) -> Tensor:
        """The weights of the tokens of a text, with equal shares for the tokens of a unit: [part, player]."""
        unit_of = numbers[game.row, game.tokens].cpu()  # [player]; -1: the token is never removed
        ids = game.probe.batch.input_ids[0][game.probe.batch.attention_mask[0].bool()]
        present = sample_sets(int(unit_of.max()) + 1, samples, context_draws.of_text(ids, seed))  # [sample, unit]
        always = torch.ones(len(present), 1, dtype=torch.bool)  # for tokens that are never removed
        outcomes = game.worth(torch.cat([present, always], 1)[:, unit_of])  # [part, sample]
        weights, uncertainty = weighted_ridge(present.double().numpy(), outcomes.T.numpy())
        size = unit_of[unit_of >= 0].bincount()[unit_of].double()  # [player] number of tokens of its unit
        token_errors = by_token(uncertainty, unit_of)[0] / size.sqrt()  # variances of a unit's tokens add up to its own
        errors[game.row, game.tokens.cpu()] = token_errors.to(dtype)
        return by_token(weights, unit_of) / size

    measured = probe.measuring(probability_minus_foil) if output == PROBABILITY else probe
    scores = shapley_values(measured, removal, values)[0].to(dtype)
    return Attribution(scores, maps={"standard_error": errors.to(scores.device)})


def unit_numbers(probe: Probe, units: Units) -> Tensor:
    """The number of each token's unit in its text [batch, token]; -1 for tokens that are never removed."""
    batch = probe.batch
    if units == "tokens":
        return torch.where(batch.own, batch.own.cumsum(1) - 1, -1)
    if units not in batch.units:
        raise RefusedValue(f"token ids alone have no {units}: give units='tokens', or explain a text")
    if bool(((batch.units[units] < 0) | ~batch.own).all(1).any()):
        raise RefusedValue(f"a text has no {units}: there is nothing to remove")
    return torch.where(batch.own, batch.units[units], -1)


def sample_sets(units: int, samples: int, generator: torch.Generator) -> Tensor:
    """Random sets of units that are kept, as booleans [sample, unit].

    The first set has all units. The number of removed units of the others is uniform from 1 to all, and all sets with
    that number are equally likely.
    """
    removed = torch.randint(1, units + 1, (samples - 1, 1), generator=generator)
    order = torch.rand(samples - 1, units, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
    return torch.cat([torch.ones(1, units, dtype=torch.bool), order >= removed])


def kernel(present: np.ndarray) -> np.ndarray:
    """exp(-d² / 2 width²) [sample], where d is 100 times the cosine distance to the whole text."""
    distance = 100 * (1 - np.sqrt(present.mean(1)))
    return np.exp(-(distance**2) / (2 * WIDTH**2))


def weighted_ridge(present: np.ndarray, outcomes: np.ndarray) -> tuple[Tensor, Tensor]:
    """Weights [part, unit] of a ridge regression, and their standard errors (White 1980).

    The regression has an intercept and is weighted by the kernel; `present` [sample, unit], `outcomes` [sample, part].
    """
    closeness = kernel(present)[:, None]
    columns = present - (closeness * present).sum(0) / closeness.sum()
    centered = outcomes - (closeness * outcomes).sum(0) / closeness.sum()
    inverse = np.linalg.inv(columns.T @ (closeness * columns) + PENALTY * np.eye(columns.shape[1]))
    weights = inverse @ columns.T @ (closeness * centered)  # [unit, part]
    residuals = closeness * (centered - columns @ weights)  # [sample, part]
    variance = np.square(inverse @ columns.T) @ np.square(residuals)
    return torch.from_numpy(weights.T), torch.from_numpy(np.sqrt(variance.T))


def by_token(values: Tensor, unit_of: Tensor) -> Tensor:
    """For each token the value of its unit [part, player], from values [part, unit]; 0 for tokens in no unit."""
    return torch.cat([values, values.new_zeros(len(values), 1)], 1)[:, unit_of]
