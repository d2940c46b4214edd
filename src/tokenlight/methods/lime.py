"""LIME: a linear model of the probability, fitted to texts from which random sets of tokens or words are removed."""

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.methods import Asking, Attribution, method
from tokenlight.methods.gradients import check_count
from tokenlight.methods.perturbation import CHUNK
from tokenlight.methods.shapley import Game, shapley_values
from tokenlight.record.scorer import Probe
from tokenlight.tasks.selectors import probability_minus_foil
from tokenlight.text import removal as text_removal
from tokenlight.text.tokenized_text import Units

WIDTH = 25.0  # of the kernel, in hundredths of the cosine distance, as in the release
PENALTY = 1.0  # of the ridge regression
PROBABILITY, SCORE = "probability", "score"


def removals(options: Mapping[str, Any], tokens: int) -> int:
    """Texts that the model is asked about: the whole text is one of the samples, and its answer is known."""
    return max(1, min(check_count(options["samples"], "samples"), 2**tokens) - 1)


@method(
    title="LIME",
    paper="Ribeiro et al. 2016",
    signed=True,
    cost="samples × forward",
    asks=Asking(
        passes=lambda options, tokens: ceil(removals(options, tokens) / CHUNK),  # at most: no set is asked about twice
        together=lambda options, texts, tokens: max(texts, min(CHUNK, removals(options, tokens))),
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
    """Weights of a ridge regression of the probability on which tokens are there, near the text by its kernel.

    output: "probability", or "score", the explained number. how: as in erasure. The map "standard_error" says how
    far the weights would vary with other samples.
    """
    if check_count(samples, "samples") == 1:
        raise RefusedValue("samples is at least 2, found 1: the whole text is one of them, and it alone says nothing")
    if output not in (PROBABILITY, SCORE):
        raise RefusedValue(f"output is {PROBABILITY!r} or {SCORE!r}, found {output!r}")
    dtype = probe.scores_as_they_are().dtype
    numbers = unit_numbers(probe, units)
    errors = torch.zeros(numbers.shape, dtype=dtype)

    def values(game: Game) -> Tensor:
        """[part, player]"""
        unit_of = numbers[game.row, game.tokens].cpu()  # [player]; -1: the token always stays
        ids = game.probe.batch.input_ids[0][game.probe.batch.attention_mask[0].bool()]
        present = sample_sets(int(unit_of.max()) + 1, samples, text_removal.of_text(ids, seed))  # [sample, unit]
        stays = torch.ones(len(present), 1, dtype=torch.bool)
        outcomes = game.worth(torch.cat([present, stays], 1)[:, unit_of])  # [part, sample]
        weights, uncertainty = weighted_ridge(present.double().numpy(), outcomes.T.numpy())
        size = unit_of[unit_of >= 0].bincount()[unit_of].double()  # [player] tokens of its unit
        errors[game.row, game.tokens.cpu()] = (of_tokens(uncertainty, unit_of)[0] / size.sqrt()).to(
            dtype
        )  # squares add
        return of_tokens(weights, unit_of) / size

    asked = probe.measuring(probability_minus_foil) if output == PROBABILITY else probe
    scores = shapley_values(asked, removal, values)[0].to(dtype)
    return Attribution(scores, maps={"standard_error": errors.to(scores.device)})


def unit_numbers(probe: Probe, units: Units) -> Tensor:
    """[batch, token] the number of each token's unit in its text, -1 for tokens that always stay."""
    batch = probe.batch
    if units == "tokens":
        return torch.where(batch.own, batch.own.cumsum(1) - 1, -1)
    if units not in batch.units:
        raise RefusedValue(f"token ids alone have no {units}: give units='tokens', or explain a text")
    if bool(((batch.units[units] < 0) | ~batch.own).all(1).any()):
        raise RefusedValue(f"a text has no {units}: there is nothing to remove")
    return torch.where(batch.own, batch.units[units], -1)


def sample_sets(units: int, samples: int, generator: torch.Generator) -> Tensor:
    """[sample, unit] bool: which units stay. All of them; then sets from which 1 to all were removed, each number being
    equally likely, and each set of that number."""
    removed = torch.randint(1, units + 1, (samples - 1, 1), generator=generator)
    order = torch.rand(samples - 1, units, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
    return torch.cat([torch.ones(1, units, dtype=torch.bool), order >= removed])


def kernel(present: np.ndarray) -> np.ndarray:
    """[sample] exp(-d² / 2 width²), where d is the cosine distance to the whole text, times 100."""
    distance = 100 * (1 - np.sqrt(present.mean(1)))
    return np.exp(-(distance**2) / (2 * WIDTH**2))


def weighted_ridge(present: np.ndarray, outcomes: np.ndarray) -> tuple[Tensor, Tensor]:
    """Weights [part, unit] of a ridge regression with an intercept on sets [sample, unit] and outcomes [sample, part],
    and their standard errors (White 1980)."""
    near = kernel(present)[:, None]
    columns = present - (near * present).sum(0) / near.sum()
    rest = outcomes - (near * outcomes).sum(0) / near.sum()
    inverse = np.linalg.inv(columns.T @ (near * columns) + PENALTY * np.eye(columns.shape[1]))
    weights = inverse @ columns.T @ (near * rest)  # [unit, part]
    pulls = near * (rest - columns @ weights)  # [sample, part]
    variance = np.square(inverse @ columns.T) @ np.square(pulls)
    return torch.from_numpy(weights.T), torch.from_numpy(np.sqrt(variance.T))


def of_tokens(values: Tensor, unit_of: Tensor) -> Tensor:
    """[part, player] from values [part, unit]; 0 for tokens in no unit."""
    return torch.cat([values, values.new_zeros(len(values), 1)], 1)[:, unit_of]
