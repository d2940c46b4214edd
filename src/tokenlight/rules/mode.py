"""The strict mode: while it is active, functions in a table {torch function: replacement} are replaced.

A tensor that depends on the input (it requires grad) is called a signal; weights and masks are constants.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, resolve_name

from tokenlight.rules.origins import MULTIPLIED, NEW_ORIGIN, note_origins, refuse_own_source
from tokenlight.rules.primitives import LEDGER, Ledger

Function = Callable[..., Any]
Rule = Callable[..., Any]  # called as rule(function, *args, **kwargs)
RuleTable = dict[Any, Rule]  # torch function (or one of points.py): replacement


class RuleMode(TorchFunctionMode):
    """While active, functions in the table are replaced; a non-linear function of a signal without a rule raises."""

    table: RuleTable
    ledger: Ledger

    def __init__(self, table: RuleTable, ledger: Ledger):
        super().__init__()
        self.table, self.ledger = table, ledger

    def __enter__(self) -> "RuleMode":
        self._token = LEDGER.set(self.ledger)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        LEDGER.reset(self._token)
        super().__exit__(*error)

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in MULTIPLIED:
            refuse_own_source(args, kwargs)
        rule = self.table.get(func)
        result = func(*args, **kwargs) if rule is None else rule(func, *args, **kwargs)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        if rule is None and func not in LINEAR and any(is_signal(part) for part in parts):
            refuse_nonlinear(func, [*args, *kwargs.values()])
        if func not in NEW_ORIGIN:
            note_origins(func, args, kwargs, parts)
        return result


# Linear in their one signal: the plain gradient is the rule.
LINEAR: set[Callable[..., Any]] = {
    *(Tensor.__getitem__, Tensor.contiguous, Tensor.expand, Tensor.flatten, Tensor.mean, Tensor.neg, Tensor.permute),
    *(Tensor.repeat_interleave, Tensor.reshape, Tensor.squeeze, Tensor.sum, Tensor.transpose, Tensor.unsqueeze),
    *(Tensor.view, Tensor.masked_fill, Tensor.clone, Tensor.unflatten, Tensor.repeat),
    *(Tensor.float, Tensor.to, Tensor.type, Tensor.type_as, Tensor.requires_grad_, Tensor.detach),
    *(Tensor.add, Tensor.sub, torch.add, torch.sub, torch.cat, torch.stack, torch.addmm),
    *(torch.repeat_interleave, torch.transpose, torch.reshape, torch.unsqueeze, torch.squeeze, torch.mean),
    *(Tensor.split, Tensor.chunk, Tensor.unbind, torch.split, torch.chunk, torch.unbind),
    *(F.dropout, F.linear),
}
# Linear in either operand, so at most one may be a signal.
PRODUCTS: set[Callable[..., Any]] = {
    Tensor.mul,
    torch.mul,
    torch.matmul,
    Tensor.matmul,
    torch.bmm,
    torch.einsum,
    Tensor.div,
    torch.div,
}


def refuse_nonlinear(function: Function, args: Sequence[Any]) -> None:
    signals = [is_signal(arg) for arg in args]
    divided_by = function in (Tensor.div, torch.div) and signals[1]
    if function in PRODUCTS and sum(signals) == 1 and not divided_by:
        return
    name = resolve_name(function) or getattr(function, "__name__", repr(function))
    raise ValueError(
        f"the rule table has no rule for {name}, which the model applies to its input; "
        "add one: table | {function: rule}, for example tokenlight.rules.identity"
    )


def is_signal(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.requires_grad
