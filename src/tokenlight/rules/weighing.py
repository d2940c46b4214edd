"""Recognizes linear layers that are written as a matrix product of states and a weight.

Falcon writes all of its layers so, XLNet its projections, gpt-oss, DBRX and Llama 4 their experts. Tables in which
linear layers have a rule of their own know what they are by `points.weigh`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.custom_ops import weigh
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
    """The matrix product of one signal and one weight, by linear layers; None where it is something else."""
    letters, operands = "", [*args, *(kwargs[name] for name in NAMES if name in kwargs)]
    if function is torch.einsum:
        letters, operands = args[0], [*args[1]] if isinstance(args[1], (tuple, list)) else [*args[1:]]
    signals = [x for x in operands if isinstance(x, Tensor) and x.requires_grad]
    weights = [x for x in operands if isinstance(x, Tensor) and not x.requires_grad and is_weight(x)]
    if len(signals) != 1 or not weights:
        return None
    x, weight = signals[0], weights[0]
    if len(operands) != 2 or x.ndim < 2:
        refuse(letters)
    first = operands[0] is x
    if function is torch.einsum:
        return by_letters(call, letters, first, x, weight)
    if function is Tensor.__rmatmul__:
        first = not first
    if weight.ndim == 1:
        column = weight[:, None]
        return call(torch.squeeze, multiply(call, x if first else call(torch.transpose, x, -1, -2), column), -1)
    if first:
        return multiply(call, x, weight)
    product = multiply(call, call(torch.transpose, x, -1, -2), weight.transpose(-1, -2))
    return call(torch.transpose, product, -1, -2)


def multiply(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    """x [..., row, in] times weight [..., in, out]: a linear layer for each matrix of the weight."""
    batch = torch.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
    if batch != x.shape[:-2]:
        x = call(Tensor.expand, x, (*batch, *x.shape[-2:]))
    weight = weight.expand(*batch, *weight.shape[-2:])
    own = [axis for axis, size in enumerate(batch) if size > 1 and weight.stride(axis) != 0]
    for axis in reversed(range(len(batch))):
        if axis not in own:
            weight = weight.select(axis, 0)
    if not own:
        return call(weigh, x, weight.transpose(0, 1))
    front = list(range(len(own)))
    x = call(torch.flatten, call(torch.movedim, x, own, front), 0, len(own) - 1)
    each = zip(call(torch.unbind, x, 0), weight.flatten(0, len(own) - 1).transpose(1, 2), strict=True)
    product = call(torch.stack, [call(weigh, one, matrix) for one, matrix in each], 0)
    product = call(torch.unflatten, product, 0, [batch[axis] for axis in own])
    return call(torch.movedim, product, front, own)


def by_letters(call: Call, equation: str, first: bool, x: Tensor, weight: Tensor) -> Tensor:
    """An einsum such as "ibh,hnd->ibnd"."""
    sides, arrow, result = equation.replace(" ", "").partition("->")
    of_x, of_weight = sides.split(",") if first else reversed(sides.split(","))
    both = [letter for letter in of_x if letter in of_weight]
    inside, batch = [one for one in both if one not in result], [one for one in both if one in result]
    rows, columns = [one for one in of_x if one not in both], [one for one in of_weight if one not in both]
    unique = all(len({*letters}) == len(letters) for letters in (of_x, of_weight, result))
    if not (arrow and unique and "." not in equation and {*result} == {*batch, *rows, *columns}):
        refuse(equation)
    sizes = dict(zip(of_x, x.shape, strict=True)) | dict(zip(of_weight, weight.shape, strict=True))

    def shape(*groups: list[str]) -> list[int]:
        """The axes of the first group one by one, those of the others as one axis each."""
        count = [torch.Size([sizes[one] for one in group]).numel() for group in groups[1:]]
        return [*(sizes[one] for one in groups[0]), *count]

    x = call(torch.permute, x, [of_x.index(one) for one in (*batch, *rows, *inside)])
    x = call(torch.reshape, x, shape(batch, rows, inside))
    weight = weight.permute([of_weight.index(one) for one in (*batch, *inside, *columns)])
    product = multiply(call, x, weight.reshape(shape(batch, inside, columns)))
    order = [*batch, *rows, *columns]
    product = call(torch.reshape, product, [sizes[one] for one in order])
    return call(torch.permute, product, [order.index(one) for one in result])


def refuse(equation: str) -> None:
    written = f" (einsum '{equation}')" if equation else ""
    raise UnsupportedModelError(
        f"{running_module()} multiplies its states with a weight in a way{written} that the rule for linear layers "
        "cannot follow: write it with nn.Linear, or take a method with the plain gradient there, such as attn_lrp"
    )
