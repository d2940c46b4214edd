"""Ablation of words, sentences or documents, measured by the answer's probability.

A unit's score is divided evenly among its tokens, so that sums over sentences or documents are the measured values.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import ModelRuns, method
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import fix_positions
from tokenlight.record.probe import Probe
from tokenlight.tasks import task_of
from tokenlight.text.tokenized_text import Units, random_sets

CHUNK, TOKENS = 64, 8192  # changed texts in one batch, and their tokens
SWEEPS = 10_000  # limit of the sparse fit
CONVERGED = 1e-7  # change of weights in a sweep at which the fit ends, relative to the largest correlation
OUTPUTS = 2**24  # logits of one batch: 128 MB in double precision


def batch_size(texts: int, tokens: int) -> int:
    """The number of changed texts in one batch, for texts of this many tokens."""
    return max(1, min(CHUNK, TOKENS // tokens, texts))


@method(
    title="Leave-one-out",
    paper="Li et al. 2016; Cohen-Wang et al. 2024",
    signed=True,
    fits=lambda model: task_of(model).generates,
    cost="units × forward",
    model_runs=ModelRuns(
        passes=lambda options, tokens: ceil(tokens / batch_size(tokens, tokens)),  # at most: a unit for each token
        at_once=lambda options, texts, tokens: max(texts, batch_size(texts * tokens, tokens)),
        parts=True,
    ),
)
def leave_one_out(probe: Probe, *, units: Units = "sentences") -> Tensor:
    """How far the log-probability of a token or an answer falls when a unit of the text is deleted."""
    numbers = unit_numbers(probe, units)
    removals = [(row, unit) for row, own in enumerate(numbers) for unit in range(int(own.max()) + 1)]
    rows, removed_units = torch.tensor(removals, device=numbers.device).unbind(1)
    whole = probe.log_probabilities()  # [batch, part]
    drops = whole[rows] - log_probabilities(probe, rows, numbers[rows] == removed_units[:, None])
    return divide_among_tokens(numbers, removals, drops)


@method(
    title="ContextCite",
    paper="Cohen-Wang et al. 2024",
    signed=True,
    fits=lambda model: task_of(model).generates,
    cost="ablations × forward",
    model_runs=ModelRuns(
        passes=lambda options, tokens: ceil(options["ablations"] / batch_size(options["ablations"], tokens)),
        at_once=lambda options, texts, tokens: max(texts, batch_size(texts * options["ablations"], tokens)),
        parts=True,
    ),
)
def contextcite(
    probe: Probe, *, units: Units = "sentences", ablations: int = 64, alpha: float = 0.01, seed: int = 0
) -> Tensor:
    """Weights of a sparse linear model of ln(p / (1 − p)), fitted to texts with random halves of their units deleted.

    As in the release: standardized columns, the outcome divided by the number of the answer's tokens, L1 penalty α.
    """
    numbers = unit_numbers(probe, units)
    kept = [random_sets(int(own.max()) + 1, ablations, seed) for own in numbers]  # [ablation, unit] of each text
    rows = torch.arange(len(numbers), device=numbers.device).repeat_interleave(ablations)
    removed = torch.cat([~sets.to(own.device)[:, own] & (own >= 0) for sets, own in zip(kept, numbers, strict=True)])
    outcomes = log_odds(log_probabilities(probe, rows, removed)).view(len(numbers), ablations, -1).cpu()
    lengths = [torch.as_tensor(selector.tokens).expand(len(numbers)) for selector in probe.selectors]
    tokens = torch.stack(lengths, 1).double().cpu()  # [batch, part] of the answer
    fits = [
        tokens[row] * torch.from_numpy(sparse_fit(sets.double().numpy(), (outcomes[row] / tokens[row]).numpy(), alpha))
        for row, sets in enumerate(kept)
    ]  # [unit, part] of each text
    fitted_units = [(row, unit) for row, fit in enumerate(fits) for unit in range(len(fit))]
    return divide_among_tokens(numbers, fitted_units, torch.cat(fits))


def unit_numbers(probe: Probe, units: Units) -> Tensor:
    """The number of each token's unit in its text [batch, token]; -1 for tokens in no unit."""
    batch, model = probe.batch, probe.instrumented.model
    if not task_of(model).generates:
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a language model: units are deleted to measure the probability of an "
            "answer. Take erasure, which removes tokens"
        )
    if units in batch.units:
        numbers = batch.units[units]
    elif units == "tokens":
        numbers = torch.where(batch.own, batch.own.cumsum(1) - 1, -1)
    else:
        raise RefusedValue(f"token ids alone have no {units}: give units='tokens', or explain a text")
    if bool((numbers < 0).all(1).any()):
        raise RefusedValue(f"a text has no {units}: there is nothing to remove")
    return numbers


