"""Private interfaces of accelerate.

accelerate wraps the forward of modules and stores a hook object on them. accelerate is not imported here.
"""

from typing import Any

from torch import nn


def hooks_of(module: nn.Module) -> list[Any]:
    """The hooks that accelerate has put around a module's forward."""
    hook = module.__dict__.get("_hf_hook")
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))


def brings_weights(hook: Any) -> bool:
    """Whether a hook loads offloaded weights when its module runs."""
    return getattr(hook, "offload", False)


def reaches_below(hook: Any) -> bool:
    """Whether a hook loads the weights of submodules, too."""
    return getattr(hook, "place_submodules", False)


def offloaded_weights(hook: Any) -> Any:
    """The mapping that offloaded weights are stored in; None where there is none."""
    return getattr(hook, "weights_map", None)


def tied_weights(hook: Any) -> dict[Any, dict[Any, Any]] | None:
    """Loaded weights that several modules share, by address; written while modules run."""
    return getattr(hook, "tied_params_map", None)


def runs_on(hook: Any) -> Any:
    """The device that a module runs on; None where the hook does not set one."""
    return hook.execution_device


def name_of_forward(module: nn.Module) -> str:
    """The attribute that runs a module's own code, with its weights loaded; "forward" where there is no hook."""
    return "_old_forward" if "_old_forward" in vars(module) else "forward"
