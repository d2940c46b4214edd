"""Rules for linear layers along which only positive contributions count."""

from typing import Any

from torch import Tensor

from tokenlight.foundation.torch_internals import without_torch_functions
from tokenlight.rules.facts import keeps
from tokenlight.rules.mode import Function, is_signal
from tokenlight.rules.primitives import PositiveLinear


def positive_linear(x: Tensor, weight: Tensor, bias: Tensor | None, with_bias: bool) -> Any:
    with without_torch_functions():  # casts between the precisions of values and weights are meant
        if is_signal(x):
            return PositiveLinear.apply(x, weight, bias, with_bias)
        product = x @ weight.to(x.dtype)
        return product if bias is None else product + bias


@keeps(inputs=1, results=1, single=True)  # signs and ratios
def zplus_linear(function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """z+ rule without bias: only positive contributions count (Chefer et al. 2021b)."""
    return positive_linear(input, weight.T, bias, False)


@keeps(inputs=1, results=1, single=True)
def zplus_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """The same for GPT-2's Conv1D."""
    return positive_linear(x, weight, bias, False)


@keeps(inputs=1, results=1, single=True)
def alpha_beta_linear(function: Function, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """LRP-α1β0: as z+, with the bias' positive part in the denominator (Arras et al. 2025, appendix D.2)."""
    return positive_linear(input, weight.T, bias, True)


@keeps(inputs=1, results=1, single=True)
def alpha_beta_addmm(function: Function, bias: Tensor, x: Tensor, weight: Tensor) -> Any:
    """The same for GPT-2's Conv1D."""
    return positive_linear(x, weight, bias, True)
