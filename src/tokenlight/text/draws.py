"""Random numbers that belong to a text: decided by its own ids and a seed, so that they are the same in any batch."""

import zlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tokenlight.text.batches import Batch


def of_text(ids: Tensor, seed: int) -> torch.Generator:
    """For all ids [token] of a text together."""
    return torch.Generator().manual_seed(zlib.crc32(as_bytes(ids)) ^ check_seed(seed))


def of_tokens(ids: Tensor, seed: int, step: int = 0) -> Iterator[torch.Generator]:
    """For each of the ids [token], decided by those up to it: a text that goes on keeps what its tokens had.

    The generators are one and the same object: draw from each before asking for the next.
    """
    generator, read = torch.Generator(), zlib.crc32(step.to_bytes(8, "little"))
    check_seed(seed)
    for one in ids.split(1):
        read = zlib.crc32(as_bytes(one), read)
        yield generator.manual_seed(read ^ seed)


def by_token(batch: Batch, seed: int, step: int, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
    """[batch, token, ...] what is drawn for each token of the texts' own; 0 for padding and special tokens."""
    nothing = torch.zeros_like(draw(torch.Generator()))
    drawn = nothing.expand(*batch.input_ids.shape, *nothing.shape).clone()
    for row, (ids, real, own) in enumerate(zip(batch.input_ids, batch.attention_mask.bool(), batch.own, strict=True)):
        places, draws = real.nonzero()[:, 0].tolist(), own[real].tolist()
        for place, draws_one, generator in zip(places, draws, of_tokens(ids[real], seed, step), strict=True):
            if draws_one:
                drawn[row, place] = draw(generator)
    return drawn


def as_bytes(ids: Tensor) -> bytes:
    return ids.cpu().numpy().astype("<i8").tobytes()


def check_seed(seed: int) -> int:
    if not isinstance(seed, int):
        raise ValueError(f"seed is a whole number, found {seed!r}")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed is a whole number of at most 64 bits, found {seed}")
    return seed
