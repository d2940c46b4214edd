"""Ablation of words, sentences or documents, measured by the answer's probability.

A unit's score is spread evenly over its tokens, so that sums over sentences or sources are what was measured.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import Asking, method
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import fix_positions
from tokenlight.record.scorer import Probe
from tokenlight.tasks import task_of
from tokenlight.text.tokenized_text import Units, random_sets

CHUNK, TOKENS = 64, 8192  # changed texts, and their tokens, that run together
SWEEPS, CONVERGED = (
    10_000,
    1e-7,
)  # of the sparse fit: at most so often, until weights move by no more of the largest pull
OUTPUTS = 2**24  # numbers that the model may answer with at once: 128 MB in double precision


def at_once(texts: int, tokens: int) -> int:
    return max(1, min(CHUNK, TOKENS // tokens, texts))


@method(
    title="Leave-one-out",
    paper="Li et al. 2016; Cohen-Wang et al. 2024",
    signed=True,
    fits=lambda model: task_of(model).reads_on,
    cost="units × forward",
    asks=Asking(
        passes=lambda options, tokens: ceil(tokens / at_once(tokens, tokens)),  # at most: a unit for each token
        together=lambda options, texts, tokens: max(texts, at_once(texts * tokens, tokens)),
        parts=True,
    ),
)
def leave_one_out(probe: Probe, *, units: Units = "sentences") -> Tensor:
    """How far the log-probability of a token or an answer falls when a unit of the text is deleted."""
    numbers = numbers_of(probe, units)
    places = [(row, unit) for row, line in enumerate(numbers) for unit in range(int(line.max()) + 1)]
    rows, taken = torch.tensor(places, device=numbers.device).unbind(1)
    whole = probe.log_probabilities()  # [batch, part]
    falls = whole[rows] - log_probabilities(probe, rows, numbers[rows] == taken[:, None])
    return spread(numbers, places, falls)


@method(
    title="ContextCite",
    paper="Cohen-Wang et al. 2024",
    signed=True,
    fits=lambda model: task_of(model).reads_on,
    cost="ablations × forward",
    asks=Asking(
        passes=lambda options, tokens: ceil(options["ablations"] / at_once(options["ablations"], tokens)),
        together=lambda options, texts, tokens: max(texts, at_once(texts * options["ablations"], tokens)),
        parts=True,
    ),
)
def contextcite(
    probe: Probe, *, units: Units = "sentences", ablations: int = 64, alpha: float = 0.01, seed: int = 0
) -> Tensor:
    """Weights of a sparse linear model of ln(p / (1 − p)), fitted to texts with random halves of their units deleted.

    As in the release: standardized columns, the outcome divided by the number of the answer's tokens, L1 penalty α.
    """
    numbers = numbers_of(probe, units)
    kept = [random_sets(int(line.max()) + 1, ablations, seed) for line in numbers]  # [ablation, unit] of each text
    rows = torch.arange(len(numbers), device=numbers.device).repeat_interleave(ablations)
    gone = torch.cat([~sets.to(line.device)[:, line] & (line >= 0) for sets, line in zip(kept, numbers, strict=True)])
    found = log_odds(log_probabilities(probe, rows, gone)).view(len(numbers), ablations, -1).cpu()
    tokens = (
        torch.stack([torch.as_tensor(one.tokens).expand(len(numbers)) for one in probe.selectors], 1).double().cpu()
    )
    fits = [
        tokens[row] * torch.from_numpy(sparse_fit(sets.double().numpy(), (found[row] / tokens[row]).numpy(), alpha))
        for row, sets in enumerate(kept)
    ]  # [unit, part] of each text
    places = [(row, unit) for row, fit in enumerate(fits) for unit in range(len(fit))]
    return spread(numbers, places, torch.cat(fits))


def numbers_of(probe: Probe, units: Units) -> Tensor:
    """[batch, token] the number of each token's unit, -1 where it is in none."""
    batch, model = probe.batch, probe.instrumented.model
    if not task_of(model).reads_on:
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a language model: units are deleted to see how likely an answer remains. "
            "Take erasure, which asks about tokens"
        )
    if units in batch.units:
        found = batch.units[units]
    elif units == "tokens":
        found = torch.where(batch.own, batch.own.cumsum(1) - 1, -1)
    else:
        raise RefusedValue(f"token ids alone have no {units}: give units='tokens', or explain a text")
    if bool((found < 0).all(1).any()):
        raise RefusedValue(f"a text has no {units}: there is nothing to take away")
    return found


