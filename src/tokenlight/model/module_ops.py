"""Modules that count as one operation for rules: activations, state spaces, and linear attention.

Activations of torch call one function each, which rule tables contain. Activations that modeling code writes out in
several operations become one operation.

transformers implements a recurrence as a function in each modeling file, which the layers call by its name. In an
instrumented model, such a layer runs the same code, with `scan` of rules/custom_ops.py under that name, which calls the
function. Where a module is the recurrence, the whole module is the operation. Neither the file nor the class changes.
"""

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import activation as torch_activations
from transformers import PreTrainedModel
from transformers.activations import ACT2CLS

from tokenlight._compat.transformers_internals import RECURRENT_GEMMA_SCAN, XLSTM_SCAN
from tokenlight.model.config import largest
from tokenlight.rules.custom_ops import recurrence, scan
from tokenlight.rules.rectifiers import is_identity, is_rectifier

CLASSES: set[type[nn.Module]] = {
    entry[0] if isinstance(entry, tuple) else entry  # some are pairs (class, arguments)
    for entry in ACT2CLS.values()
}
BOUNDED = (nn.Tanh, nn.Sigmoid, nn.Hardsigmoid, nn.Softsign)
WRITTEN_OUT: tuple[type[nn.Module], ...] = tuple(
    kind for kind in CLASSES if kind not in vars(torch_activations).values()
)


def is_written_out(module: nn.Module) -> bool:
    """Whether a module is an activation that may compute its formula in several operations."""
    return isinstance(module, WRITTEN_OUT) or is_own_activation(module)


def is_own_activation(module: nn.Module) -> bool:
    """Whether a family's own module without weights is an activation, such as BLOOM's GELU.

    It must work elementwise, not be linear, and grow no faster than its input: a power is a product of a signal with
    itself, not an activation.
    """
    if type(module).__module__.startswith("torch.") or module.state_dict() or any(True for _ in module.children()):
        return False
    if len(inspect.signature(module.forward).parameters) != 1:
        return False
    x = torch.tensor([[-2.0, -0.5, 0.3], [0.7, 1.0, 3.0]])
    with torch.no_grad(), suppress(Exception):  # what cannot read two rows of three numbers is no activation
        result = module(x)
        linear = torch.equal(module(2 * x), 2 * result) and torch.equal(module(-x), -result)
        return torch.equal(result.mT, module(x.mT)) and not linear and bool((result.abs() <= x.abs() + 1).all())
    return False


def rectifies_only(model: PreTrainedModel) -> bool:
    """Whether all activations among a model's modules are ReLUs, apart from bounded ones such as a pooler's tanh."""
    activations = [module for module in model.modules() if isinstance(module, tuple(CLASSES)) or is_written_out(module)]
    activations = [module for module in activations if not isinstance(module, BOUNDED)]
    return any(map(is_relu, activations)) and all(
        is_relu(module) or is_identity_module(module) for module in activations
    )


def is_relu(module: nn.Module) -> bool:
    """Whether a module is a ReLU, perhaps squared or bounded above."""
    return not any(True for _ in module.parameters()) and is_rectifier(module, torch.zeros(()))


def is_identity_module(module: nn.Module) -> bool:
    return not any(True for _ in module.parameters()) and is_identity(module, torch.zeros(()))


# For each recurrence, the argument that it is linear in, which is written into the state. The other arguments say how
# the state decays, is written and is read.
WRITTEN: dict[str, str] = {
    "mamba_selective_scan": "hidden_states",  # Mamba, Falcon-Mamba, Jamba, Zamba
    "mamba2_chunk_scan": "hidden_states",  # Mamba 2 and the hybrids with it
    "torch_chunk_gated_delta_rule": "value",  # gated delta nets
    "chunk_kimi_delta_attention": "value",
    "rwkv_linear_attention": "value",
}
# Modules that are a recurrence, by the name of the method that their code calls.
WRITTEN_BY_MODULES: dict[str, str] = {
    RECURRENT_GEMMA_SCAN: "activations",  # whose gates and discretization are computed from the same
    XLSTM_SCAN: "value",
}
# Kinds of layers that pass information between tokens by other operations than attention.
OTHER_KINDS = {"linear_attention", "conv", "mamba", "mamba2", "hybrid", "recurrent"}
DECAY = "A_log"  # the decay of a state space: a weight of all of them, also where the recurrence is not a function
GATE = "z"  # an argument that Mamba's scan multiplies its result with


