"""Effects of removing tokens on the model's probability, to which head strengths are fitted."""

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
from tokenlight.tasks.targets import ChangedInput, ResolvedTarget
from tokenlight.text.tokenized_text import TokenizedText

FLOOR = 1e-9  # the least probability and complement, which keeps log-odds finite
Order = list[list[int]]  # groups of tokens, in the order in which they are removed


@dataclass(frozen=True, eq=False)
class Effects:
    """For each token of a text, the decrease of the target's log-odds when it is removed."""

    values: Tensor  # [token]
    measured: Tensor  # [token] bool: it may be removed

    def agreement(self, scores: Tensor) -> Tensor:
        """Pearson's correlation with the scores [token], over removable tokens; 0 if either is constant."""
        return torch.dot(standard(scores.to(self.values)[self.measured]), standard(self.values[self.measured]))


def standard(values: Tensor) -> Tensor:
    """Values with mean 0 and norm 1; all 0, without a gradient, if they are constant."""
    centered = values - values.mean()
    size = torch.linalg.vector_norm(centered.detach())
    if size == 0:
        return torch.zeros_like(values)
    return centered / torch.linalg.vector_norm(centered)


def measure_effects(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    targets: Sequence[ResolvedTarget],
    names: Sequence[str],
    perturbation: Perturbation,
    orders: int,
    points: int,
) -> list[Effects]:
    """For each text: remove all tokens in random orders, in at most `points` groups of equal size.

    A token's value is the mean loss of its groups, each divided by the size of the group: with groups of one token, an
    estimate of the Shapley value. Every second order is the reverse of the one before, which halves the noise. The
    orders of a text depend only on its name, so that texts can be measured in several runs.
    """
    orders_by_text = [
        list(random_orders(tokenized_text, target, name, perturbation, orders, points))
        for tokenized_text, target, name in zip(tokenized_texts, targets, names, strict=True)
    ]
    changed_inputs = [
        changed_input
        for tokenized_text, target, text_orders in zip(tokenized_texts, targets, orders_by_text, strict=True)
        for order in text_orders
        for changed_input in changed_inputs_along(explainer, tokenized_text, target, order, perturbation)
    ]
    probabilities = log_probabilities(explainer, changed_inputs, EvaluationOptions(instrumented=instrumented)).exp()
    log_odds = torch.logit(probabilities.clamp(FLOOR, 1 - FLOOR))
    orders_log_odds = iter(log_odds.split([len(order) + 1 for text_orders in orders_by_text for order in text_orders]))
    return [
        distribute_losses(len(tokenized_text), [(order, -next(orders_log_odds).diff()) for order in text_orders])
        for tokenized_text, text_orders in zip(tokenized_texts, orders_by_text, strict=True)
    ]


def distribute_losses(length: int, measured: Sequence[tuple[Order, Tensor]]) -> Effects:
    """Effects from the loss [group] of each order."""
    values = torch.zeros(length, dtype=torch.float64)
    for order, losses in measured:
        for group, loss in zip(order, losses.tolist(), strict=True):
            values[group] += loss / (len(group) * len(measured))
    is_removable = torch.zeros(length, dtype=torch.bool)
    is_removable[[token for group in measured[0][0] for token in group]] = True
    return Effects(values, is_removable)


def random_orders(
    tokenized_text: TokenizedText,
    target: ResolvedTarget,
    name: str,
    perturbation: Perturbation,
    orders: int,
    points: int,
) -> Iterator[Order]:
    tokens = [token for unit in removable_units(tokenized_text, perturbation, target.protected) for token in unit]
    rng = random.Random(name)
    n_groups = min(points, len(tokens))
    cuts = [round(i * len(tokens) / n_groups) for i in range(n_groups + 1)]
    for number in range(orders):
        tokens = tokens[::-1] if number % 2 else rng.sample(tokens, len(tokens))
        yield [tokens[start:end] for start, end in pairwise(cuts)]


def changed_inputs_along(
    explainer: Explainer,
    tokenized_text: TokenizedText,
    target: ResolvedTarget,
    order: Order,
    perturbation: Perturbation,
) -> Iterator[ChangedInput]:
    """The unchanged text, then without the first group, without the first two, and so on."""
    removed: list[int] = []
    for group in [[], *order]:
        removed = removed + group
        yield make_changed_input(explainer, remove_tokens(tokenized_text, removed, perturbation, 0.0), target)
