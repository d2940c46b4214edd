"""Linear layers that are written as a matrix product of states and a weight.

Falcon writes all of its layers so, XLNet its projections, gpt-oss, DBRX and Llama 4 their experts. If a table has a
rule for the custom op `weight_product`, such products are converted to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.custom_ops import weight_product
from tokenlight.rules.tags import is_weight, running_module

Call = Callable[..., Any]  # call(function, *args, **kwargs), under the rules
NAMES = ("input", "self", "other", "mat2")  # of the operands, in their order


def as_linear_layers(
    call: Call,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_weight: Callable[[Any], bool] = is_weight,
) -> Tensor | None:
    """A matrix product of one signal and one weight, computed by linear layers; None for any other product."""
    letters, operands = "", [*args, *(kwargs[name] for name in NAMES if name in kwargs)]
    if function is torch.einsum:
        letters, operands = args[0], [*args[1]] if isinstance(args[1], (tuple, list)) else [*args[1:]]
    signals = [x for x in operands if isinstance(x, Tensor) and x.requires_grad]
    weights = [x for x in operands if isinstance(x, Tensor) and not x.requires_grad and is_weight(x)]
    if len(signals) != 1 or not weights:
        return None
    x, weight = signals[0], weights[0]
    if len(operands) != 2 or x.ndim < 2:
        refuse_product(letters)
    signal_first = operands[0] is x
    if function is torch.einsum:
        return multiply_einsum(call, letters, signal_first, x, weight)
    if function is Tensor.__rmatmul__:
        signal_first = not signal_first
    if weight.ndim == 1:
        column = weight[:, None]
        return call(torch.squeeze, multiply(call, x if signal_first else call(torch.transpose, x, -1, -2), column), -1)
    if signal_first:
        return multiply(call, x, weight)
    product = multiply(call, call(torch.transpose, x, -1, -2), weight.transpose(-1, -2))
    return call(torch.transpose, product, -1, -2)


def multiply(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    """x [..., row, in] times weight [..., in, out]: a linear layer for each matrix of the weight."""
    batch = torch.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
    if batch != x.shape[:-2]:
        x = call(Tensor.expand, x, (*batch, *x.shape[-2:]))
    weight = weight.expand(*batch, *weight.shape[-2:])
    matrix_axes = [axis for axis, size in enumerate(batch) if size > 1 and weight.stride(axis) != 0]
    for axis in reversed(range(len(batch))):
        if axis not in matrix_axes:
            weight = weight.select(axis, 0)
    if not matrix_axes:
        return call(weight_product, x, weight.transpose(0, 1))
    leading_axes = list(range(len(matrix_axes)))
    x = call(torch.flatten, call(torch.movedim, x, matrix_axes, leading_axes), 0, len(matrix_axes) - 1)
    pairs = zip(call(torch.unbind, x, 0), weight.flatten(0, len(matrix_axes) - 1).transpose(1, 2), strict=True)
    product = call(torch.stack, [call(weight_product, states, matrix) for states, matrix in pairs], 0)
    product = call(torch.unflatten, product, 0, [batch[axis] for axis in matrix_axes])
    return call(torch.movedim, product, leading_axes, matrix_axes)


def multiply_einsum(call: Call, equation: str, signal_first: bool, x: Tensor, weight: Tensor) -> Tensor:
    """An einsum such as "ibh,hnd->ibnd"."""
    sides, arrow, result = equation.replace(" ", "").partition("->")
    x_letters, weight_letters = sides.split(",") if signal_first else reversed(sides.split(","))
    common = [letter for letter in x_letters if letter in weight_letters]
    summed, batch = (
        [letter for letter in common if letter not in result],
        [letter for letter in common if letter in result],
    )
    rows, columns = (
        [letter for letter in x_letters if letter not in common],
        [letter for letter in weight_letters if letter not in common],
    )
    unique = all(len({*letters}) == len(letters) for letters in (x_letters, weight_letters, result))
    if not (arrow and unique and "." not in equation and {*result} == {*batch, *rows, *columns}):
        refuse_product(equation)
    sizes = dict(zip(x_letters, x.shape, strict=True)) | dict(zip(weight_letters, weight.shape, strict=True))

    def shape(*groups: list[str]) -> list[int]:
        """The first group's axes, then one axis for each other group."""
        sizes_of_groups = [torch.Size([sizes[letter] for letter in group]).numel() for group in groups[1:]]
        return [*(sizes[letter] for letter in groups[0]), *sizes_of_groups]

    x = call(torch.permute, x, [x_letters.index(letter) for letter in (*batch, *rows, *summed)])
    x = call(torch.reshape, x, shape(batch, rows, summed))
    weight = weight.permute([weight_letters.index(letter) for letter in (*batch, *summed, *columns)])
    product = multiply(call, x, weight.reshape(shape(batch, summed, columns)))
    order = [*batch, *rows, *columns]
    product = call(torch.reshape, product, [sizes[letter] for letter in order])
    return call(torch.permute, product, [order.index(letter) for letter in result])


def refuse_product(equation: str) -> None:
    written = f" (einsum '{equation}')" if equation else ""
    raise UnsupportedModelError(
        f"{running_module()} multiplies its states with a weight in a way{written} that the rule for linear layers "
        "cannot follow: write it with nn.Linear, or take a method with the plain gradient there, such as attn_lrp"
    )
