"""Which token a function of the output reads: seen in its gradient, since nobody says it."""

from dataclasses import replace

import torch
from torch import Tensor

from tokenlight.model.tape import Tape
from tokenlight.model.twin import Twin
from tokenlight.record.choices import Choice
from tokenlight.text.batches import Batch


class NoSingleRow(ValueError):
    """The explained number is not read at one token, so there is no row of [query, key] maps for it."""


def with_rows(choices: tuple[Choice, ...], twin: Twin, batch: Batch) -> tuple[Choice, ...]:
    """The same choices, each with its row."""
    return tuple(
        replace(choice, row=only_token(tokens_read(choice, twin, batch), batch)) if choice.row is None else choice
        for choice in choices
    )


def tokens_read(choice: Choice, twin: Twin, batch: Batch) -> Tensor:
    """[batch, token] bool: where the score depends on the last block's output, by one backward pass of the head."""
    tape = Tape(differentiable=True, head_only=True)
    output = twin.run(batch, tape)
    with torch.enable_grad():
        score = choice.score(output)
    (gradient,) = torch.autograd.grad(score.sum(), tape.block_outputs, materialize_grads=True)
    return (gradient != 0).any(-1).to(batch.input_ids.device)


def only_token(read: Tensor, batch: Batch) -> Tensor:
    """[batch]"""
    for tokens, real in zip(read, batch.attention_mask, strict=True):
        places = tokens.nonzero()[:, 0].tolist()
        if not places:
            raise NoSingleRow("the target function reads no token of a text: its gradient is 0")
        if len(places) > 1:
            raise NoSingleRow(
                f"the target function reads {len(places)} tokens of a text: {', '.join(map(str, places))}"
            )
        if not real[places[0]]:
            raise NoSingleRow(f"the target function reads token {places[0]} of a text, which is padding")
    return read.long().argmax(1)
