"""Contexts: a text with some of its units removed; random draws seeded by a text's own token ids."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.text.batch import Batch


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
        raise RefusedValue(f"seed is a whole number, found {seed!r}")
    if not -(2**63) <= seed < 2**63:
        raise RefusedValue(f"seed is a whole number of at most 64 bits, found {seed}")
    return seed


Removal = Literal["hide", "mask", "pad", "delete"]
REMOVALS: tuple[Removal, ...] = get_args(Removal)
AT_ONCE, TOKENS = 32, 8192  # changed texts, and their tokens, that run together
MOST, ROUND = 64, 8  # contexts of "auto", and how many of them come before it is looked whether the scores have settled
NONE: Mapping[str, Any] = {"contexts": 0, "removal": None, "seed": 0}  # the options that say which contexts, if any


@dataclass(frozen=True)
class Contexts:
    """How many there are, and how they are made.

    They come in pairs: a random half of the units, and the other half. So every unit is there in one context of each
    pair, and pairs are independent of each other.
    """

    count: int
    removal: tuple[Removal, ...] | None = (
        None  # what takes the place of what is gone, in turn; None: as suits the model
    )
    seed: int = 0
    until_converged: bool = False  # `count` is the most

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Contexts | None":
        """As they are written among the options of a method."""
        count, removal, seed = (options[name] for name in NONE)
        check_seed(seed)
        if count == "auto":
            return cls(MOST, read_removal(removal), seed, until_converged=True)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0 or count % 2:
            found = f"found {count!r}"
            raise RefusedValue(f"contexts come in pairs: give an even number such as 8, 'auto', or 0 for none; {found}")
        return cls(count, read_removal(removal), seed) if count else None

    @property
    def round(self) -> int:
        """How many come at once; a multiple of two."""
        return min(ROUND, self.count) if self.until_converged else self.count

    @property
    def described(self) -> dict[str, Any]:
        """As options."""
        removal = None if self.removal is None else "+".join(self.removal)
        return {"contexts": "auto" if self.until_converged else self.count, "removal": removal, "seed": self.seed}

    def together(self, texts: int, tokens: int) -> int:
        """How many changed texts run at once, where so many texts of so many tokens are explained at once."""
        return max(texts, min(AT_ONCE, TOKENS // max(tokens, 1), texts * self.round))

    def present(self, ids: Tensor, units: Tensor) -> Tensor:
        """[context, token] bool: what is there; from the ids and the number of each token's unit, -1 for what stays.

        Drawn from the ids of the units themselves: a text has the same contexts in any batch, and before any answer.
        """
        count = int(units.max()) + 1
        generator = of_text(ids[units >= 0], self.seed)
        if count < 2:  # there is nothing to take away from
            return torch.ones(self.count, len(ids), dtype=torch.bool)
        halves = [
            torch.rand(count, generator=generator, dtype=torch.float32).argsort().argsort() < (count + 1) // 2
            for _ in self._pairs
        ]
        sets = torch.stack([one for half in halves for one in (half, ~half)])  # [context, unit]
        units = units.cpu()
        return sets[:, units] | (units < 0)

    @property
    def _pairs(self) -> range:
        return range(self.count // 2)


def read_removal(written: Any) -> tuple[Removal, ...] | None:
    """From "mask", or "pad+mask" for both in turn."""
    if written is None:
        return None
    names = [name.strip() for name in written.split("+")] if isinstance(written, str) else []
    found: tuple[Removal, ...] = tuple(gap for name in names for gap in REMOVALS if gap == name)
    if not found or len(found) < len(names):
        raise RefusedValue(
            f"gaps is one or more of {', '.join(REMOVALS)}, joined by '+' as in 'pad+mask'; found {written!r}"
        )
    return found
