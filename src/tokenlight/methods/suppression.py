"""AtMan: how far the target's likelihood falls when the attention scores to a token are lowered in all layers."""

from dataclasses import replace
from math import ceil, isfinite

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import ModelRuns, method
from tokenlight.methods.erasure import CHUNK
from tokenlight.model.hiding import hides_in_attention, shifts_scores_with_length
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.module_ops import attends_alone
from tokenlight.record.probe import Probe
from tokenlight.tasks.selectors import log_probability_minus_foil

LOG_PROBABILITY, SCORE = "log_probability", "score"
ROUNDING = 1e-9  # of a cosine


@method(
    title="AtMan",
    paper="Deiseroth et al. 2023",
    signed=True,
    fits=attends_alone,
    cost="tokens × forward",
    model_runs=ModelRuns(
        passes=lambda options, tokens: ceil(tokens / CHUNK),
        at_once=lambda options, texts, tokens: max(texts, min(CHUNK, texts * tokens)),
        written_out=True,
        parts=True,
    ),
    aliases=("Attention Manipulation",),
)
def atman(
    probe: Probe,
    *,
    factor: float = 0.9,
    similarity: float | None = None,
    shift: bool = False,
    output: str = LOG_PROBABILITY,
) -> Tensor:
    """How far the log-probability falls when attention scores to the token are multiplied by 1 - factor in all layers.

    similarity: scores to tokens whose embeddings have at least this cosine with the token's are multiplied as well, by
    1 - factor times the cosine. shift: the least score of a query is subtracted first, as in the release. output:
    "log_probability", or "score", the explained number.
    """
    check_options(factor, similarity, output)
    refuse_other_mixing(probe.instrumented)
    refuse_shifted_scores(probe.instrumented, shift)
    dtype = probe.scores_as_they_are().dtype
    measured = probe.measuring(log_probability_minus_foil) if output == LOG_PROBABILITY else probe
    full = measured.scores_as_they_are()  # [part, batch]
    scores = full.new_zeros(len(full), *probe.batch.input_ids.shape)
    rows, tokens = probe.batch.attention_mask.nonzero().unbind(1)
    factors = 1 - factor * token_similarities(probe, similarity)[rows, tokens]  # [change, token]
    scores[:, rows, tokens] = full[:, rows] - scores_with(measured, rows, factors, shift)
    return scores.to(dtype)


def scores_with(probe: Probe, rows: Tensor, factors: Tensor, shift: bool) -> Tensor:
    """Scores [part, change] of rows of the batch [change], attention scores times `factors` [change, token]."""
    chunks = []
    for changes in torch.arange(len(rows), device=rows.device).split(CHUNK):
        changed = probe.rows(rows[changes])
        chunks.append(changed.scores(replace(changed.batch, key_factors=factors[changes], shift_scores=shift)))
    return torch.cat(chunks, 1)


def token_similarities(probe: Probe, similarity: float | None) -> Tensor:
    """[batch, token, token]: 1 for a token and itself, the cosine if it is at least `similarity`, 0 for other pairs."""
    ids = probe.batch.input_ids
    identity = torch.eye(ids.shape[1], dtype=torch.float64, device=ids.device).expand(len(ids), -1, -1)
    if similarity is None:
        return identity
    directions = F.normalize(probe.instrumented.embed(ids).double(), dim=-1)
    cosines = (directions @ directions.mT).clamp(-1, 1).to(ids.device)
    cosines = cosines.where(cosines >= similarity - ROUNDING, 0.0)
    return identity.where(identity > 0, cosines)


def check_options(factor: float, similarity: float | None, output: str) -> None:
    """Refuse values of options that are out of range."""
    if not isfinite(factor) or factor > 1 or factor == 0:
        raise RefusedValue(
            f"factor is at most 1 (scores to the token become 0), negative to raise them, and not 0; found {factor!r}"
        )
    if similarity is not None and not 0 <= similarity <= 1:
        raise RefusedValue(f"similarity is a cosine from 0 to 1, or None for the token alone; found {similarity!r}")
    if output not in (LOG_PROBABILITY, SCORE):
        raise RefusedValue(f"output is {LOG_PROBABILITY!r} or {SCORE!r}, found {output!r}")


def refuse_other_mixing(instrumented: InstrumentedModel) -> None:
    """Refuse models in which tokens influence each other otherwise than through attention scores."""
    if not hides_in_attention(instrumented):
        raise UnsupportedModelError(
            f"in {type(instrumented.model).__name__}, tokens influence each other or the output by other ways than "
            "attention between them (a recurrence, a convolution, a mean over tokens, a choice of keys), or their "
            "attention scores cannot be changed: suppressing these would not suppress a token. Take erasure or "
            "shapley_sampling"
        )


def refuse_shifted_scores(instrumented: InstrumentedModel, shift: bool) -> None:
    """Refuse to multiply scores that depend on the length of the batch, unless they are counted from the least."""
    if not shift and shifts_scores_with_length(instrumented):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} adds a number to attention scores that depends on how long the batch "
            "is, which the softmax ignores, but not the factors of this method: scores would depend on padding and on "
            "later tokens. Take shift=True, which counts the scores of a query from the least that it sees"
        )
