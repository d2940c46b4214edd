"""Operations of tokenlight that a rule table can replace, as it can any torch function."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function

P = ParamSpec("P")
R = TypeVar("R")
IMPLEMENTATIONS: dict[Callable[..., Any], Callable[..., Any]] = {}  # custom op: the undecorated function


def custom_op(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: the function becomes an operation that a rule table can replace, like any torch function."""

    @wraps(function)
    def op(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = tuple(arg for arg in args if isinstance(arg, Tensor))
        if has_torch_function(tensors):
            return handle_torch_function(op, tensors, *args, **kwargs)
        return function(*args, **kwargs)

    IMPLEMENTATIONS[op] = function
    return op


@custom_op
def activation(x: Tensor, formula: Callable[[Tensor], Tensor]) -> Tensor:
    """An activation module as one operation. Rules cannot follow formulas in several operations."""
    return formula(x)


@custom_op
def weight_product(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer that the model writes as a matrix product."""
    return F.linear(input, weight, bias)


@custom_op
def query_key(query: Tensor, key: Tensor) -> Tensor:
    """[batch, head, query, key]"""
    return torch.matmul(query, key.transpose(-1, -2))


@custom_op
def mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask


@custom_op
def add_sinks(scores: Tensor, sinks: Tensor) -> Tensor:
    """[batch, head, query, key + 1]: a learned number for each head, whose attention goes to no token."""
    return torch.cat([scores, sinks.to(scores).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)], -1)


@custom_op
def mix_values(weights: Tensor, value: Tensor) -> Tensor:
    """[batch, head, query, dim]"""
    return torch.matmul(weights, value)


@custom_op
def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, causal: bool) -> Tensor:
    """[batch, head, query, dim]: attention as one operation, which does not store the weights."""
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scaling)


@custom_op
def scan(values: Tensor, others: dict[str, Any], formula: Callable[[Tensor, dict[str, Any]], Any]) -> Any:
    """A recurrence over the tokens (a state space, linear attention), linear in the values that go into its state.

    `others` are the arguments that define how the state decays, is written and is read.
    """
    return formula(values, others)


@custom_op
def recurrence(values: Tensor, others: dict[str, Any], formula: Callable[[Tensor, dict[str, Any]], Any]) -> Any:
    """A recurrence like `scan` whose formula computes some of its gates from the values."""
    return formula(values, others)


def copied(x: Tensor, source: Tensor, *_: Any) -> Tensor:
    """x after x.copy_(source)."""
    return source.to(x).expand_as(x)


def replaced(x: Tensor, index: Any, value: Any) -> Tensor:
    """x after x[index] = value."""
    result = x.clone()
    result[index] = value
    return result
