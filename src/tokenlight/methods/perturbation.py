"""Take tokens away and see what happens; and the control that knows nothing."""

from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.methods import NEVER, Asking, method
from tokenlight.model.habits import reads_padding_at_hidden, sees_hidden
from tokenlight.model.inputs import fix_positions
from tokenlight.record.probe import Probe
from tokenlight.text import draws
from tokenlight.text.batches import Batch

CHUNK = 64  # changed texts that run together


@method(
    title="Erasure",
    paper="Zeiler & Fergus 2014; Li et al. 2016",
    signed=True,
    cost="tokens × forward",
    asks=Asking(
        passes=lambda options, tokens: 1 + ceil(tokens / CHUNK),  # the whole text, the changed ones
        together=lambda options, texts, tokens: max(texts, min(CHUNK, texts * tokens)),
        parts=True,
    ),
    control="erasure (a costly reference)",
    aliases=("Occlusion",),
)
def erasure(probe: Probe, *, how: str = "hide") -> Tensor:
    """How far the score falls without the token: how="hide" hides it from attention, "mask" or "pad" replace it."""
    check_how(probe, how)
    probe = with_fixed_positions(probe)
    full = probe.scores(probe.batch)  # [part, batch]
    scores = full.new_zeros(len(full), *probe.batch.input_ids.shape)
    rows, tokens = probe.batch.attention_mask.nonzero().unbind(1)
    gone = torch.zeros(len(rows), scores.shape[-1], dtype=torch.bool, device=rows.device)
    gone[torch.arange(len(rows)), tokens] = True
    by_length = how == "hide" and is_padded(probe.batch) and reads_padding_at_hidden(probe.twin)
    scores[:, rows, tokens] = full[:, rows] - scores_without(probe, rows, gone, how, by_length)
    return scores


def check_how(probe: Probe, how: str) -> None:
    """Whether tokens can be taken away like this."""
    if how != "hide" and replacement(probe.batch, how) is None:
        raise ValueError(f"how is 'hide', or 'mask' or 'pad' where the vocabulary has it; found {how!r}")
    if how == "hide" and sees_hidden(probe.twin):
        raise UnsupportedModelError(
            f"{type(probe.twin.model).__name__} reads tokens that attention_mask hides: hiding them takes nothing, or "
            "not all, away. Replace them instead: how='mask' or how='pad', where the vocabulary has it"
        )


def with_fixed_positions(probe: Probe) -> Probe:
    """A token that is gone must not move the others."""
    return replace(probe, batch=fix_positions(probe.twin.model, probe.batch))


def is_padded(batch: Batch) -> bool:
    return not bool(batch.attention_mask.all())


def scores_without(probe: Probe, rows: Tensor, gone: Tensor, how: str, by_length: bool) -> Tensor:
    """[part, change] of rows of the batch [change] without these of their tokens [change, token], many at once.

    With `by_length` only changes of texts of one length run together, and without padding: where a token that is
    hidden may look nowhere, it looks everywhere.
    """
    found: list[Tensor] = []
    lengths = probe.batch.lengths[rows] if by_length else torch.zeros_like(rows)
    places = [(lengths == length).nonzero()[:, 0] for length in lengths.unique()]
    for some in (chunk for place in places for chunk in place.split(CHUNK)):
        asked = probe.rows(rows[some])
        width = needed_width(asked) if by_length else gone.shape[1]
        batch = asked.batch.map(lambda tensor, width=width: tensor[:, :width])
        found.append(replace(asked, batch=batch).scores(take_away(batch, gone[some, :width], how)))
    return torch.cat(found, 1)[:, torch.cat(places).argsort()]


def needed_width(probe: Probe) -> int:
    """Up to the last token of any text, or to the last one that is read: an answer's own tokens may be hidden."""
    read = [int(choice.reads_at.max()) for choice in probe.choices if choice.reads_at is not None]
    return max(int(probe.batch.last.max()), *read, 0) + 1


def take_away(batch: Batch, gone: Tensor, how: str) -> Batch:
    """The batch without these tokens [batch, token]: hidden from attention, or replaced."""
    if how == "hide":
        return replace(batch, attention_mask=batch.attention_mask.masked_fill(gone, 0), hides=True)
    token = replacement(batch, how)
    assert token is not None
    return replace(batch, input_ids=batch.input_ids.masked_fill(gone, token))


def replacement(batch: Batch, how: str) -> int | None:
    return {"mask": batch.mask_id, "pad": batch.pad_id}.get(how)


@method(
    title="Random",
    paper="control",
    signed=True,
    class_specific=False,
    cost="none beyond the prediction",
    asks=NEVER,
    control="random scores",
)
def random(probe: Probe, *, seed: int = 0) -> Tensor:
    """Uniform in [-1, 1); the same text and seed give the same scores in any batch."""
    scores = torch.zeros(probe.batch.input_ids.shape)
    for i, (ids, real) in enumerate(zip(probe.batch.input_ids, probe.batch.attention_mask.bool(), strict=True)):
        drawn = torch.rand(int(real.sum()), generator=draws.of_text(ids[real], seed))
        scores[i, real.cpu()] = drawn * 2 - 1
    return scores
