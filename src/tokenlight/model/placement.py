"""Models that accelerate has spread over devices (`device_map`): weights that come to memory while a module runs.

accelerate wraps the forward of modules and keeps its own object in `_hf_hook`. Nothing of it is imported here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def hooks_of(module: nn.Module) -> list[Any]:
    """What accelerate has put around a module."""
    hook = module.__dict__.get("_hf_hook")
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))


def brought_weights(model: nn.Module) -> Iterator[tuple[nn.Module, Tensor]]:
    """The weights that are brought to memory when their module runs, and the module whose hook does so."""
    for module in model.modules():
        for hook in hooks_of(module):
            if getattr(hook, "offload", False):
                for weight in module.parameters(recurse=getattr(hook, "place_submodules", False)):
                    yield module, weight


def shared_with_copy(module: nn.Module, known: Mapping[int, Any]) -> dict[int, Any]:
    """What a copy of the module takes over as it is (where weights wait), or as its own around the same tensors."""
    found: dict[int, Any] = {}
    for hook in hooks_of(module):
        waiting, tied = getattr(hook, "weights_map", None), getattr(hook, "tied_params_map", None)
        if waiting is not None:
            found[id(waiting)] = waiting
        if tied is not None and id(tied) not in known:  # written while modules run
            found[id(tied)] = {place: dict(copies) for place, copies in tied.items()}
    return found


def device_of(module: nn.Module) -> torch.device:
    """Where a module runs: where its weights are, or are brought to."""
    weight = next(module.parameters())
    if not weight.is_meta:
        return weight.device
    return next(torch.device(hook.execution_device) for hook in hooks_of(module) if hook.execution_device is not None)
