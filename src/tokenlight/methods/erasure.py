"""Methods that remove tokens, and random scores as a control."""

from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import NO_RUNS, ModelRuns, method
from tokenlight.model.behavior_probes import sees_later_tokens
from tokenlight.model.config import fix_positions
from tokenlight.model.hiding import hidden_tokens_affect_others, hide_tokens, reads_padding_at_hidden
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.probe import Probe
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.text import context_draws
from tokenlight.text.batch import Batch, refuse_unembedded_role

CHUNK = 64  # changed texts in one batch


@method(
    title="Erasure",
    paper="Zeiler & Fergus 2014; Li et al. 2016",
    signed=True,
    cost="tokens × forward",
    model_runs=ModelRuns(
        passes=lambda options, tokens: ceil(tokens / CHUNK),
        at_once=lambda options, texts, tokens: max(texts, min(CHUNK, texts * tokens)),
        parts=True,
    ),
    control="erasure (a costly reference)",
    aliases=("Occlusion",),
)
def erasure(probe: Probe, *, removal: str = "hide") -> Tensor:
    """How far the score falls without the token: removal="hide" hides it from attention, "mask" or "pad" replace it.

    If no token would be left to attend to, the first token is replaced by the one that an empty text begins with.
    """
    check_removal(probe, removal)
    probe = with_fixed_positions(probe)
    full = probe.scores_as_they_are()  # [part, batch]
    scores = full.new_zeros(len(full), *probe.batch.input_ids.shape)
    rows, tokens = probe.batch.attention_mask.nonzero().unbind(1)
    removed = torch.zeros(len(rows), scores.shape[-1], dtype=torch.bool, device=rows.device)
    removed[torch.arange(len(rows)), tokens] = True
    by_length = removal == "hide" and is_padded(probe.batch) and reads_padding_at_hidden(probe.instrumented)
    scores[:, rows, tokens] = full[:, rows] - scores_without(probe, rows, removed, removal, by_length)
    return scores


def check_removal(probe: Probe, removal: str) -> None:
    """Refuse a removal that the vocabulary or the model does not allow."""
    if removal != "hide" and replacement(probe.batch, removal) is None:
        raise RefusedValue(f"removal is 'hide', or 'mask' or 'pad' if the vocabulary has it; found {removal!r}")
    if removal == "hide" and hidden_tokens_affect_others(probe.instrumented):
        raise UnsupportedModelError(
            f"{type(probe.instrumented.model).__name__} reads tokens that attention_mask hides: hiding does not remove "
            "them, or not completely. Replace them: removal='mask' or removal='pad', if the vocabulary has it"
        )


def with_fixed_positions(probe: Probe) -> Probe:
    """The probe with fixed position ids, so that removing a token does not shift the others."""
    return replace(probe, batch=fix_positions(probe.instrumented.model, probe.batch))


def is_padded(batch: Batch) -> bool:
    return not bool(batch.attention_mask.all())


def scores_without(probe: Probe, rows: Tensor, removed: Tensor, removal: str, by_length: bool) -> Tensor:
    """Scores [part, change] of rows of the batch [change] without the tokens `removed` [change, token].

    With `by_length`, batches have changes of texts of equal length, without padding: a hidden token without any visible
    key would attend to padding as well.
    """
    scores = scores_of_changes(probe, rows, removed, removal, by_length)
    if removal != "hide":
        return scores
    unseeing = torch.stack([lacks_visible_tokens(probe, part, rows, removed) for part in probe.parts])  # [part, change]
    if unseeing.any():
        changes = unseeing.any(0).nonzero()[:, 0]
        empty = begin_with_empty_text(probe)
        first = torch.nn.functional.one_hot(probe.batch.first[rows[changes]], removed.shape[1]).bool()
        replaced = scores_of_changes(empty, rows[changes], removed[changes] & ~first, removal, by_length)
        scores[:, changes] = torch.where(unseeing[:, changes], replaced, scores[:, changes])
    return scores