def log_probabilities(probe: Probe, rows: Tensor, gone: Tensor) -> Tensor:
    """[change, part] of texts of the batch without these tokens [change, token]; what occurs twice is asked once."""
    distinct, places = torch.cat([rows[:, None], gone.to(rows)], 1).unique(dim=0, return_inverse=True)
    return ask(probe, distinct[:, 0], distinct[:, 1:].bool())[places]


def ask(probe: Probe, rows: Tensor, gone: Tensor) -> Tensor:
    """[change, part], similar lengths together."""
    lengths = (probe.batch.attention_mask[rows].bool() & ~gone).sum(1)
    exact = behavior_of(probe.instrumented).equal_lengths
    found: dict[int, Tensor] = {}
    steps = 1 if probe.selectors[0].reads_at is None else probe.selectors[0].reads_at[0].numel()
    most = max(1, OUTPUTS // (steps * probe.instrumented.model.config.get_text_config().vocab_size))
    for group in lengths.unique() if exact else [None]:
        places = lengths.argsort(dim=0, stable=True) if group is None else (lengths == group).nonzero()[:, 0]
        for some in places.split(min(most, at_once(len(rows), gone.shape[1]))):
            found |= zip(some.tolist(), shortened(probe.rows(rows[some]), gone[some]).log_probabilities(), strict=True)
    return torch.stack([found[i] for i in range(len(rows))])


def shortened(probe: Probe, gone: Tensor) -> Probe:
    """The question on the texts that are left; where nothing is left to go on from, on the token for an empty text."""
    batch, read = probe.batch, probe.selectors[0].reads_at
    if read is None:
        raise RefusedValue("a function of the output has no probability: name a target")
    first = read.reshape(len(gone), -1)[:, :1]
    stay = batch.attention_mask.bool() & ~gone
    empty = (stay.cumsum(1).gather(1, first) == 0).nonzero()[:, 0]
    if len(empty):
        if batch.start_id is None:
            raise RefusedValue("every token is taken away, and the vocabulary has no token for an empty text")
        place = (empty, batch.first[empty])
        batch = replace(batch, input_ids=batch.input_ids.index_put(place, batch.input_ids.new_tensor(batch.start_id)))
        gone = gone.index_put(place, gone.new_tensor(False))
    short, places = batch.without(gone)
    selectors = tuple(selector.moved(places) for selector in probe.selectors)
    return replace(probe, batch=fix_positions(probe.instrumented.model, short), selectors=selectors)


def spread(numbers: Tensor, places: Sequence[tuple[int, int]], values: Tensor) -> Tensor:
    """[part, batch, token] from the values [place, part] of units, each at (row, number of the unit)."""
    scores = values.new_zeros(values.shape[1], *numbers.shape)
    for (row, unit), value in zip(places, values, strict=True):
        tokens = (numbers[row] == unit).nonzero()[:, 0].to(values.device)
        scores[:, row, tokens] = value[:, None] / len(tokens)
    return scores


def log_odds(log_p: Tensor) -> Tensor:
    """ln(p / (1 − p)); a p that cannot be told from 1 counts as one rounding less."""
    log_p = log_p.clamp_max(-torch.finfo(log_p.dtype).eps)
    return log_p - (-torch.expm1(log_p)).log()


def sparse_fit(columns: np.ndarray, outcomes: np.ndarray, alpha: float) -> np.ndarray:
    """Weights [unit, part] that minimize |y − Xw|² / 2n + α |w|₁ for each part, with an intercept, on standardized
    columns [set, unit] and outcomes [set, part]; by coordinate descent (Friedman et al. 2010)."""
    scale = columns.std(0)
    centered = (columns - columns.mean(0)) / np.where(scale == 0, 1, scale)
    products = centered.T @ centered / len(centered)  # [unit, unit]; 1 on the diagonal, 0 for a column that is constant
    target = centered.T @ (outcomes - outcomes.mean(0)) / len(centered)  # [unit, part]
    weights = np.zeros_like(target)
    for _ in range(SWEEPS):
        before = weights.copy()
        for unit in np.flatnonzero(scale):
            pull = target[unit] - products[unit] @ weights + weights[unit]
            weights[unit] = np.sign(pull) * np.maximum(np.abs(pull) - alpha, 0)
        if np.abs(weights - before).max() <= CONVERGED * np.abs(target).max():
            return weights / np.where(scale == 0, 1, scale)[:, None]
    raise RefusedValue(f"the sparse fit did not settle in {SWEEPS} sweeps: take more ablations, or a larger alpha")
