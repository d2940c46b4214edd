"""Perturbation: scores from removing tokens, and a random control."""

from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import NEVER, Asking, method
from tokenlight.model.behavior_probes import sees_later_tokens
from tokenlight.model.config import fix_positions
from tokenlight.model.hiding import hide_tokens, reads_padding_at_hidden, sees_hidden
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.scorer import Probe
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.text import removal as text_removal
from tokenlight.text.batch import Batch, refuse_unembedded_role

CHUNK = 64  # changed texts that run together


@method(
    title="Erasure",
    paper="Zeiler & Fergus 2014; Li et al. 2016",
    signed=True,
    cost="tokens × forward",
    asks=Asking(
        passes=lambda options, tokens: ceil(tokens / CHUNK),
        together=lambda options, texts, tokens: max(texts, min(CHUNK, texts * tokens)),
        parts=True,
    ),
    control="erasure (a costly reference)",
    aliases=("Occlusion",),
)
def erasure(probe: Probe, *, removal: str = "hide") -> Tensor:
    """How far the score falls without the token: removal="hide" hides it from attention, "mask" or "pad" replace it.

    Where hiding would leave nothing to attend to, the first token is replaced by that of an empty text instead.
    """
    check_removal(probe, removal)
    probe = with_fixed_positions(probe)
    full = probe.scores_as_they_are()  # [part, batch]
    scores = full.new_zeros(len(full), *probe.batch.input_ids.shape)
    rows, tokens = probe.batch.attention_mask.nonzero().unbind(1)
    gone = torch.zeros(len(rows), scores.shape[-1], dtype=torch.bool, device=rows.device)
    gone[torch.arange(len(rows)), tokens] = True
    by_length = removal == "hide" and is_padded(probe.batch) and reads_padding_at_hidden(probe.instrumented)
    scores[:, rows, tokens] = full[:, rows] - scores_without(probe, rows, gone, removal, by_length)
    return scores


def check_removal(probe: Probe, removal: str) -> None:
    """Whether tokens can be taken away like this."""
    if removal != "hide" and replacement(probe.batch, removal) is None:
        raise RefusedValue(f"how is 'hide', or 'mask' or 'pad' where the vocabulary has it; found {removal!r}")
    if removal == "hide" and sees_hidden(probe.instrumented):
        raise UnsupportedModelError(
            f"{type(probe.instrumented.model).__name__} reads tokens that attention_mask hides: "
            "hiding them takes nothing, or "
            "not all, away. Replace them instead: removal='mask' or removal='pad', where the vocabulary has it"
        )


def with_fixed_positions(probe: Probe) -> Probe:
    """A token that is gone must not move the others."""
    return replace(probe, batch=fix_positions(probe.instrumented.model, probe.batch))


def is_padded(batch: Batch) -> bool:
    return not bool(batch.attention_mask.all())


def scores_without(probe: Probe, rows: Tensor, gone: Tensor, removal: str, by_length: bool) -> Tensor:
    """[part, change] of rows of the batch [change] without these of their tokens [change, token], many at once.

    With `by_length` only changes of texts of one length run together, and without padding: where a token that is
    hidden may look nowhere, it looks everywhere.
    """
    scores = scores_of_changes(probe, rows, gone, removal, by_length)
    if removal != "hide":
        return scores
    blind = torch.stack([sees_nothing(probe, part, rows, gone) for part in probe.parts])  # [part, change]
    if blind.any():
        changes = blind.any(0).nonzero()[:, 0]
        empty = begin_with_empty_text(probe)
        first = torch.nn.functional.one_hot(probe.batch.first[rows[changes]], gone.shape[1]).bool()
        replaced = scores_of_changes(empty, rows[changes], gone[changes] & ~first, removal, by_length)
        scores[:, changes] = torch.where(blind[:, changes], replaced, scores[:, changes])
    return scores


def scores_of_changes(probe: Probe, rows: Tensor, gone: Tensor, removal: str, by_length: bool) -> Tensor:
    """[part, change]"""
    found: list[Tensor] = []
    lengths = probe.batch.lengths[rows] if by_length else torch.zeros_like(rows)
    places = [(lengths == length).nonzero()[:, 0] for length in lengths.unique()]
    for some in (chunk for place in places for chunk in place.split(CHUNK)):
        asked = probe.rows(rows[some])
        width = needed_width(asked) if by_length else gone.shape[1]
        batch = asked.batch.map(lambda tensor, width=width: tensor[:, :width])
        found.append(
            replace(asked, batch=batch).scores(remove_tokens(asked.instrumented, batch, gone[some, :width], removal))
        )
    return torch.cat(found, 1)[:, torch.cat(places).argsort()]


def sees_nothing(probe: Probe, part: tuple[OutputSelector, ...], rows: Tensor, gone: Tensor) -> Tensor:
    """[change] whether a token that this part of the target is read at has no visible token to attend to.

    Attention with every key hidden is uniform over all of them, hidden tokens and padding included.
    """
    first_is_gone = gone.gather(1, probe.batch.first[rows, None])[:, 0]
    if not first_is_gone.any():  # every token that may be read still attends to the first one
        return first_is_gone
    visible = probe.batch.attention_mask[rows].bool() & ~gone
    if sees_later_tokens(probe.instrumented):
        return ~visible.any(1)
    read = [probe.first_read_by_function(selector) if selector.function else selector.first_read for selector in part]
    earliest = [position.to(rows.device)[rows] for position in read if position is not None]
    blind = [~visible.cumsum(1).gather(1, position[:, None])[:, 0].bool() for position in earliest]
    return torch.stack([~visible.any(1), *blind]).any(0)


def begin_with_empty_text(probe: Probe) -> Probe:
    """The first token of each text is the one that an empty text has."""
    ids, first = probe.batch.input_ids, probe.batch.first[:, None]
    return replace(probe, batch=replace(probe.batch, input_ids=ids.scatter(1, first, empty_text(probe.batch))))


def empty_text(batch: Batch) -> int:
    """The id that stands for a text without tokens."""
    known = (i for i in (batch.start_id, batch.pad_id, batch.mask_id) if i is not None)
    if (token := next(known, None)) is None:
        raise RefusedValue(
            "removal='hide' hides all tokens of a text at once, and the vocabulary has no token that "
            "an empty text begins "
            "with: name one in the model's configuration (bos_token_id or pad_token_id)"
        )
    return token


def needed_width(probe: Probe) -> int:
    """Up to the last token of any text, or to the last one that is read: an answer's own tokens may be hidden."""
    read = [int(selector.reads_at.max()) for selector in probe.selectors if selector.reads_at is not None]
    return max(int(probe.batch.last.max()), *read, 0) + 1


def remove_tokens(instrumented: InstrumentedModel, batch: Batch, gone: Tensor, removal: str) -> Batch:
    """The batch without these tokens [batch, token]: hidden from attention, or replaced."""
    if removal == "hide":
        return hide_tokens(instrumented, batch, gone)
    token = replacement(batch, removal)
    assert token is not None
    return replace(batch, input_ids=batch.input_ids.masked_fill(gone, token))


def replacement(batch: Batch, removal: str) -> int | None:
    if removal in batch.unembedded:
        refuse_unembedded_role(removal, batch.unembedded[removal])
    return {"mask": batch.mask_id, "pad": batch.pad_id}.get(removal)


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
        drawn = torch.rand(int(real.sum()), generator=text_removal.of_text(ids[real], seed), dtype=torch.float32)
        scores[i, real.cpu()] = drawn * 2 - 1
    return scores
