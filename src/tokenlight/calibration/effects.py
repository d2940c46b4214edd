"""What removing tokens does to the model's probability: the effects that head strengths are fitted to."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from tokenlight.explain.explainer import Explainer
from tokenlight.metrics.perturbation import Perturbation, removable_units, remove_tokens
from tokenlight.metrics.probability import EvaluationOptions, log_probabilities, make_changed_input
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks.targets import ChangedInput, MeasuredTarget
from tokenlight.text.tokenized_text import TokenizedText

FLOOR = 1e-9  # of a probability and of its complement: log-odds stay finite
Order = list[list[int]]  # groups of tokens, in the order in which they go


@dataclass(frozen=True, eq=False)
class Effects:
    """What each token of one text is worth to the answer: how far the target's log-odds fall when it goes."""

    values: Tensor  # [token]
    measured: Tensor  # [token] bool: it may go

    def agreement(self, scores: Tensor) -> Tensor:
        """Pearson's correlation with the scores [token], over the tokens that may go; 0 where either is constant."""
        return torch.dot(standard(scores.to(self.values)[self.measured]), standard(self.values[self.measured]))


def standard(values: Tensor) -> Tensor:
    """Mean 0, length 1; all 0, without a slope, where the values are constant."""
    centered = values - values.mean()
    size = torch.linalg.vector_norm(centered.detach())
    if size == 0:
        return torch.zeros_like(values)
    return centered / torch.linalg.vector_norm(centered)


def measure_effects(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    measured_targets: Sequence[MeasuredTarget],
    names: Sequence[str],
    perturbation: Perturbation,
    orders: int,
    points: int,
) -> list[Effects]:
    """For each row: tokens go in random orders, in at most `points` groups of one size, until none is left.

    A token's value is the mean loss of its groups, each shared evenly in the group: with single tokens an estimate of
    Shapley's value. Every second order is the one before it backwards, which halves the noise. A row's orders depend
    on its name alone, so that rows can be measured in parts.
    """
    plans = [
        list(random_orders(tokenized_text, measured_target, name, perturbation, orders, points))
        for tokenized_text, measured_target, name in zip(tokenized_texts, measured_targets, names, strict=True)
    ]
    questions = [
        question
        for tokenized_text, measured_target, plan in zip(tokenized_texts, measured_targets, plans, strict=True)
        for order in plan
        for question in ask_along(explainer, tokenized_text, measured_target, order, perturbation)
    ]
    found = log_probabilities(explainer, questions, EvaluationOptions(instrumented=instrumented)).exp()
    log_odds = torch.logit(found.clamp(FLOOR, 1 - FLOOR))
    lines = iter(log_odds.split([len(order) + 1 for plan in plans for order in plan]))
    return [
        share_out(len(tokenized_text), [(order, -next(lines).diff()) for order in plan])
        for tokenized_text, plan in zip(tokenized_texts, plans, strict=True)
    ]


def share_out(length: int, measured: Sequence[tuple[Order, Tensor]]) -> Effects:
    """From the loss of every group [group] of every order."""
    values = torch.zeros(length, dtype=torch.float64)
    for order, losses in measured:
        for group, loss in zip(order, losses.tolist(), strict=True):
            values[group] += loss / (len(group) * len(measured))
    may_go = torch.zeros(length, dtype=torch.bool)
    may_go[[token for group in measured[0][0] for token in group]] = True
    return Effects(values, may_go)


def random_orders(
    tokenized_text: TokenizedText,
    measured_target: MeasuredTarget,
    name: str,
    perturbation: Perturbation,
    orders: int,
    points: int,
) -> Iterator[Order]:
    tokens = [
        token for unit in removable_units(tokenized_text, perturbation, measured_target.protected) for token in unit
    ]
    chance = random.Random(name)
    parts = min(points, len(tokens))
    cuts = [round(i * len(tokens) / parts) for i in range(parts + 1)]
    for number in range(orders):
        tokens = tokens[::-1] if number % 2 else chance.sample(tokens, len(tokens))
        yield [tokens[start:end] for start, end in pairwise(cuts)]


def ask_along(
    explainer: Explainer,
    tokenized_text: TokenizedText,
    measured_target: MeasuredTarget,
    order: Order,
    perturbation: Perturbation,
) -> Iterator[ChangedInput]:
    """The whole row, then without the first group, without the first two, and so on."""
    gone: list[int] = []
    for group in [[], *order]:
        gone = gone + group
        yield make_changed_input(explainer, remove_tokens(tokenized_text, gone, perturbation, 0.0), measured_target)
