"""Random numbers that belong to a text: decided by its own ids and a seed, so that they are the same in any batch."""

import zlib
from collections.abc import Iterator

import torch
from torch import Tensor


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


def as_bytes(ids: Tensor) -> bytes:
    return ids.cpu().numpy().astype("<i8").tobytes()


def check_seed(seed: int) -> int:
    if not isinstance(seed, int):
        raise ValueError(f"seed is a whole number, found {seed!r}")
    return seed
