"""Take tokens away and see what happens; and the control that knows nothing."""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.methods import NEVER, Asking, method
from tokenlight.model.habits import reads_padding_at_hidden, sees_hidden
from tokenlight.model.inputs import fix_positions
from tokenlight.record.probe import Probe
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
    """How much the score falls without the token: how="hide" from attention, or replaced by "mask" or "pad"."""
    batch = fix_positions(probe.twin.model, probe.batch)  # a token that is gone must not move the others
    token = {"hide": 0, "mask": batch.mask_id, "pad": batch.pad_id}.get(how)
    if token is None:
        raise ValueError(f"how is 'hide', or 'mask' or 'pad' where the vocabulary has it; found {how!r}")
    if how == "hide" and sees_hidden(probe.twin):
        raise UnsupportedModelError(
            f"{type(probe.twin.model).__name__} reads tokens that attention_mask hides: hiding them takes nothing, or "
            "not all, away. Replace them instead: how='mask' or how='pad', where the vocabulary has it"
        )
    full = probe.scores(batch)  # [part, batch]
    scores = full.new_zeros(len(full), *batch.input_ids.shape)
    padded = not bool(batch.attention_mask.all())
    exact = how == "hide" and padded and reads_padding_at_hidden(probe.twin)
    for rows, tokens in changes_of(batch, exact):
        some = replace(probe, batch=batch).rows(rows)
        if exact:
            width = int(some.batch.attention_mask.any(0).nonzero().max()) + 1
            some = replace(some, batch=some.batch.map(lambda tensor, width=width: tensor[:, :width]))
        place = (torch.arange(len(rows)), tokens)
        if how == "hide":
            seen = some.batch.attention_mask.index_put(place, rows.new_tensor(0))
            changed = replace(some.batch, attention_mask=seen, hides=True)
        else:
            changed = replace(some.batch, input_ids=some.batch.input_ids.index_put(place, rows.new_tensor(token)))
        scores[:, rows, tokens] = full[:, rows] - some.scores(changed)
    return scores


def changes_of(batch: Batch, exact: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and tokens to change, those that run together; `exact`: only of texts of one length."""
    changes = batch.attention_mask.nonzero()  # [change, (row, token)]
    lengths = batch.lengths[changes[:, 0]] if exact else torch.zeros_like(changes[:, 0])
    for length in lengths.unique():
        of_length = changes[lengths == length]
        yield from zip(of_length[:, 0].split(CHUNK), of_length[:, 1].split(CHUNK), strict=True)


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
        text = ids[real].cpu().numpy().astype("<i8").tobytes()
        generator = torch.Generator().manual_seed(zlib.crc32(text) ^ seed)
        scores[i, real.cpu()] = torch.rand(int(real.sum()), generator=generator) * 2 - 1
    return scores
