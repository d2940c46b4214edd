"""Which modules are activations: those of transformers' own table.

Those of torch call one function each, which rule tables know (`ACTIVATIONS` in rules/tables.py).
"""

from torch import nn
from torch.nn.modules import activation as torch_activations
from transformers.activations import ACT2CLS

CLASSES: set[type[nn.Module]] = {
    entry[0] if isinstance(entry, tuple) else entry  # some come with settings
    for entry in ACT2CLS.values()
}
WRITTEN_OUT: tuple[type[nn.Module], ...] = tuple(
    kind for kind in CLASSES if kind not in vars(torch_activations).values()
)


def is_written_out(module: nn.Module) -> bool:
    """Whether a module is an activation that may write its formula out in several operations."""
    return isinstance(module, WRITTEN_OUT)