def log_probabilities(probe: Probe, rows: Tensor, removed: Tensor) -> Tensor:
    """Log-probabilities [change, part] of rows of the batch [change] without the tokens `removed` [change, token].

    The model runs once for equal changes.
    """
    distinct, indices = torch.cat([rows[:, None], removed.to(rows)], 1).unique(dim=0, return_inverse=True)
    return run_by_length(probe, distinct[:, 0], distinct[:, 1:].bool())[indices]


def run_by_length(probe: Probe, rows: Tensor, removed: Tensor) -> Tensor:
    """Log-probabilities [change, part] of distinct changes, in batches of equal or similar lengths."""
    lengths = (probe.batch.attention_mask[rows].bool() & ~removed).sum(1)
    equal_lengths = behavior_of(probe.instrumented).equal_lengths
    by_change: dict[int, Tensor] = {}  # [part]
    steps = 1 if probe.selectors[0].reads_at is None else probe.selectors[0].reads_at[0].numel()
    limit = max(1, OUTPUTS // (steps * probe.instrumented.model.config.get_text_config().vocab_size))
    for length in lengths.unique() if equal_lengths else [None]:
        ordered = lengths.argsort(dim=0, stable=True) if length is None else (lengths == length).nonzero()[:, 0]
        for changes in ordered.split(min(limit, batch_size(len(rows), removed.shape[1]))):
            shortened = delete_tokens(probe.rows(rows[changes]), removed[changes])
            by_change |= zip(changes.tolist(), shortened.log_probabilities(), strict=True)
    return torch.stack([by_change[change] for change in range(len(rows))])


def delete_tokens(probe: Probe, removed: Tensor) -> Probe:
    """The probe on texts without the tokens `removed` [batch, token].

    A text of which no token is left before the answer has the token that an empty text begins with.
    """
    batch, read = probe.batch, probe.selectors[0].reads_at
    if read is None:
        raise RefusedValue("a function of the output has no probability: name a target")
    first = read.reshape(len(removed), -1)[:, :1]
    kept = batch.attention_mask.bool() & ~removed
    empty = (kept.cumsum(1).gather(1, first) == 0).nonzero()[:, 0]
    if len(empty):
        if batch.start_id is None:
            raise RefusedValue("all tokens are removed, and the vocabulary has no token for an empty text")
        beginnings = (empty, batch.first[empty])
        ids = batch.input_ids.index_put(beginnings, batch.input_ids.new_tensor(batch.start_id))
        batch = replace(batch, input_ids=ids)
        removed = removed.index_put(beginnings, removed.new_tensor(False))
    short, positions = batch.without(removed)
    selectors = tuple(selector.moved(positions) for selector in probe.selectors)
    return replace(probe, batch=fix_positions(probe.instrumented.model, short), selectors=selectors)


def divide_among_tokens(numbers: Tensor, units: Sequence[tuple[int, int]], values: Tensor) -> Tensor:
    """Scores [part, batch, token] from values [unit, part]; a unit is (row, number of the unit in its text)."""
    scores = values.new_zeros(values.shape[1], *numbers.shape)
    for (row, unit), value in zip(units, values, strict=True):
        tokens = (numbers[row] == unit).nonzero()[:, 0].to(values.device)
        scores[:, row, tokens] = value[:, None] / len(tokens)
    return scores


def log_odds(log_p: Tensor) -> Tensor:
    """ln(p / (1 − p)) from ln p; ln p is at most minus the precision of its type, to keep the result finite."""
    log_p = log_p.clamp_max(-torch.finfo(log_p.dtype).eps)
    return log_p - (-torch.expm1(log_p)).log()


def sparse_fit(columns: np.ndarray, outcomes: np.ndarray, alpha: float) -> np.ndarray:
    """Weights [unit, part] that minimize |y − Xw|² / 2n + α |w|₁, by coordinate descent (Friedman et al. 2010).

    Columns X [set, unit] are standardized, outcomes y [set, part] are centered; each part has a fit of its own.
    """
    scale = columns.std(0)
    centered = (columns - columns.mean(0)) / np.where(scale == 0, 1, scale)
    products = centered.T @ centered / len(centered)  # [unit, unit]; 1 on the diagonal, 0 for a column that is constant
    target = centered.T @ (outcomes - outcomes.mean(0)) / len(centered)  # [unit, part]
    weights = np.zeros_like(target)
    for _ in range(SWEEPS):
        before = weights.copy()
        for unit in np.flatnonzero(scale):
            correlation = target[unit] - products[unit] @ weights + weights[unit]  # with the residual without the unit
            weights[unit] = np.sign(correlation) * np.maximum(np.abs(correlation) - alpha, 0)
        if np.abs(weights - before).max() <= CONVERGED * np.abs(target).max():
            return weights / np.where(scale == 0, 1, scale)[:, None]
    raise RefusedValue(f"the sparse fit did not converge in {SWEEPS} sweeps: take more ablations, or a larger alpha")
