"""Contexts: the same text with some of its units taken away, in which it is explained again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from tokenlight.text import draws

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
        draws.check_seed(seed)
        if count == "auto":
            return cls(MOST, read_removal(removal), seed, until_converged=True)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0 or count % 2:
            found = f"found {count!r}"
            raise ValueError(f"contexts come in pairs: give an even number such as 8, 'auto', or 0 for none; {found}")
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
        generator = draws.of_text(ids[units >= 0], self.seed)
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
        raise ValueError(
            f"gaps is one or more of {', '.join(REMOVALS)}, joined by '+' as in 'pad+mask'; found {written!r}"
        )
    return found
