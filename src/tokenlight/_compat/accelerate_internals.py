"""Private interfaces of accelerate.

accelerate wraps the forward of modules and keeps an object of its own on them. Nothing of it is imported here.
"""

from typing import Any

from torch import nn


def hooks_of(module: nn.Module) -> list[Any]:
    """What accelerate has put around a module."""
    hook = module.__dict__.get("_hf_hook")
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))


def brings_weights(hook: Any) -> bool:
    """Whether a hook brings weights to memory when its module runs."""
    return getattr(hook, "offload", False)


def reaches_below(hook: Any) -> bool:
    """Whether it does so for the modules inside, too."""
    return getattr(hook, "place_submodules", False)


def waiting_weights(hook: Any) -> Any:
    """Where weights wait; None where none do."""
    return getattr(hook, "weights_map", None)


def tied_weights(hook: Any) -> dict[Any, dict[Any, Any]] | None:
    """Weights that several modules share, by their place; written while modules run."""
    return getattr(hook, "tied_params_map", None)


def runs_on(hook: Any) -> Any:
    """The device that a module runs on; None where the hook does not say."""
    return hook.execution_device
