"""The search: strengths climb the agreement's slope until texts that were held back no longer gain by it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

RATE = 0.08  # how far a strength moves in a step, about
MEMORY = (0.9, 0.999)  # of the slope and of its square (Adam: Kingma and Ba 2015)
PATIENCE = 5  # steps without gain on the texts that were held back


@dataclass(frozen=True)
class Climb:
    """Where the search is. Strengths are [layer, head] in [0, 1]."""

    strengths: Tensor
    slope: Tensor  # the running mean, and that of its square
    square: Tensor
    best: Tensor  # strengths
    taught: tuple[float, ...] = ()  # mean agreement on the texts of the search, before each step
    held: tuple[float, ...] = ()  # on those held back, before the first step and after each

    @classmethod
    def start(cls, layers: int, heads: int) -> "Climb":
        """All heads lit, which is the method as it is."""
        ones = torch.ones(layers, heads, dtype=torch.float64)
        return cls(ones, torch.zeros_like(ones), torch.zeros_like(ones), ones)

    @property
    def steps(self) -> int:
        return len(self.taught)

    @property
    def stalled(self) -> bool:
        """Whether the best is so long ago that the search is over."""
        return self.steps - best_place(self.held) >= PATIENCE if self.held else False


def climb(
    state: Climb,
    steps: int,
    teach: Callable[[Tensor], tuple[float, Tensor]],
    check: Callable[[Tensor], float],
) -> Iterator[Climb]:
    """The state after each step. `teach` gives agreement and slope on the texts of the search, `check` on others."""
    if not state.held:
        state = replace(state, held=(check(state.strengths),))
    while state.steps < steps and not state.stalled:
        state = step(state, teach, check)
        yield state


def step(state: Climb, teach: Callable[[Tensor], tuple[float, Tensor]], check: Callable[[Tensor], float]) -> Climb:
    taught, slope = teach(state.strengths)
    mean = MEMORY[0] * state.slope + (1 - MEMORY[0]) * slope
    square = MEMORY[1] * state.square + (1 - MEMORY[1]) * slope**2
    number = state.steps + 1
    fair = (mean / (1 - MEMORY[0] ** number), square / (1 - MEMORY[1] ** number))
    strengths = (state.strengths + RATE * fair[0] / (fair[1].sqrt() + 1e-12)).clamp(0, 1)
    held = (*state.held, check(strengths))
    best = strengths if best_place(held) == number else state.best
    return Climb(strengths, mean, square, best, (*state.taught, taught), held)


def best_place(values: tuple[float, ...]) -> int:
    """The first of the highest."""
    return max(range(len(values)), key=values.__getitem__)
