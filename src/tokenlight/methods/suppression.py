"""AtMan: lower the attention that a token gets everywhere, and see how far the answer's likelihood falls."""

from dataclasses import replace
from math import ceil, isfinite

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import Asking, method
from tokenlight.methods.perturbation import CHUNK
from tokenlight.model.hiding import hides_in_attention
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.module_ops import attends_alone
from tokenlight.record.scorer import Probe
from tokenlight.tasks.selectors import log_probability_minus_foil

LOG_PROBABILITY, SCORE = "log_probability", "score"
ROUNDING = 1e-9  # of a cosine


@method(
    title="AtMan",
    paper="Deiseroth et al. 2023",
    signed=True,
    fits=attends_alone,
    cost="tokens × forward",
    asks=Asking(
        passes=lambda options, tokens: ceil(tokens / CHUNK),
        together=lambda options, texts, tokens: max(texts, min(CHUNK, texts * tokens)),
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
    """How far the log-probability falls when attention scores to the token are multiplied with 1 - factor everywhere.

    similarity: also those to tokens whose embeddings have at least this cosine with the token's, with the factor times
    the cosine. shift: scores of a query are counted from their least, as in the release. output: "score" for the
    explained number.
    """
    check_options(factor, similarity, output)
    refuse_other_ways(probe.instrumented)
    dtype = probe.scores_as_they_are().dtype
    asked = probe.measuring(log_probability_minus_foil) if output == LOG_PROBABILITY else probe
    full = asked.scores_as_they_are()  # [part, batch]
    scores = full.new_zeros(len(full), *probe.batch.input_ids.shape)
    rows, tokens = probe.batch.attention_mask.nonzero().unbind(1)
    factors = 1 - factor * kinship(probe, similarity)[rows, tokens]  # [change, token]
    scores[:, rows, tokens] = full[:, rows] - scores_with(asked, rows, factors, shift)
    return scores.to(dtype)


def scores_with(probe: Probe, rows: Tensor, factors: Tensor, shift: bool) -> Tensor:
    """[part, change] of rows of the batch [change] whose keys have these factors [change, token], many at once."""
    found = []
    for some in torch.arange(len(rows), device=rows.device).split(CHUNK):
        asked = probe.rows(rows[some])
        found.append(asked.scores(replace(asked.batch, key_factors=factors[some], shift_scores=shift)))
    return torch.cat(found, 1)


def kinship(probe: Probe, similarity: float | None) -> Tensor:
    """[batch, token, token]: 1 for the token itself, the cosine for tokens that are similar enough, 0 for others."""
    ids = probe.batch.input_ids
    itself = torch.eye(ids.shape[1], dtype=torch.float64, device=ids.device).expand(len(ids), -1, -1)
    if similarity is None:
        return itself
    directions = F.normalize(probe.instrumented.embed(ids).double(), dim=-1)
    cosines = (directions @ directions.mT).clamp(-1, 1).to(ids.device)
    cosines = cosines.where(cosines >= similarity - ROUNDING, 0.0)
    return itself.where(itself > 0, cosines)


def check_options(factor: float, similarity: float | None, output: str) -> None:
    if not isfinite(factor) or factor > 1 or factor == 0:
        raise RefusedValue(
            f"factor is at most 1 (scores to the token become 0), negative to raise them, and not 0; found {factor!r}"
        )
    if similarity is not None and not 0 <= similarity <= 1:
        raise RefusedValue(f"similarity is a cosine from 0 to 1, or None for the token alone; found {similarity!r}")
    if output not in (LOG_PROBABILITY, SCORE):
        raise RefusedValue(f"output is {LOG_PROBABILITY!r} or {SCORE!r}, found {output!r}")


def refuse_other_ways(instrumented: InstrumentedModel) -> None:
    if not hides_in_attention(instrumented):
        raise UnsupportedModelError(
            f"in {type(instrumented.model).__name__}, tokens reach each other or the answer by other "
            "ways than attention "
            "between them (a recurrence, a convolution, a mean over tokens, a choice of keys), or their attention "
            "scores cannot be changed: suppressing these would not suppress a token. Take erasure or shapley_sampling"
        )
