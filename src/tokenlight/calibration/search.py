"""The search: strengths climb the slope of the agreement, and every text judges a climb that has not seen it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

RATE = 0.08  # how far a strength moves in a step, about
MEMORY = (0.9, 0.999)  # of the slope and of its square (Adam: Kingma and Ba 2015)
PATIENCE = 8  # steps without gain


@dataclass(frozen=True)
class Climb:
    """One way up. Strengths are [layer, head] in [0, 1]."""

    trail: Tensor  # [step, layer, head], the start included
    slope: Tensor  # the running mean, and that of its square
    square: Tensor

    @classmethod
    def start(cls, layers: int, heads: int) -> "Climb":
        """All heads lit, which is the method as it is."""
        nothing = torch.zeros(layers, heads, dtype=torch.float64)
        return cls(torch.ones_like(nothing)[None], nothing, nothing)

    @property
    def strengths(self) -> Tensor:
        return self.trail[-1]

    def step(self, slope: Tensor) -> "Climb":
        """Along the slope [layer, head] at the present strengths."""
        mean = MEMORY[0] * self.slope + (1 - MEMORY[0]) * slope
        square = MEMORY[1] * self.square + (1 - MEMORY[1]) * slope**2
        number = len(self.trail)
        fair = (mean / (1 - MEMORY[0] ** number), square / (1 - MEMORY[1] ** number))
        strengths = (self.strengths + RATE * fair[0] / (fair[1].sqrt() + 1e-12)).clamp(0, 1)
        return Climb(torch.cat([self.trail, strengths[None]]), mean, square)


@dataclass(frozen=True)
class Search:
    """Climbs side by side: one for each fold of the texts, taught by all other folds, and a last one taught by all."""

    climbs: tuple[Climb, ...]
    judged: Tensor  # [step, text] agreement under the climb of the text's fold, which has not seen it

    @property
    def steps(self) -> int:
        return len(self.judged) - 1

    def up_to(self, steps: int) -> "Search":
        """As it was after so many steps, if it has gone further."""
        climbs = tuple(replace(climb, trail=climb.trail[: steps + 1]) for climb in self.climbs)
        return self if self.steps <= steps else Search(climbs, self.judged[: steps + 1])

    @property
    def stalled(self) -> bool:
        """Whether the best is so long ago that the search is over."""
        return self.steps - self.best >= PATIENCE

    @property
    def best(self) -> int:
        """The first step at which the texts agreed most."""
        return best_step(self.judged)

    @property
    def found(self) -> Tensor:
        """Strengths taught by all texts, after as many steps as did best on texts that were not seen."""
        return self.climbs[-1].trail[self.best]

    def unseen_steps(self, folds: Sequence[Sequence[int]]) -> list[int]:
        """How many steps each fold's climb should take, as the other folds' texts say."""
        kept = [torch.ones(self.judged.shape[1], dtype=torch.bool) for _ in folds]
        for others, fold in zip(kept, folds, strict=True):
            others[list(fold)] = False
        return [best_step(self.judged[:, others]) for others in kept]

    def unseen(self, folds: Sequence[Sequence[int]]) -> list[Tensor]:
        """Strengths for each fold that its texts had no part in: neither in the climb nor in the number of steps."""
        return [climb.trail[step] for climb, step in zip(self.climbs[:-1], self.unseen_steps(folds), strict=True)]

    def gains(self, folds: Sequence[Sequence[int]]) -> Tensor:
        """[text] of agreement, by the strengths of `unseen`."""
        gains = torch.zeros_like(self.judged[0])
        for fold, step in zip(folds, self.unseen_steps(folds), strict=True):
            gains[list(fold)] = (self.judged[step] - self.judged[0])[list(fold)]
        return gains


def best_step(judged: Tensor) -> int:
    """The first of the highest, of [step, text]."""
    means = judged.mean(1).tolist()
    return max(range(len(means)), key=means.__getitem__)
