"""Gradients averaged over random points: around the embeddings of a text, or between those and other texts'."""

from collections.abc import Mapping
from math import ceil
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.methods import Attribution, ModelRuns, method
from tokenlight.methods.gradients import (
    baseline_embeddings,
    baseline_passes,
    check_steps,
    gradients_at,
    repeat_probe,
    steps_at_once,
    steps_together,
)
from tokenlight.model.behavior_probes import ordinary_ids
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.probe import Probe
from tokenlight.text.batch import Batch
from tokenlight.text.context_draws import by_token, check_seed

RANDOM = "vocabulary"  # the baseline of random tokens, drawn anew at every step


def count_passes(options: Mapping[str, Any]) -> int:
    """Passes that the steps of one text take."""
    return ceil(options["steps"] / steps_together(options, 1))


@method(
    title="SmoothGrad",
    paper="Smilkov et al. 2017",
    signed=True,
    cost="steps × (forward + backward)",
    model_runs=ModelRuns(
        passes=lambda options, tokens: count_passes(options),
        at_once=lambda options, texts, tokens: texts * steps_together(options, texts),
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
    for batch_steps in steps_at_once(probe, steps):
        noisy = embeddings + spread * normal_noise(probe, embeddings, seed, batch_steps)
        for part, gradients in enumerate(gradients_at(probe, noisy)):
            scores[part] += (embeddings * gradients.sum(0) / steps).sum(-1)
    return scores


@method(
    title="Expected Gradients",
    paper="Erion et al. 2021",
    signed=True,
    cost="steps × (2 forward + backward)",
    model_runs=ModelRuns(
        passes=lambda options, tokens: (
            count_passes(options)
            + (count_passes(options) if options["baseline"] == RANDOM else baseline_passes(options))
        ),
        at_once=lambda options, texts, tokens: texts * steps_together(options, texts),
        gradient=True,
        parts=True,
        baseline=lambda instrumented, batch, options: fixed_baseline(instrumented, batch, options["baseline"]),
    ),
)
def expected_gradients(probe: Probe, *, steps: int = 50, baseline: str | int = RANDOM, seed: int = 0) -> Attribution:
    """Gradient at random points of paths from random texts, times the path; "completeness" is the error of the sum.

    baseline: "vocabulary" replaces every token by a random one of the vocabulary, drawn anew at each step; or, as in
    integrated_gradients, "mask", "pad", "zero" or a token id.
    """
    embeddings = probe.instrumented.embed(probe.batch.input_ids)  # [batch, token, dim]
    alphas = random_fractions(check_steps(steps), seed).to(embeddings)
    fixed = fixed_baseline(probe.instrumented, probe.batch, baseline)
    vocabulary = torch.tensor(ordinary_ids(probe.instrumented.model))
    scores = embeddings.new_zeros(len(probe.parts), *embeddings.shape[:2])
    full = probe.scores_as_they_are()  # [part, batch]
    baseline_score = torch.zeros_like(full) if fixed is None else probe.scores_at_baseline(fixed)  # mean over the steps
    for batch_steps in steps_at_once(probe, steps):
        origins = random_texts(probe, vocabulary, seed, batch_steps) if fixed is None else fixed[None]
        paths = embeddings - origins  # [step, batch, token, dim]
        points = origins + alphas[batch_steps, None, None, None] * paths
        for part, gradients in enumerate(gradients_at(probe, points)):
            scores[part] += (paths * gradients).sum((0, -1)) / steps
        if fixed is None:
            step_scores = repeat_probe(probe, len(origins)).scores_at(origins.flatten(0, 1))  # [part, step * batch]
            baseline_score += step_scores.unflatten(1, origins.shape[:2]).sum(1) / steps
    return Attribution(scores, {"completeness": scores.sum(-1) - (full - baseline_score)})


def fixed_baseline(instrumented: InstrumentedModel, batch: Batch, baseline: str | int) -> Tensor | None:
    """Embeddings [batch, token, dim] of a fixed baseline; None for the random one."""
    return None if baseline == RANDOM else baseline_embeddings(instrumented, batch, baseline)


def random_fractions(steps: int, seed: int) -> Tensor:
    """Uniform random points of a path [step], as fractions of its length; the same for all texts."""
    return torch.rand(steps, generator=torch.Generator().manual_seed(check_seed(seed)), dtype=torch.float64)


def normal_noise(probe: Probe, like: Tensor, seed: int, batch_steps: slice) -> Tensor:
    """Standard normal numbers [step, batch, token, dim]; 0 for padding and special tokens, which are not changed."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.randn(like.shape[-1], generator=generator, dtype=torch.float32)

    return torch.stack([by_token(probe.batch, seed, step, draw) for step in steps_in(batch_steps)]).to(like)


def random_texts(probe: Probe, vocabulary: Tensor, seed: int, batch_steps: slice) -> Tensor:
    """Embeddings [step, batch, token, dim] of the texts with random tokens in place of all but the special ones."""
    ids = probe.batch.input_ids

    def draw(generator: torch.Generator) -> Tensor:
        return vocabulary[torch.randint(len(vocabulary), (), generator=generator)]

    drawn = torch.stack([by_token(probe.batch, seed, step, draw) for step in steps_in(batch_steps)]).to(ids)
    texts = torch.where(probe.batch.own, drawn, ids)
    return probe.instrumented.embed(texts.flatten(0, 1)).unflatten(0, texts.shape[:2])


def steps_in(batch_steps: slice) -> range:
    """The numbers of the steps of a batch."""
    return range(batch_steps.start, batch_steps.stop)


def check_noise(noise: Any) -> None:
    if not isinstance(noise, int | float) or not 0 <= noise < float("inf"):
        raise RefusedValue(f"noise is a share of the embeddings' range, a number of at least 0; found {noise!r}")
