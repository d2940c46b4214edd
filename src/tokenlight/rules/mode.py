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
from tokenlight.rules.autograd_functions import OURS
from tokenlight.rules.custom_ops import activation, weigh
from tokenlight.rules.in_place import overwrite
from tokenlight.rules.ledger import LEDGER, WAITING, Ledger, Waiting
from tokenlight.rules.ops import Function, OpSpec, functions_of, op_spec
from tokenlight.rules.rectifiers import chosen_signal, is_lower_bound, note_comparison, with_signal
from tokenlight.rules.tags import (
    hand_on_gate,
    has_mark,
    have_one_source,
    is_followed,
    is_gate,
    is_weight,
    mark_followed,
    mark_weights,
    name_of,
    note_origins,
    note_owners,
    owners_at,
    refuse_own_source,
    running_module,
    tensors,
)
from tokenlight.rules.weighing import as_linear_layers

Rule = Callable[..., Any]  # called as rule(function, *args, **kwargs)
RuleTable = dict[Any, Rule]  # torch function (or custom op): replacement
METADATA = set(functions_of("metadata"))


class RuleMode(TorchFunctionMode):
    """While active, functions in the table are replaced; a non-linear function of a signal without a rule raises."""

    table: RuleTable
    ledger: Ledger
    waiting: Waiting | None  # None: constants take their shares while the backward pass runs, if it comes by them

    def __init__(
        self,
        table: RuleTable,
        ledger: Ledger,
        waiting: Waiting | None = None,
        *,
        only_our_leaves: bool = False,
        buffers: Collection[int] = (),  # where the numbers of buffers that count as weights are in memory
    ):
        super().__init__()
        self._weight_storages = frozenset(buffers)
        self.table, self.ledger, self.waiting = table, ledger, waiting
        self._only_our_leaves = only_our_leaves  # leaves of the caller's, such as trainable vectors, are constants
        self._trusted: set[type] = set()  # kinds of nodes in the graph that were looked at, or that rules made
        self._written: set[int] = set()  # memory that operations wrote into

    def __enter__(self) -> "RuleMode":
        if self.waiting:  # a forward pass that has to begin again
            self.waiting.clear()
        self._tokens = LEDGER.set(self.ledger), WAITING.set(self.waiting)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        ledger, waiting = self._tokens
        LEDGER.reset(ledger)
        WAITING.reset(waiting)
        super().__exit__(*error)

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in METADATA:
            return func(*args)
        return self.call(func, *args, **(kwargs or {}))

    def call(self, func: Function, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function under the rules. A short text spends much of its time here: what is asked is asked once."""
        if kwargs and not args:
            args, kwargs = in_order(kwargs)
        spec, ledger, trusted = op_spec(func), self.ledger, self._trusted
        involved: list[Tensor] = []
        for part in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(part, Tensor):
                involved.append(part)
            elif isinstance(part, (tuple, list)):
                involved += tensors(part)
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
            layer = spec.kind == "linear_layer"
            kept = is_linear_layer(func, signals, args, kwargs) if layer else rule is not None or not signals
            if not kept:
                return spec.decompose(self.call, *args, **kwargs)
        if len(signals) == 1 and spec.kind == "matrix_product" and weigh in self.table:
            product = as_linear_layers(self.call, func, args, kwargs, self._is_weight)
            if product is not None:
                return product
        ends_activation = spec.ends_activation or (spec.ends_with_gate and joins_own_gate(func, args, kwargs))
        if ends_activation and have_one_source(involved):
            func, rule, args = as_activation(func, self.table[activation], *involved)
            spec, kwargs = op_spec(activation), {}
        elif signals and (rectified := self._rectified(func, spec, args, kwargs, involved, signals)) is not None:
            func, rule, args = with_signal(func, args, kwargs, rectified), self.table[activation], (rectified,)
            spec, kwargs = op_spec(activation), {}
        if ledger.disordered:
            ledger.owners = owners_at(spec, args, involved)
        result = func(*args, **kwargs) if rule is None else rule(func, *args, **kwargs)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        for part in parts:
            if isinstance(part, Tensor):
                part.tokenlight_followed = changes_of(part)  # type: ignore[attr-defined]
                if rule is not None and part.requires_grad:
                    self._trusted.add(type(part.grad_fn))
            elif isinstance(part, (tuple, list)):
                mark_followed(part)
        if weigh in self.table and self._makes_weight(spec, involved, signals):
            mark_weights(parts)
        if (spec.compares or spec.keeps_comparison) and involved:
            note_comparison(spec, involved, result)
        if rule is None and not spec.linear and any(is_signal(part) for part in parts):
            refuse_nonlinear(func, [*args, *kwargs.values()])
        if spec.keeps_gate and (not spec.first_decides or is_gate(involved[0])):
            hand_on_gate(involved[:1] if spec.first_decides else involved, parts)
        if ledger.batch > 1 and signals and (ledger.disordered or spec.may_reorder):
            ledger.disordered |= note_owners(func, spec, args, kwargs, parts, ledger.batch)
        if not spec.new_source:
            note_origins(spec, involved, parts)
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
        """The signal that an operation applies an activation to: a bound at 0, or a choice by the signal's own sign."""
        if spec.chooses:
            return chosen_signal(involved, signals)
        if spec.bounds and len(signals) == 1 and is_lower_bound(func, args, kwargs, signals[0]):
            return signals[0]
        return None

    def _is_weight(self, x: Any) -> bool:
        """A parameter or what was computed from one, or a buffer that is saved with the model."""
        return is_weight(x) or bool(
            self._weight_storages and isinstance(x, Tensor) and storage_of(x) in self._weight_storages
        )

    def _makes_weight(self, spec: OpSpec, involved: Sequence[Tensor], signals: Sequence[Tensor]) -> bool:
        """Whether what comes out of an operation is a weight: elements of one, or one that constants are added to."""
        if spec.kind in ("move", "cast"):
            return bool(involved) and self._is_weight(involved[0])
        return spec.keeps_weight and not signals and any(map(self._is_weight, involved))

    def look_at_output(self, output: Any) -> None:
        """What the model gives out is read by no operation that would be seen."""
        for signal in tensors(output.values() if isinstance(output, Mapping) else (output,)):
            if signal.requires_grad:
                self._look_at(signal)

    def _overwrite(self, plain: Function, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = overwrite(self.call, plain, x, *args, **kwargs)
        self._written.add(x.untyped_storage().data_ptr())
        return result

    def _is_followed(self, signal: Tensor) -> bool:
        """Whether all that was written into it was seen: it, or a tensor that it shares its memory with."""
        return is_followed(signal) or (has_mark(signal) and signal.untyped_storage().data_ptr() in self._written)

    def _look_at(self, signal: Tensor) -> None:
        """At what made it: one of torch's own operations, of ours, or somebody else's."""
        function = own_function(signal)
        if function is not None and function not in OURS:
            refuse_foreign(function)
        if function is None and not signal.is_leaf and not self._is_followed(signal):
            refuse_unseen(signal)
        self._trusted.add(maker(signal))


def without_callers_own(part: Any) -> Any:
    """The same argument, where tensors of the caller's that require a gradient are constants."""
    if isinstance(part, Tensor):
        if not is_callers_own(part):
            return part
        constant = part.detach()
        if is_weight(part):
            mark_weights((constant,))
        return constant
    return type(part)(map(without_callers_own, part)) if type(part) in (tuple, list) else part


def map_values(change: Callable[[Any], Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: change(part) for name, part in parts.items()}


def as_activation(func: Function, rule: Rule, a: Tensor, b: Tensor) -> tuple[Function, Rule, tuple[Tensor]]:
    """An activation that is written out ends with a signal times a gate that was computed from it."""
    if is_gate(a) == is_gate(b):
        refuse_own_source()
    signal, gate = (b, a) if is_gate(a) else (a, b)
    return lambda x: func(x, gate), rule, (signal,)


def in_order(named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands of a function that is called by keywords, as rules expect them: torch.add(input=a, other=b)."""
    first = () if "condition" in named or "input" not in named else ("input", *(("other",) if "other" in named else ()))
    return tuple(named[name] for name in first), {name: part for name, part in named.items() if name not in first}


def joins_own_gate(func: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an activation that is written out may end here: x / (1 + exp(-x)), or x / 2 + x / 2 * erf(x)."""
    if kwargs or len(args) != 2 or not all(isinstance(part, Tensor) for part in args):
        return False
    first, second = map(is_gate, args)
    return second and not first and is_signal(args[0]) if op_spec(func).kind == "quotient" else first != second


def is_linear_layer(func: Function, signals: Sequence[Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a linear layer reads at most one signal, as its states, and is called as rules expect it."""
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
    """An autograd function of somebody's own does not come by here: it is noticed by what it made."""
    raise UnsupportedModelError(
        f"{running_module()} uses the output of {function.__name__}, a custom autograd function, which no rule can "
        "follow. Use operations of torch instead, or make it one operation with "
        "tokenlight.rules.custom_ops.activation(x, formula) if it is an activation"
    )


def refuse_unseen(signal: Tensor) -> None:
    """Compiled code calls operations that no mode sees."""
    raise UnsupportedModelError(
        f"{running_module()} uses the output of {maker(signal).__name__}, which code outside of Python has computed, "
        "such as a function of torch.jit.script or torch.vmap: no rule can follow it. Call the function itself, or "
        "take a method that uses plain gradients, such as gradient_x_input"
    )


def is_signal(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.requires_grad
