"""Padded batches of tokenized texts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.text.tokenized_text import TokenizedText, Units


@dataclass(frozen=True)
class Batch:
    """Padded token ids of several texts. All tensors are [batch, token]."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor | None = None
    position_ids: Tensor | None = None
    special: Tensor | None = None  # bool; None if unknown
    mask_id: int | None = None  # ids of tokens that replace removed ones; None if the vocabulary has no such token
    pad_id: int | None = None
    start_id: int | None = None  # the id that replaces an empty text
    hides: bool = False  # attention_mask hides tokens of texts, not only padding
    # bool: tokens that attention skips. They are not in attention_mask, but in the mask that the model receives.
    hidden_in_attention: Tensor | None = None
    key_factors: Tensor | None = None  # factors of the attention scores of each token as a key, in all layers
    shift_scores: bool = False  # ... after the least score of each query was subtracted from its scores
    units: Mapping[str, Tensor] = field(default_factory=dict)  # kind -> index of each token's unit; -1: in no unit
    # Role ("mask", "pad") -> id, if the tokenizer has such a token, but the model has no embedding for it.
    unembedded: Mapping[str, int] = field(default_factory=dict)

    @property
    def lengths(self) -> Tensor:
        return self.attention_mask.sum(1)

    @property
    def last(self) -> Tensor:
        """[batch] index of each text's last token, for padding on either side."""
        steps = torch.arange(self.attention_mask.shape[1], device=self.attention_mask.device)
        return (steps * self.attention_mask).argmax(1)

    @property
    def first(self) -> Tensor:
        """[batch] index of each text's first token."""
        return self.attention_mask.argmax(1)

    @property
    def own(self) -> Tensor:
        """[batch, token] bool: tokens of the texts themselves, neither padding nor special."""
        real = self.attention_mask.bool()
        return real if self.special is None else real & ~self.special

    def inputs(self) -> dict[str, Tensor]:
        """The keywords of the model call."""
        inputs = {
            name: getattr(self, name) for name in ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        }
        if self.hidden_in_attention is not None:
            inputs["attention_mask"] = self.attention_mask.masked_fill(self.hidden_in_attention, 1)
        return {name: tensor for name, tensor in inputs.items() if tensor is not None}

    def map(self, change: Any) -> "Batch":
        """The same batch with `change` applied to every tensor."""
        units = {kind: change(numbers) for kind, numbers in self.units.items()}
        return replace(self, **{n: change(t) for n, t in vars(self).items() if isinstance(t, Tensor)}, units=units)

    def without(self, removed: Tensor) -> "tuple[Batch, Tensor]":
        """The batch without these tokens [batch, token], and the new index of each token.

        A deleted token has the index of the last token before it that is left, or -1.
        """
        kept = self.attention_mask.bool() & ~removed
        lengths = kept.sum(1)
        order = kept.int().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(lengths.max()))]
        mask = torch.arange(order.shape[1], device=order.device) < lengths[:, None]
        shortened = replace(self, position_ids=None).map(lambda tensor: tensor.gather(1, order))
        ids = torch.where(mask, shortened.input_ids, self.pad_id or 0)
        return replace(shortened, input_ids=ids, attention_mask=mask.to(self.attention_mask)), kept.cumsum(1) - 1


def collate(
    tokenized_texts: Sequence[TokenizedText],
    tokenizer: Any,
    device: torch.device | str = "cpu",
    pad: int | None = None,
    embedded: int | None = None,
) -> Batch:
    """Pad on the right: causal models do not attend to later tokens, and encoders read position 0.

    `pad` is the padding id of the model: some models find the end of a text by it, whatever the mask is. The model has
    embeddings for ids below `embedded`; if the padding id has none, another id is used, since padding is masked.
    """
    for tokenized_text in tokenized_texts:
        refuse_unembedded_ids(tokenized_text, embedded)
    width = max(len(tokenized_text) for tokenized_text in tokenized_texts)
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    roles = {"mask": tokenizer.mask_token_id, "pad": tokenizer.pad_token_id, "start": start}
    ids = {role: i if has_embedding(i, embedded) else None for role, i in roles.items()}
    padding = next(i for i in (pad, ids["pad"], 0) if i is not None and has_embedding(i, embedded))

    def padded(values: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([row + [fill] * (width - len(row)) for row in values], device=device)

    types = [
        tokenized_text.token_type_ids for tokenized_text in tokenized_texts if tokenized_text.token_type_ids is not None
    ]
    return Batch(
        input_ids=padded([tokenized_text.input_ids for tokenized_text in tokenized_texts], padding),
        attention_mask=padded([[1] * len(tokenized_text) for tokenized_text in tokenized_texts], 0),
        token_type_ids=padded(types, 0) if len(types) == len(tokenized_texts) else None,
        special=padded([[int(s) for s in tokenized_text.special] for tokenized_text in tokenized_texts], 1).bool(),
        mask_id=ids["mask"],
        pad_id=ids["pad"],
        start_id=ids["start"],
        unembedded={role: i for role, i in roles.items() if i is not None and ids[role] is None},
    )


def has_embedding(token: int | None, embedded: int | None) -> bool:
    """Whether a token exists and has an embedding in a model with embeddings for the ids below `embedded`."""
    return token is not None and token >= 0 and (embedded is None or token < embedded)


def refuse_unembedded_ids(tokenized_text: TokenizedText, embedded: int | None) -> None:
    if embedded is not None and tokenized_text.input_ids and max(tokenized_text.input_ids) >= embedded:
        position = next(i for i, token in enumerate(tokenized_text.input_ids) if token >= embedded)
        raise RefusedValue(
            f"the text has the token {tokenized_text.tokens[position]!r} with the id "
            f"{tokenized_text.input_ids[position]}, but the model has "
            f"embeddings for {embedded} ids only: the tokenizer does not fit the model, or tokens were added to it "
            "without model.resize_token_embeddings(len(tokenizer))"
        )


def refuse_unembedded_role(role: str, token: int) -> None:
    raise RefusedValue(
        f"the {role} token has the id {token}, for which the model has no embedding: it was added to the tokenizer "
        f"without model.resize_token_embeddings(len(tokenizer)). Resize the embeddings, or do without {role!r}"
    )


def with_units(batch: Batch, tokenized_texts: Sequence[TokenizedText], kinds: Iterable[Units]) -> Batch:
    """The batch with the units of these texts; its own texts may be longer, with tokens in no unit at the end."""
    unit_numbers: dict[str, Tensor] = {}
    for kind in kinds:
        unit_numbers[kind] = torch.full_like(batch.input_ids, -1)
        for i, tokenized_text in enumerate(tokenized_texts):
            for number, tokens in enumerate(tokenized_text.units(kind)):
                unit_numbers[kind][i, tokens] = number
    return replace(batch, units=unit_numbers)


def length_batches(lengths: Sequence[int], tokens: int, exact: bool = False) -> list[list[int]]:
    """Indices of texts in batches of similar length, of at most `tokens` padded tokens; `exact`: of equal length."""
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        last = batches[-1] if batches else []
        fits = (len(last) + 1) * lengths[i] <= tokens and not (exact and last and lengths[last[0]] != lengths[i])
        if last and fits:
            last.append(i)
        else:
            batches.append([i])
    return batches
