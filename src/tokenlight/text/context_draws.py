"""Contexts: a text with some of its units removed; random draws seeded by a text's own token ids."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import REMOVALS, Removal
from tokenlight.text.batch import Batch


def of_text(ids: Tensor, seed: int) -> torch.Generator:
    """A generator seeded by all ids [token] of a text."""
    return torch.Generator().manual_seed(zlib.crc32(id_bytes(ids)) ^ check_seed(seed))


def of_tokens(ids: Tensor, seed: int, step: int = 0) -> Iterator[torch.Generator]:
    """A generator for each of the ids [token], seeded by the ids up to it: appending tokens changes no earlier draw.

    All are the same object, seeded again: draw from each before the next.
    """
    generator, checksum = torch.Generator(), zlib.crc32(step.to_bytes(8, "little"))
    check_seed(seed)
    for token_id in ids.split(1):
        checksum = zlib.crc32(id_bytes(token_id), checksum)
        yield generator.manual_seed(checksum ^ seed)


def by_token(batch: Batch, seed: int, step: int, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
    """[batch, token, ...] a draw for each token of a text; 0 for padding and special tokens."""
    zeros = torch.zeros_like(draw(torch.Generator()))
    drawn = zeros.expand(*batch.input_ids.shape, *zeros.shape).clone()
    for text, (ids, real, own) in enumerate(zip(batch.input_ids, batch.attention_mask.bool(), batch.own, strict=True)):
        positions, own_flags = real.nonzero()[:, 0].tolist(), own[real].tolist()
        for position, is_own, generator in zip(positions, own_flags, of_tokens(ids[real], seed, step), strict=True):
            if is_own:
                drawn[text, position] = draw(generator)
    return drawn


def id_bytes(ids: Tensor) -> bytes:
    return ids.cpu().numpy().astype("<i8").tobytes()


def check_seed(seed: int) -> int:
    if not isinstance(seed, int):
        raise RefusedValue(f"seed must be a whole number, found {seed!r}")
    if not -(2**63) <= seed < 2**63:
        raise RefusedValue(f"seed must be a whole number of at most 64 bits, found {seed}")
    return seed


BATCH_TEXTS, BATCH_TOKENS = 32, 8192  # limits of a batch of changed texts
MOST, ROUND = 64, 8  # the most contexts of "auto", and how many run between tests of convergence
NONE: Mapping[str, Any] = {
    "contexts": 0,
    "removal": None,
    "seed": 0,
}  # options of methods that define contexts, with their defaults


@dataclass(frozen=True)
class Contexts:
    """The number of contexts, and how they are made.

    They come in pairs: a random half of the units, and the other half. So every unit is present in one context of each
    pair, and pairs are independent of each other.
    """

    count: int
    removal: tuple[Removal, ...] | None = None  # used alternately for removed units; None: chosen for the model
    seed: int = 0
    until_converged: bool = False  # `count` is the maximum

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Contexts | None":
        """Contexts from the options of a method; None if there are none."""
        count, removal, seed = (options[name] for name in NONE)
        check_seed(seed)
        if count == "auto":
            return cls(MOST, read_removal(removal), seed, until_converged=True)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0 or count % 2:
            actual = f"found {count!r}"
            raise RefusedValue(
                f"contexts come in pairs: give an even number such as 8, 'auto', or 0 for none; {actual}"
            )
        return cls(count, read_removal(removal), seed) if count else None

    @property
    def round(self) -> int:
        """The number of contexts between tests of convergence; even."""
        return min(ROUND, self.count) if self.until_converged else self.count

    @property
    def described(self) -> dict[str, Any]:
        """The options of a method that give these contexts."""
        removal = None if self.removal is None else "+".join(self.removal)
        return {"contexts": "auto" if self.until_converged else self.count, "removal": removal, "seed": self.seed}

    def together(self, texts: int, tokens: int) -> int:
        """The number of changed texts in a batch, if this many texts of this many tokens are explained together."""
        return max(texts, min(BATCH_TEXTS, BATCH_TOKENS // max(tokens, 1), texts * self.round))

    def present(self, ids: Tensor, units: Tensor) -> Tensor:
        """[context, token] bool: present tokens, from the ids and each token's unit (-1: always present).

        Seeded by the ids of the units, so that a text has the same contexts in any batch and with any answer.
        """
        count = int(units.max()) + 1
        generator = of_text(ids[units >= 0], self.seed)
        if count < 2:  # a single unit cannot be removed
            return torch.ones(self.count, len(ids), dtype=torch.bool)
        halves = [
            torch.rand(count, generator=generator, dtype=torch.float32).argsort().argsort() < (count + 1) // 2
            for _ in self._pairs
        ]
        sets = torch.stack([units_present for half in halves for units_present in (half, ~half)])  # [context, unit]
        units = units.cpu()
        return sets[:, units] | (units < 0)

    @property
    def _pairs(self) -> range:
        return range(self.count // 2)


def read_removal(value: Any) -> tuple[Removal, ...] | None:
    """From a name such as "mask", or "pad+mask" for both alternately."""
    if value is None:
        return None
    names = [name.strip() for name in value.split("+")] if isinstance(value, str) else []
    removals: tuple[Removal, ...] = tuple(removal for name in names for removal in REMOVALS if removal == name)
    if not removals or len(removals) < len(names):
        raise RefusedValue(
            f"removal must be one or more of {', '.join(REMOVALS)}, joined by '+' as in 'pad+mask'; found {value!r}"
        )
    return removals
