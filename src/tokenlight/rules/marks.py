"""What rules write on tensors for the rules that come later: gates, outputs of heads, weights."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.overrides import resolve_name

from tokenlight.foundation.torch_internals import changes_of, leaves_below


def tensors(parts: Iterable[Any]) -> Iterator[Tensor]:
    """Those among the arguments of a function, also in lists."""
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, (tuple, list)):
            yield from tensors(part)


def mark_followed(results: Iterable[Any]) -> None:
    """These came out of an operation that the rule mode has seen, as they are now."""
    for result in tensors(results):
        result.tokenlight_followed = changes_of(result)  # type: ignore[attr-defined]


def has_mark(x: Tensor) -> bool:
    return hasattr(x, "tokenlight_followed")


def is_followed(x: Tensor) -> bool:
    """Whether nothing was written into it since."""
    return getattr(x, "tokenlight_followed", None) == changes_of(x)


def is_gate(x: Any) -> bool:
    """Whether a tensor came out of an activation: in a product with a signal it is the gate."""
    return getattr(x, "tokenlight_gate", False)


def mark_gate(x: Tensor) -> Tensor:
    x.tokenlight_gate = True  # type: ignore[attr-defined]
    return x


def hand_on_gate(sources: Iterable[Tensor], results: Iterable[Any]) -> None:
    """What comes out is a gate where all that went in was one, but for constants."""
    found = False
    for x in sources:
        if is_gate(x):
            found = True
        elif x.requires_grad:
            return
    if found:
        for result in tensors(results):
            mark_gate(result)


def is_weight(x: Any) -> bool:
    """A parameter of the model, or elements of one, in whatever order and precision."""
    return isinstance(x, nn.Parameter) or getattr(x, "tokenlight_weight", False)


def mark_weights(results: Iterable[Any]) -> None:
    for result in tensors(results):
        result.tokenlight_weight = True  # type: ignore[attr-defined]


def mark_heads(x: Tensor) -> Tensor:
    """The outputs of attention heads, where a graph begins with them."""
    x.tokenlight_heads = True  # type: ignore[attr-defined]
    return x


def is_of_heads(x: Any) -> bool:
    """Whether a signal was made from heads' outputs and nothing else."""
    if not isinstance(x, Tensor) or not x.requires_grad:
        return False
    return all(getattr(leaf, "tokenlight_heads", False) for leaf in leaves_below(x))


def name_of(function: Callable[..., Any]) -> str:
    return resolve_name(function) or getattr(function, "__name__", repr(function))
