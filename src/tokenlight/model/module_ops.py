"""Modules that count as one operation: activations, state spaces, and linear attention.

Those of torch call one function each, which rule tables know (`ACTIVATIONS` in rules/spellings.py).

transformers writes it as a function of each modeling file, which the layers call by its name. In an instrumented
model, such a layer
runs the same code, but finds `scan` of rules/points.py under that name, with the function inside. Where a module is the
recurrence, all of the module is the operation. Nothing is copied, and neither the file nor the class changes.
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
    entry[0] if isinstance(entry, tuple) else entry  # some come with settings
    for entry in ACT2CLS.values()
}
LEVEL_OFF = (nn.Tanh, nn.Sigmoid, nn.Hardsigmoid, nn.Softsign)
WRITTEN_OUT: tuple[type[nn.Module], ...] = tuple(
    kind for kind in CLASSES if kind not in vars(torch_activations).values()
)


def is_written_out(module: nn.Module) -> bool:
    """Whether a module is an activation that may write its formula out in several operations."""
    return isinstance(module, WRITTEN_OUT) or is_own_activation(module)


def is_own_activation(module: nn.Module) -> bool:
    """Whether a family's own module without weights works number by number, is not linear, and grows no faster than
    its input, as BLOOM's GELU: a power is a product of a signal with itself, not an activation."""
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
    """Whether the activations among a model's modules are ReLUs, but for those that level off, such as a pooler's."""
    found = [module for module in model.modules() if isinstance(module, tuple(CLASSES)) or is_written_out(module)]
    found = [module for module in found if not isinstance(module, LEVEL_OFF)]
    return any(map(is_relu, found)) and all(is_relu(module) or does_nothing(module) for module in found)


def is_relu(module: nn.Module) -> bool:
    """Also one that is squared or bounded above."""
    return not any(True for _ in module.parameters()) and is_rectifier(module, torch.zeros(()))


def does_nothing(module: nn.Module) -> bool:
    return not any(True for _ in module.parameters()) and is_identity(module, torch.zeros(()))


# What each is linear in: the argument that goes into the state. All others say how the state is kept, written and read.
WRITTEN: dict[str, str] = {
    "mamba_selective_scan": "hidden_states",  # Mamba, Falcon-Mamba, Jamba, Zamba
    "mamba2_chunk_scan": "hidden_states",  # Mamba 2 and the hybrids with it
    "torch_chunk_gated_delta_rule": "value",  # gated delta nets
    "chunk_kimi_delta_attention": "value",
    "rwkv_linear_attention": "value",
}
# Modules that are a recurrence, by what their own code calls on themselves.
WRITTEN_BY_MODULES: dict[str, str] = {
    RECURRENT_GEMMA_SCAN: "activations",  # whose gates and discretization are computed from the same
    XLSTM_SCAN: "value",
}
OTHER_KINDS = {"linear_attention", "conv", "mamba", "mamba2", "hybrid", "recurrent"}  # of layers: not attention alone
DECAY = (
    "A_log"  # how fast a state space forgets: a weight of all, also where their recurrence is no function of its own
)
GATE = "z"  # an argument that Mamba's scan multiplies its result with


def recurrences_in(module: nn.Module) -> list[str]:
    """The names of the recurrences that a module's own code calls."""
    return [name for name in names_in(module) if name in WRITTEN]


def written_by(module: nn.Module) -> str | None:
    """Of a module that is a recurrence: the argument that goes into its state."""
    found = [WRITTEN_BY_MODULES[name] for name in names_in(module) if name in WRITTEN_BY_MODULES]
    return found[0] if found and found[0] in inspect.signature(type(module).forward).parameters else None


def names_in(module: nn.Module) -> tuple[str, ...]:
    """All that a module's own code calls or asks for by name."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return () if code is None else code.co_names


def has_recurrences(model: nn.Module) -> bool:
    """Whether a recurrence over the tokens is an operation that rules can replace."""
    return any(recurrences_in(module) or written_by(module) for module in model.modules())


def has_states(model: nn.Module) -> bool:
    """Whether tokens reach each other by a recurrence, in all blocks or in some, or beside attention."""
    return has_recurrences(model) or any(hasattr(module, DECAY) for module in model.modules())


def attends_alone(model: PreTrainedModel) -> bool:
    """Whether tokens reach each other by attention and by nothing else, as far as the model says."""
    config = model.config.get_text_config()
    kinds = [kind for name in ("layer_types", "layers_block_type") for kind in getattr(config, name, None) or ()]
    others = any(kind in OTHER_KINDS for kind in kinds)
    return largest(config, "num_attention_heads") > 0 and not others and not has_states(model)


def make_recurrences_replaceable(module: nn.Module) -> None:
    """In a module of an instrumented model."""
    names, written = recurrences_in(module), written_by(module)
    if "forward" in vars(module):
        return
    if written is not None:
        module.forward = as_recurrence(module.forward, written, recurrence)
    elif names:
        forward: Any = type(module).forward
        module.forward = calling_recurrence(forward, names).__get__(module)


def calling_recurrence(forward: FunctionType, names: list[str]) -> FunctionType:
    """The same code, with `scan` in place of these functions; a decorator around it stays around it."""
    inner: Any = getattr(forward, "__wrapped__", None)
    if inner is None:
        space = forward.__globals__
        space, cells = (
            {**space, **{name: as_recurrence(space[name], WRITTEN[name]) for name in names}},
            forward.__closure__,
        )
    else:
        space, changed = forward.__globals__, CellType(calling_recurrence(inner, names))
        cells = tuple(changed if cell.cell_contents is inner else cell for cell in forward.__closure__ or ())
    made = FunctionType(forward.__code__, space, forward.__name__, forward.__defaults__, cells)
    made.__kwdefaults__ = forward.__kwdefaults__
    return made


def as_recurrence(function: Callable[..., Any], written: str, point: Callable[..., Any] = scan) -> Callable[..., Any]:
    """A recurrence as an operation that rules know. The gate is a product like any other, behind it."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        named = dict(bound.arguments)
        named |= named.pop("kwargs", {})
        gate = named.pop(GATE, None)
        result = point(named.pop(written), named, lambda values, others: function(**{written: values, **others}))
        if gate is None:
            return result
        return result * F.silu(gate) if not isinstance(result, tuple) else (result[0] * F.silu(gate), *result[1:])

    return call