def scores_of_changes(probe: Probe, rows: Tensor, removed: Tensor, removal: str, by_length: bool) -> Tensor:
    """Scores [part, change], as in `scores_without`, for texts in which a token stays visible."""
    chunks: list[Tensor] = []
    lengths = probe.batch.lengths[rows] if by_length else torch.zeros_like(rows)
    groups = [(lengths == length).nonzero()[:, 0] for length in lengths.unique()]  # changes of each length
    for changes in (chunk for group in groups for chunk in group.split(CHUNK)):
        changed = probe.rows(rows[changes])
        width = needed_width(changed) if by_length else removed.shape[1]
        batch = changed.batch.map(lambda tensor, width=width: tensor[:, :width])
        without = remove_tokens(changed.instrumented, batch, removed[changes, :width], removal)
        chunks.append(replace(changed, batch=batch).scores(without))
    return torch.cat(chunks, 1)[:, torch.cat(groups).argsort()]


def lacks_visible_tokens(probe: Probe, part: tuple[OutputSelector, ...], rows: Tensor, removed: Tensor) -> Tensor:
    """Whether a token that this part of the target is read at has no visible token to attend to, [change].

    Attention with all keys hidden is uniform over all of them, including hidden tokens and padding.
    """
    first_is_removed = removed.gather(1, probe.batch.first[rows, None])[:, 0]
    if not first_is_removed.any():  # then every token can attend to the first one
        return first_is_removed
    visible = probe.batch.attention_mask[rows].bool() & ~removed
    if sees_later_tokens(probe.instrumented):
        return ~visible.any(1)
    read = [probe.first_read_by_function(selector) if selector.function else selector.first_read for selector in part]
    earliest = [position.to(rows.device)[rows] for position in read if position is not None]
    unseeing = [~visible.cumsum(1).gather(1, position[:, None])[:, 0].bool() for position in earliest]
    return torch.stack([~visible.any(1), *unseeing]).any(0)


def begin_with_empty_text(probe: Probe) -> Probe:
    """The probe with the first token of each text replaced by the one that an empty text begins with."""
    ids, first = probe.batch.input_ids, probe.batch.first[:, None]
    return replace(probe, batch=replace(probe.batch, input_ids=ids.scatter(1, first, empty_text(probe.batch))))


def empty_text(batch: Batch) -> int:
    """The id that an empty text begins with: the start token, or else the padding or the mask token."""
    known = (i for i in (batch.start_id, batch.pad_id, batch.mask_id) if i is not None)
    if (token := next(known, None)) is None:
        raise RefusedValue(
            "removal='hide' hides all tokens of a text at once, and the vocabulary has no token that an empty text "
            "begins with: name one in the model's configuration (bos_token_id or pad_token_id)"
        )
    return token


def needed_width(probe: Probe) -> int:
    """The number of columns up to the last token of any text or, if it is later, the last position that is read."""
    read = [int(selector.reads_at.max()) for selector in probe.selectors if selector.reads_at is not None]
    return max(int(probe.batch.last.max()), *read, 0) + 1


def remove_tokens(instrumented: InstrumentedModel, batch: Batch, removed: Tensor, removal: str) -> Batch:
    """The batch without these tokens [batch, token]: hidden from attention, or replaced."""
    if removal == "hide":
        return hide_tokens(instrumented, batch, removed)
    token = replacement(batch, removal)
    assert token is not None
    return replace(batch, input_ids=batch.input_ids.masked_fill(removed, token))


def replacement(batch: Batch, removal: str) -> int | None:
    """The id that replaces removed tokens; None if the vocabulary has no such token."""
    if removal in batch.unembedded:
        refuse_unembedded_role(removal, batch.unembedded[removal])
    return {"mask": batch.mask_id, "pad": batch.pad_id}.get(removal)


@method(
    title="Random",
    paper="control",
    signed=True,
    class_specific=False,
    cost="none beyond the prediction",
    model_runs=NO_RUNS,
    control="random scores",
)
def random(probe: Probe, *, seed: int = 0) -> Tensor:
    """Uniform random scores in [-1, 1), which depend on the text and the seed, not on the batch."""
    scores = torch.zeros(probe.batch.input_ids.shape, dtype=torch.float32)
    for i, (ids, real) in enumerate(zip(probe.batch.input_ids, probe.batch.attention_mask.bool(), strict=True)):
        drawn = torch.rand(int(real.sum()), generator=context_draws.of_text(ids[real], seed), dtype=torch.float32)
        scores[i, real.cpu()] = drawn * 2 - 1
    return scores
