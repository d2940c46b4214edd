"""Private interfaces of torch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
HOOKS = (*FORWARD_HOOKS, *BACKWARD_HOOKS)
WEIGHTS = "_parameters"  # the attribute of a module that holds its parameters
# Words of torch's RuntimeErrors for full memory.
FULL = ("not enough memory", "DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def without_torch_functions() -> AbstractContextManager[Any]:
    """Disable all TorchFunctionModes inside the context."""
    return torch._C.DisableTorchFunction()


@contextmanager
def refusing_checkpointing(reason: str) -> Iterator[None]:
    """Raise an error with this reason where a graph would recompute tensors in the backward pass (checkpointing).

    Saved-tensor hooks that are active around the context stay: they store the tensors of every graph in the same way.
    """
    with ExitStack() as stack:
        with suppress(RuntimeError):  # raised where saved-tensor hooks are active
            stack.enter_context(torch.autograd.graph.disable_saved_tensors_hooks(reason))
        yield


def changes_of(tensor: Tensor) -> int:
    """The version of a tensor: the number of in-place writes, without those through `.data`."""
    return tensor._version


def begin_signal(tensor: Tensor) -> Tensor:
    """Make a tensor without a graph a leaf that requires a gradient, in place, and tag it as tokenlight's."""
    tensor.requires_grad_().tokenlight_begins = True  # type: ignore[attr-defined]
    return tensor


def is_callers_own(tensor: Tensor) -> bool:
    """Whether a leaf of a graph is the user's, such as a trainable vector that a hook adds."""
    return tensor.is_leaf and tensor.requires_grad and not hasattr(tensor, "tokenlight_begins")


def storage_of(tensor: Tensor) -> int:
    """The memory address of a tensor's storage; 0 for meta and empty tensors."""
    return 0 if tensor.is_meta or not tensor.numel() else tensor.untyped_storage().data_ptr()


def is_view(tensor: Tensor) -> bool:
    """Whether a tensor is a view of another."""
    return tensor._base is not None


def maker(tensor: Tensor) -> type:
    """The class of the graph node that computed a tensor."""
    return type(tensor.grad_fn)


def leaves_below(tensor: Tensor) -> Iterator[Tensor]:
    """The leaves of a tensor's graph."""
    if tensor.grad_fn is None:
        yield tensor
    nodes, seen = [tensor.grad_fn], set()
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        nodes += [before for before, _ in node.next_functions]


# Graph nodes that are linear in all their inputs together; products only if one input is a constant.
LINEAR_NODES = {
    *("Add", "Sub", "Mul", "Div", "Neg", "Cat", "Stack", "Split", "SplitWithSizes", "Unbind", "Slice", "Select"),
    *("Index", "Narrow", "View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Expand", "Unsqueeze"),
    *("Squeeze", "Unflatten", "Clone", "ToCopy", "Repeat", "Roll", "Flip", "Alias", "AsStrided", "ViewAsComplex"),
    *("ViewAsReal", "Real", "Imag"),
}


AVERAGING_NODES = {"Mean", "Sum"}  # linear, too, but no longer element by element


def linear_sources(tensor: Tensor, averaged: bool = False) -> set[Any]:
    """The graph nodes of whose outputs a tensor is a linear function with constant coefficients.

    Nodes that move, concatenate or add elements or multiply them with constants are followed back, and with `averaged`
    means and sums over axes. Any other node, such as a linear layer, a norm or a product of two signals, is a source.
    """
    sources: set[Any] = set()
    nodes: list[Any] = [torch.autograd.graph.get_gradient_edge(tensor).node]
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        name = type(node).__name__.partition("Backward")[0]
        inputs = [n for n, _ in node.next_functions if n is not None]
        product = name in ("Mul", "Div") and len(inputs) > 1
        if not product and (name in LINEAR_NODES or (averaged and name in AVERAGING_NODES)):
            nodes += inputs
        else:
            sources.add(node)
    return sources


def is_one_computed_from_another(sources: set[Any]) -> bool:
    """Whether one of these graph nodes was computed from another one of them."""

    def number(node: Any) -> int:
        return node._sequence_nr() if node.next_functions else -1  # leaves have no place in the order of calls

    first = min(map(number, sources), default=0)
    nodes, seen = [before for node in sources for before, _ in node.next_functions], set()
    while nodes:
        node = nodes.pop()
        if node in sources:
            return True
        if node is None or node in seen or number(node) < first:  # computed before any of them
            continue
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
    return False


def joined_axis(tensor: Tensor) -> int | None:
    """The axis along which a tensor was stacked, or concatenated from tensors of size 1; None for other tensors."""
    node: Any = tensor.grad_fn
    name = type(node).__name__.partition("Backward")[0]
    if name not in ("Stack", "Cat"):
        return None
    axis = node._saved_dim
    axis = axis - 2**64 if axis >= 2**63 else axis  # torch shows negative numbers as unsigned ones
    return axis % tensor.ndim if tensor.shape[axis] == len(node.next_functions) else None


def own_function(tensor: Tensor) -> type | None:
    """The torch.autograd.Function that computed a tensor; None where none did."""
    return getattr(tensor.grad_fn, "_forward_cls", None)


def softmax_gradient(grad: Tensor, weights: Tensor, dim: int) -> Tensor:
    """The gradient of a softmax from its output, by the function that torch's backward pass calls."""
    return torch.ops.aten._softmax_backward_data(grad, weights, dim, weights.dtype)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about full memory, on the CPU or a GPU."""
    if isinstance(error, ValueError):  # a refusal, which may quote a text with these words
        return False
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in FULL)


def hooks_on(module: nn.Module) -> list[Any]:
    """All hooks of a module."""
    return [hook for kind in HOOKS for hook in getattr(module, kind).values()]


def forward_hooks(module: nn.Module) -> list[Any]:
    """The hooks of a module's forward pass."""
    return [hook for kind in FORWARD_HOOKS for hook in getattr(module, kind).values()]


def hook_numbers(model: nn.Module) -> tuple[int, ...]:
    """The ids that torch gives to the hooks of all modules; every registered hook gets a new one."""
    return tuple(number for module in model.modules() for kind in HOOKS for number in getattr(module, kind))


def weights_in(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """A module's own parameters by name, in the dictionary that the module reads: writing to it replaces them."""
    return getattr(module, WEIGHTS)


def saved_buffers(model: nn.Module) -> Iterator[Tensor]:
    """The buffers that a model's state_dict contains."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield buffer


def drop_backward_hooks(module: nn.Module) -> None:
    for kind in BACKWARD_HOOKS:
        getattr(module, kind).clear()


def inside_compiled(module: nn.Module) -> nn.Module | None:
    """The module that torch.compile(module) wraps; None for a module that is not such a wrapper."""
    return module._modules.get("_orig_mod")


def uncompiled_name(name: str) -> str:
    """The name of a weight without the prefix that compiling a module adds."""
    return name.replace("_orig_mod.", "")


def compiled_forward(module: nn.Module) -> Any:
    """The function inside a `module.forward = torch.compile(forward)`; None where forward was not replaced so.

    `module.compile()` leaves no attribute that a copy would get.
    """
    return getattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable", None)
