"""Which modules are activations: those of transformers' own table, and what a family writes in their place.

Those of torch call one function each, which rule tables know (`ACTIVATIONS` in rules/spellings.py).
"""

import inspect
from contextlib import suppress

import torch
from torch import nn
from torch.nn.modules import activation as torch_activations
from transformers import PreTrainedModel
from transformers.activations import ACT2CLS

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
