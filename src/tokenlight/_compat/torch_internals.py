"""Private interfaces of torch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
HOOKS = (*FORWARD_HOOKS, *BACKWARD_HOOKS)
WEIGHTS = "_parameters"  # where a module keeps them
# How torch's RuntimeErrors say that memory is full.
FULL = ("not enough memory", "DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def without_torch_functions() -> AbstractContextManager[Any]:
    """Inside, no TorchFunctionMode sees what is called."""
    return torch._C.DisableTorchFunction()


@contextmanager
def keeping_what_was_computed(reason: str) -> Iterator[None]:
    """Inside, an error with this reason where a graph would compute its tensors again later, as checkpointing does.

    Hooks on saved tensors that the caller has set around the call stay: they keep the tensors of every graph alike.
    """
    with ExitStack() as stack:
        with suppress(RuntimeError):  # there are such hooks
            stack.enter_context(torch.autograd.graph.disable_saved_tensors_hooks(reason))
        yield


def changes_of(tensor: Tensor) -> int:
    """How often it was written in place; writing through `.data` is not counted."""
    return tensor._version


def begin_signal(tensor: Tensor) -> Tensor:
    """The same tensor as a leaf of a graph: what is computed from it has a gradient."""
    tensor.requires_grad_().tokenlight_begins = True  # type: ignore[attr-defined]
    return tensor


def is_callers_own(tensor: Tensor) -> bool:
    """Whether a leaf of a graph was made by the caller, such as a trainable vector that a hook adds."""
    return tensor.is_leaf and tensor.requires_grad and not hasattr(tensor, "tokenlight_begins")


def storage_of(tensor: Tensor) -> int:
    """Where the numbers of a tensor are in memory; 0 where they are nowhere."""
    return 0 if tensor.is_meta or not tensor.numel() else tensor.untyped_storage().data_ptr()


def is_view(tensor: Tensor) -> bool:
    """Whether a tensor is a part of another, or the same in another shape: what is written there is written here."""
    return tensor._base is not None


def maker(tensor: Tensor) -> type:
    """The kind of operation in the graph that made a tensor."""
    return type(tensor.grad_fn)


def leaves_below(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that the graph of a tensor begins with."""
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


# Operations of the graph that are linear in the one signal that they read, or in all of them.
LINEAR_NODES = {
    *("Add", "Sub", "Mul", "Div", "Neg", "Cat", "Stack", "Split", "SplitWithSizes", "Unbind", "Slice", "Select"),
    *("Index", "Narrow", "View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Expand", "Unsqueeze"),
    *("Squeeze", "Unflatten", "Clone", "ToCopy", "Repeat", "Roll", "Flip", "Alias", "AsStrided", "ViewAsComplex"),
    *("ViewAsReal", "Real", "Imag"),
}


def linear_sources(tensor: Tensor) -> set[Any]:
    """The operations of the graph whose outputs a tensor is a linear function of, with constant coefficients.

    Elements that are moved, joined, added or multiplied with constants are followed back; anything else, such as a
    linear layer, a norm or a product of two signals, is a source.
    """
    sources: set[Any] = set()
    nodes: list[Any] = [torch.autograd.graph.get_gradient_edge(tensor).node]
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        name, before = (
            type(node).__name__.partition("Backward")[0],
            [n for n, _ in node.next_functions if n is not None],
        )
        product = name in ("Mul", "Div") and len(before) > 1
        if name in LINEAR_NODES and not product:
            nodes += before
        else:
            sources.add(node)
    return sources


def own_function(tensor: Tensor) -> type | None:
    """The torch.autograd.Function that made a tensor, if it was one that is written in Python."""
    return getattr(tensor.grad_fn, "_forward_cls", None)


def softmax_gradient(grad: Tensor, weights: Tensor, dim: int) -> Tensor:
    """The gradient of a softmax from its result, as torch's own backward pass computes it."""
    return torch.ops.aten._softmax_backward_data(grad, weights, dim, weights.dtype)


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, ValueError):  # a refusal, which may quote a text with these words
        return False
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in FULL)


def hooks_on(module: nn.Module) -> list[Any]:
    """Everything that was registered to run with a module."""
    return [hook for kind in HOOKS for hook in getattr(module, kind).values()]


def forward_hooks(module: nn.Module) -> list[Any]:
    """What was registered to run with the forward pass of a module."""
    return [hook for kind in FORWARD_HOOKS for hook in getattr(module, kind).values()]


def hook_numbers(model: nn.Module) -> tuple[int, ...]:
    """What torch counts hooks by: of all that were registered to run with modules of the model. None comes twice."""
    return tuple(number for module in model.modules() for kind in HOOKS for number in getattr(module, kind))


def weights_in(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """A module's own, where it looks them up: what is put there is what it uses."""
    return getattr(module, WEIGHTS)


def saved_buffers(model: nn.Module) -> Iterator[Tensor]:
    """Those that are saved with a model, as weights are."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield buffer


def drop_backward_hooks(module: nn.Module) -> None:
    for kind in BACKWARD_HOOKS:
        getattr(module, kind).clear()


def inside_compiled(module: nn.Module) -> nn.Module | None:
    """What torch.compile(module) was called with; None for a module that is not the result of that."""
    return module._modules.get("_orig_mod")


def uncompiled_name(name: str) -> str:
    """Of a weight, as it was before a module around it was compiled."""
    return name.replace("_orig_mod.", "")


def compiled_forward(module: nn.Module) -> Any:
    """What module.forward = torch.compile(forward) was called with; None where nobody did that.

    `module.compile()` leaves nothing that a copy would have.
    """
    return getattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable", None)
