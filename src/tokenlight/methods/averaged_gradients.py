"""Gradients averaged over drawn points: around a text, or between it and other texts."""

from collections.abc import Mapping
from math import ceil
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.methods import Asking, Attribution, method
from tokenlight.methods.gradients import (
    alone,
    baseline_embeddings,
    check_steps,
    gradients_at,
    repeated,
    steps_at_once,
    steps_together,
)
from tokenlight.model.behavior_probes import ordinary_ids
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.scorer import Probe
from tokenlight.text import removal
from tokenlight.text.batch import Batch

DRAWN = "vocabulary"  # the baseline that is another one at every step


def rounds(options: Mapping[str, Any]) -> int:
    """Passes that the steps of one text take."""
    return ceil(options["steps"] / steps_together(options, 1))


@method(
    title="SmoothGrad",
    paper="Smilkov et al. 2017",
    signed=True,
    cost="steps × (forward + backward)",
    asks=Asking(
        passes=lambda options, tokens: rounds(options),
        together=lambda options, texts, tokens: texts * steps_together(options, texts),
        gradient=True,
        parts=True,
    ),
    aliases=("Smooth Gradient", "SmoothGrad x Input"),
)
def smooth_grad(probe: Probe, *, steps: int = 50, noise: float = 0.1, seed: int = 0) -> Tensor:
    """Gradient averaged over noisy copies of the embeddings, times embedding, summed over features.

    noise: the standard deviation, as a share of the range (largest minus smallest number) of the token's embedding.
    """
    check_noise(noise)
    embeddings = probe.instrumented.embed(probe.batch.input_ids)  # [batch, token, dim]
    spread = noise * (embeddings.amax(-1) - embeddings.amin(-1))[..., None]
    scores = embeddings.new_zeros(len(probe.parts), *embeddings.shape[:2])
    for some in steps_at_once(probe, steps):
        places = embeddings + spread * random_directions(probe, embeddings, seed, some)
        for part, gradients in enumerate(gradients_at(probe, places)):
            scores[part] += (embeddings * gradients.sum(0) / steps).sum(-1)
    return scores


@method(
    title="Expected Gradients",
    paper="Erion et al. 2021",
    signed=True,
    cost="steps × (2 forward + backward)",
    asks=Asking(
        passes=lambda options, tokens: (
            rounds(options) + (rounds(options) if options["baseline"] == DRAWN else alone(options))
        ),
        together=lambda options, texts, tokens: texts * steps_together(options, texts),
        gradient=True,
        parts=True,
        baseline=lambda instrumented, batch, options: fixed_baseline(instrumented, batch, options["baseline"]),
    ),
)
def expected_gradients(probe: Probe, *, steps: int = 50, baseline: str | int = DRAWN, seed: int = 0) -> Attribution:
    """Gradient at random places on the ways from random texts, times the way; "completeness" is what the sum misses.

    baseline: "vocabulary" puts another token of the vocabulary at every place and step; or, as in integrated_gradients,
    "mask", "pad", "zero" or a token id.
    """
    embeddings = probe.instrumented.embed(probe.batch.input_ids)  # [batch, token, dim]
    alphas = random_shares(check_steps(steps), seed).to(embeddings)
    fixed = fixed_baseline(probe.instrumented, probe.batch, baseline)
    vocabulary = torch.tensor(ordinary_ids(probe.instrumented.model))
    scores = embeddings.new_zeros(len(probe.parts), *embeddings.shape[:2])
    full = probe.scores_as_they_are()  # [part, batch]
    start = torch.zeros_like(full) if fixed is None else probe.scores_at_baseline(fixed)  # the mean over all baselines
    for some in steps_at_once(probe, steps):
        origins = random_texts(probe, vocabulary, seed, some) if fixed is None else fixed[None]
        ways = embeddings - origins  # [step, batch, token, dim]
        for part, gradients in enumerate(gradients_at(probe, origins + alphas[some, None, None, None] * ways)):
            scores[part] += (ways * gradients).sum((0, -1)) / steps
        if fixed is None:
            found = repeated(probe, len(origins)).scores_at(origins.flatten(0, 1))
            start += found.unflatten(1, origins.shape[:2]).sum(1) / steps
    return Attribution(scores, {"completeness": scores.sum(-1) - (full - start)})


def fixed_baseline(instrumented: InstrumentedModel, batch: Batch, baseline: str | int) -> Tensor | None:
    """[batch, token, dim], or None where it is another one at every step."""
    return None if baseline == DRAWN else baseline_embeddings(instrumented, batch, baseline)


def random_shares(steps: int, seed: int) -> Tensor:
    """[step] of the way, the same for all texts."""
    return torch.rand(steps, generator=torch.Generator().manual_seed(removal.check_seed(seed)), dtype=torch.float64)


def random_directions(probe: Probe, like: Tensor, seed: int, some: slice) -> Tensor:
    """[step, batch, token, dim] normal numbers; 0 for padding and for special tokens, which stay as they are."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.randn(like.shape[-1], generator=generator, dtype=torch.float32)

    return torch.stack([removal.by_token(probe.batch, seed, step, draw) for step in steps_in(some)]).to(like)


def random_texts(probe: Probe, vocabulary: Tensor, seed: int, some: slice) -> Tensor:
    """[step, batch, token, dim] the embeddings of tokens of the vocabulary; special tokens stay."""
    ids = probe.batch.input_ids

    def draw(generator: torch.Generator) -> Tensor:
        return vocabulary[torch.randint(len(vocabulary), (), generator=generator)]

    drawn = torch.stack([removal.by_token(probe.batch, seed, step, draw) for step in steps_in(some)]).to(ids)
    texts = torch.where(probe.batch.own, drawn, ids)
    return probe.instrumented.embed(texts.flatten(0, 1)).unflatten(0, texts.shape[:2])


def steps_in(some: slice) -> range:
    return range(some.start, some.stop)


def check_noise(noise: Any) -> None:
    if not isinstance(noise, int | float) or not 0 <= noise < float("inf"):
        raise RefusedValue(f"noise is a share of the embeddings' range, a number of at least 0; found {noise!r}")
