"""The strict mode: a TorchFunctionMode that applies a rule table and refuses operations without a rule.

A tensor that depends on the input (it requires grad) is called a signal; weights and masks are constants.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tokenlight._compat.torch_internals import changes_of, is_callers_own, maker, own_function, storage_of
from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.rules.autograd_functions import KNOWN_AUTOGRAD_FUNCTIONS
from tokenlight.rules.custom_ops import activation, weight_product
from tokenlight.rules.in_place import overwrite
from tokenlight.rules.ledger import LEDGER, PENDING_SHARES, Ledger, PendingShares
from tokenlight.rules.ops import Function, OpSpec, functions_of, op_spec
from tokenlight.rules.rectifiers import as_function_of, chosen_signal, is_lower_bound, tag_comparison
from tokenlight.rules.tags import (
    example_ids_at,
    is_followed,
    is_gate,
    is_weight,
    name_of,
    propagate_gate,
    refuse_own_source,
    running_module,
    share_origins,
    tag_example_ids,
    tag_followed,
    tag_origins,
    tag_weights,
    tensors,
    was_followed,
)
from tokenlight.rules.weight_products import as_linear_layers

Rule = Callable[..., Any]  # called as rule(function, *args, **kwargs)
RuleTable = dict[Any, Rule]  # torch function (or custom op): replacement
METADATA = set(functions_of("metadata"))


class RuleMode(TorchFunctionMode):
    """While active, functions in the table are replaced; a non-linear function of a signal without a rule raises."""

    table: RuleTable
    ledger: Ledger
    pending_shares: PendingShares | None  # None: hooks compute the shares of constants during the backward pass

    def __init__(
        self,
        table: RuleTable,
        ledger: Ledger,
        pending_shares: PendingShares | None = None,
        *,
        only_our_leaves: bool = False,
        buffers: Collection[int] = (),  # storages of buffers that count as weights
    ):
        super().__init__()
        self._weight_storages = frozenset(buffers)
        self.table, self.ledger, self.pending_shares = table, ledger, pending_shares
        self._only_our_leaves = only_our_leaves  # the caller's leaves, such as trainable vectors, are constants
        self._trusted: set[type] = set()  # types of graph nodes that were checked, or that rules created
        self._written: set[int] = set()  # memory that operations wrote into

    def __enter__(self) -> "RuleMode":
        if self.pending_shares:  # left from a forward pass that is repeated
            self.pending_shares.clear()
        self._tokens = LEDGER.set(self.ledger), PENDING_SHARES.set(self.pending_shares)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        ledger_token, shares_token = self._tokens
        LEDGER.reset(ledger_token)
        PENDING_SHARES.reset(shares_token)
        super().__exit__(*error)

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in METADATA:
            return func(*args)
        return self.call(func, *args, **(kwargs or {}))

    def call(self, func: Function, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function under the rules. Short texts spend much time here, so each fact is looked up once."""
        if kwargs and not args:
            args, kwargs = positional_operands(kwargs)
        spec, ledger, trusted = op_spec(func), self.ledger, self._trusted
        involved: list[Tensor] = []
        for argument in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(argument, Tensor):
                involved.append(argument)
            elif isinstance(argument, (tuple, list)):
                involved += tensors(argument)
        signals = [x for x in involved if x.requires_grad]
        for signal in signals:
            if self._only_our_leaves and signal.grad_fn is None and is_callers_own(signal):
                return self.call(func, *map(without_callers_own, args), **map_values(without_callers_own, kwargs))
            if type(signal.grad_fn) not in trusted or not is_followed(signal):
                self._look_at(signal)
        if spec.plain_form is not None and signals:
            return self._overwrite(spec.plain_form, *args, **kwargs)
        if kwargs and signals and kwargs.get("inplace"):  # as torch's modules call their activations
            return self._overwrite(func, *args, **{**kwargs, "inplace": False})
        rule = self.table.get(func)
        if spec.decompose is not None:
            is_layer = spec.kind == "linear_layer"
            is_kept = is_linear_layer(func, signals, args, kwargs) if is_layer else rule is not None or not signals
            if not is_kept:
                return spec.decompose(self.call, *args, **kwargs)
        if len(signals) == 1 and spec.kind == "matrix_product" and weight_product in self.table:
            product = as_linear_layers(self.call, func, args, kwargs, self._is_weight)
            if product is not None:
                return product
        ends_activation = spec.ends_activation or (spec.ends_with_gate and joins_own_gate(func, args, kwargs))
        if ends_activation and share_origins(involved):
            func, rule, args = as_activation(func, self.table[activation], *involved)
            spec, kwargs = op_spec(activation), {}
        elif signals and (rectified := self._rectified(func, spec, args, kwargs, involved, signals)) is not None:
            func, rule = as_function_of(func, args, kwargs, rectified), self.table[activation]
            args = (rectified,)
            spec, kwargs = op_spec(activation), {}
        if ledger.disordered:
            ledger.example_ids = example_ids_at(spec, args, involved)
        result = func(*args, **kwargs) if rule is None else rule(func, *args, **kwargs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        for element in results:
            if isinstance(element, Tensor):
                element.tokenlight_followed = changes_of(element)  # type: ignore[attr-defined]
                if rule is not None and element.requires_grad:
                    self._trusted.add(type(element.grad_fn))
            elif isinstance(element, (tuple, list)):
                tag_followed(element)
        if weight_product in self.table and self._makes_weight(spec, involved, signals):
            tag_weights(results)
        if (spec.compares or spec.keeps_comparison) and involved:
            tag_comparison(spec, involved, result)
        if rule is None and not spec.linear and any(is_signal(element) for element in results):
            refuse_nonlinear(func, [*args, *kwargs.values()])
        if spec.keeps_gate and (not spec.first_decides or is_gate(involved[0])):
            propagate_gate(involved[:1] if spec.first_decides else involved, results)
        if ledger.batch > 1 and signals and (ledger.disordered or spec.may_reorder):
            ledger.disordered |= tag_example_ids(func, spec, args, kwargs, results, ledger.batch)
        if not spec.new_source:
            tag_origins(spec, involved, results)
        return result

    def _rectified(
        self,
        func: Function,
        spec: OpSpec,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        involved: Sequence[Tensor],
        signals: Sequence[Tensor],
    ) -> Tensor | None:
        """The signal that an operation rectifies, by a bound at 0 or a choice by the signal's sign; or None."""
        if spec.chooses:
            return chosen_signal(involved, signals)
        if spec.bounds and len(signals) == 1 and is_lower_bound(func, args, kwargs, signals[0]):
            return signals[0]
        return None

    def _is_weight(self, x: Any) -> bool:
        """Whether a tensor is a parameter, computed from one, or a buffer that is saved with the model."""
        return is_weight(x) or bool(
            self._weight_storages and isinstance(x, Tensor) and storage_of(x) in self._weight_storages
        )

    def _makes_weight(self, spec: OpSpec, involved: Sequence[Tensor], signals: Sequence[Tensor]) -> bool:
        """Whether an operation's result is a weight: elements of a weight, or a weight plus constants."""
        if spec.kind in ("move", "cast"):
            return bool(involved) and self._is_weight(involved[0])
        return spec.keeps_weight and not signals and any(map(self._is_weight, involved))

    def inspect_output(self, output: Any) -> None:
        """Check the model's output, which no later operation under this mode reads."""
        for signal in tensors(output.values() if isinstance(output, Mapping) else (output,)):
            if signal.requires_grad:
                self._look_at(signal)

    def _overwrite(self, plain: Function, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = overwrite(self.call, plain, x, *args, **kwargs)
        self._written.add(x.untyped_storage().data_ptr())
        return result

    def _is_followed(self, signal: Tensor) -> bool:
        """Whether this mode saw every write to the signal, or to a tensor that shares its memory."""
        return is_followed(signal) or (was_followed(signal) and signal.untyped_storage().data_ptr() in self._written)

    def _look_at(self, signal: Tensor) -> None:
        """Refuse a signal that a custom autograd function or an unseen operation has made."""
        function = own_function(signal)
        if function is not None and function not in KNOWN_AUTOGRAD_FUNCTIONS:
            refuse_foreign(function)
        if function is None and not signal.is_leaf and not self._is_followed(signal):
            refuse_unseen(signal)
        self._trusted.add(maker(signal))


def without_callers_own(argument: Any) -> Any:
    """The argument, with the caller's own trainable tensors detached."""
    if isinstance(argument, Tensor):
        if not is_callers_own(argument):
            return argument
        constant = argument.detach()
        if is_weight(argument):
            tag_weights((constant,))
        return constant
    return type(argument)(map(without_callers_own, argument)) if type(argument) in (tuple, list) else argument


def map_values(function: Callable[[Any], Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: function(value) for name, value in values.items()}


def as_activation(func: Function, rule: Rule, a: Tensor, b: Tensor) -> tuple[Function, Rule, tuple[Tensor]]:
    """The last product of an activation that is written out, signal times gate, as a call of an activation."""
    if is_gate(a) == is_gate(b):
        refuse_own_source()
    signal, gate = (b, a) if is_gate(a) else (a, b)
    return lambda x: func(x, gate), rule, (signal,)


def positional_operands(kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make operands that are given by keyword positional, as rules expect: torch.add(input=a, other=b)."""
    names: tuple[str, ...] = ()
    if "input" in kwargs and "condition" not in kwargs:
        names = ("input", "other") if "other" in kwargs else ("input",)
    return tuple(kwargs[name] for name in names), {name: x for name, x in kwargs.items() if name not in names}


def joins_own_gate(func: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether this may be the last operation of an activation: x / (1 + exp(-x)), or x / 2 + x / 2 * erf(x)."""
    if kwargs or len(args) != 2 or not all(isinstance(argument, Tensor) for argument in args):
        return False
    first, second = map(is_gate, args)
    return second and not first and is_signal(args[0]) if op_spec(func).kind == "quotient" else first != second


def is_linear_layer(func: Function, signals: Sequence[Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the states are the only signal of a linear layer, and its arguments are as rules expect."""
    if func is torch.addmm and (kwargs or len(args) != 3):
        return False
    states = args[1] if func is torch.addmm else args[0] if args else kwargs.get("input")
    return not signals or (len(signals) == 1 and states is signals[0])


# Linear in either operand, so at most one may be a signal.
PRODUCTS = ("product", "matrix_product", "quotient")  # kinds


def refuse_nonlinear(function: Function, args: Sequence[Any]) -> None:
    kind = op_spec(function).kind
    divided_by = kind == "quotient" and is_signal(args[1])
    if kind in PRODUCTS and sum(map(is_signal, tensors(args))) == 1 and not divided_by:
        return
    raise RefusedValue(
        f"the rule table has no rule for {name_of(function)}, which the model applies to its input; "
        "add one: table | {function: rule}, for example tokenlight.rules.identity"
    )


def refuse_foreign(function: Any) -> None:
    """Refuse a custom autograd function. The mode does not see its call, only its output."""
    raise UnsupportedModelError(
        f"{running_module()} uses the output of {function.__name__}, a custom autograd function, which no rule can "
        "follow. Use operations of torch instead, or make it one operation with "
        "tokenlight.rules.custom_ops.activation(x, formula) if it is an activation"
    )


def refuse_unseen(signal: Tensor) -> None:
    """Refuse the output of compiled code, whose operations no mode sees."""
    raise UnsupportedModelError(
        f"{running_module()} uses the output of {maker(signal).__name__}, which code outside of Python has computed, "
        "such as a function of torch.jit.script or torch.vmap: no rule can follow it. Call the function itself, or "
        "take a method that uses plain gradients, such as gradient_x_input"
    )


def is_signal(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.requires_grad