def recurrences_in(module: nn.Module) -> list[str]:
    """The names of the recurrences that a module's own code calls."""
    return [name for name in names_in(module) if name in WRITTEN]


def written_by(module: nn.Module) -> str | None:
    """The argument that a module which is a recurrence writes into its state; None for other modules."""
    arguments = [WRITTEN_BY_MODULES[name] for name in names_in(module) if name in WRITTEN_BY_MODULES]
    return arguments[0] if arguments and arguments[0] in inspect.signature(type(module).forward).parameters else None


def names_in(module: nn.Module) -> tuple[str, ...]:
    """The names of functions and attributes in the code of a module's forward."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return () if code is None else code.co_names


def has_custom_ops(model: nn.Module) -> bool:
    """Whether a model has a recurrence over the tokens that rules can replace."""
    return any(recurrences_in(module) or written_by(module) for module in model.modules())


def has_states(model: nn.Module) -> bool:
    """Whether any layer passes information between tokens by a recurrence."""
    return has_custom_ops(model) or any(hasattr(module, DECAY) for module in model.modules())


def attends_alone(model: PreTrainedModel) -> bool:
    """Whether information passes between tokens by attention alone, as far as the configuration and modules show."""
    config = model.config.get_text_config()
    kinds = [kind for name in ("layer_types", "layers_block_type") for kind in getattr(config, name, None) or ()]
    others = any(kind in OTHER_KINDS for kind in kinds)
    return largest(config, "num_attention_heads") > 0 and not others and not has_states(model)


def make_recurrences_replaceable(module: nn.Module) -> None:
    """Replace the recurrence in a module of an instrumented model by an operation that rules can replace."""
    names, written = recurrences_in(module), written_by(module)
    if "forward" in vars(module):
        return
    if written is not None:
        module.forward = as_custom_op(module.forward, written, recurrence)
    elif names:
        forward: Any = type(module).forward
        module.forward = with_custom_ops(forward, names).__get__(module)


def with_custom_ops(forward: FunctionType, names: list[str]) -> FunctionType:
    """A function with the same code that calls `scan` in place of these functions; its decorators are kept."""
    inner: Any = getattr(forward, "__wrapped__", None)
    if inner is None:
        namespace = forward.__globals__
        namespace = {**namespace, **{name: as_custom_op(namespace[name], WRITTEN[name]) for name in names}}
        cells = forward.__closure__
    else:
        namespace, changed = forward.__globals__, CellType(with_custom_ops(inner, names))
        cells = tuple(changed if cell.cell_contents is inner else cell for cell in forward.__closure__ or ())
    replaced = FunctionType(forward.__code__, namespace, forward.__name__, forward.__defaults__, cells)
    replaced.__kwdefaults__ = forward.__kwdefaults__
    return replaced


def as_custom_op(function: Callable[..., Any], written: str, op: Callable[..., Any] = scan) -> Callable[..., Any]:
    """The recurrence as a custom op that rules can replace. A gate is multiplied with its result afterwards."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        named = dict(bound.arguments)
        named |= named.pop("kwargs", {})
        gate = named.pop(GATE, None)
        result = op(named.pop(written), named, lambda values, others: function(**{written: values, **others}))
        if gate is None:
            return result
        return result * F.silu(gate) if not isinstance(result, tuple) else (result[0] * F.silu(gate), *result[1:])

    return call
