"""Models that accelerate has spread over devices (`device_map`): weights that come to memory while a module runs."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tokenlight.foundation.accelerate_internals import (
    brings_weights,
    hooks_of,
    reaches_below,
    runs_on,
    tied_weights,
    waiting_weights,
)


def brought_weights(model: nn.Module) -> Iterator[tuple[nn.Module, Tensor]]:
    """The weights that are brought to memory when their module runs, and the module whose hook does so."""
    for module in model.modules():
        for hook in hooks_of(module):
            if brings_weights(hook):
                for weight in module.parameters(recurse=reaches_below(hook)):
                    yield module, weight


def shared_with_copy(module: nn.Module, known: Mapping[int, Any]) -> dict[int, Any]:
    """What a copy of the module takes over as it is (where weights wait), or as its own around the same tensors."""
    found: dict[int, Any] = {}
    for hook in hooks_of(module):
        waiting, tied = waiting_weights(hook), tied_weights(hook)
        if waiting is not None:
            found[id(waiting)] = waiting
        if tied is not None and id(tied) not in known:
            found[id(tied)] = {place: dict(copies) for place, copies in tied.items()}
    return found


def device_of(module: nn.Module) -> torch.device:
    """Where a module runs: where its weights are, or are brought to."""
    weight = next(module.parameters())
    if not weight.is_meta:
        return weight.device
    return next(torch.device(device) for hook in hooks_of(module) if (device := runs_on(hook)) is not None)
