"""Tensor tags for later rules: gates, head outputs, weights, origins, and examples of a batch.

Origins detect activations that are written out: their last operation multiplies a signal with a gate computed from the
same signal, as in x * sigmoid(x). Otherwise, that would look like a gated MLP, whose factors come from two layers.

Example ids are needed for the ledger, which is kept per text. Normally all elements of the first text come first in
memory, then those of the second, and so on. But experts select their tokens, and some models have the time axis before
the batch axis. A signal is then tagged with the example id of each element, until the order is normal again.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name

from tokenlight._compat.torch_internals import changes_of, leaves_below
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.ops import ExampleOrder, Function, OpSpec


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """All tensors among values, also in nested lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors(value)


def tag_followed(results: Iterable[Any]) -> None:
    """Tag tensors as results of an operation that the rule mode has seen, in their present version."""
    for result in tensors(results):
        result.tokenlight_followed = changes_of(result)  # type: ignore[attr-defined]


def was_followed(x: Tensor) -> bool:
    return hasattr(x, "tokenlight_followed")


def is_followed(x: Tensor) -> bool:
    """Whether the rule mode saw the operation that made a tensor, and nothing was written into it since."""
    return getattr(x, "tokenlight_followed", None) == changes_of(x)


def is_gate(x: Any) -> bool:
    """Whether a tensor is the output of an activation: in a product with a signal, it is the gate."""
    return getattr(x, "tokenlight_gate", False)


def tag_gate(x: Tensor) -> Tensor:
    x.tokenlight_gate = True  # type: ignore[attr-defined]
    return x


def propagate_gate(sources: Iterable[Tensor], results: Iterable[Any]) -> None:
    """Tag results as gates if all arguments are gates or constants, and at least one is a gate."""
    has_gate = False
    for x in sources:
        if is_gate(x):
            has_gate = True
        elif x.requires_grad:
            return
    if has_gate:
        for result in tensors(results):
            tag_gate(result)


def is_weight(x: Any) -> bool:
    """Whether a tensor is a parameter, or elements of one, in any order and precision."""
    return isinstance(x, nn.Parameter) or getattr(x, "tokenlight_weight", False)


def tag_weights(results: Iterable[Any]) -> None:
    for result in tensors(results):
        result.tokenlight_weight = True  # type: ignore[attr-defined]


def tag_head_outputs(x: Tensor) -> Tensor:
    """Tag the outputs of attention heads that are leaves of a graph."""
    x.tokenlight_heads = True  # type: ignore[attr-defined]
    return x


def is_of_heads(x: Any) -> bool:
    """Whether a signal was computed only from head outputs that are leaves."""
    if not isinstance(x, Tensor) or not x.requires_grad:
        return False
    return all(getattr(leaf, "tokenlight_heads", False) for leaf in leaves_below(x))


def name_of(function: Callable[..., Any]) -> str:
    return resolve_name(function) or getattr(function, "__name__", repr(function))


Origins = frozenset[Any]  # ids of tensors that mixing layers made, or slices of them: (id, offset, shape, stride)
NUMBERS = count()


def share_origins(factors: Sequence[Tensor]) -> bool:
    """Whether two factors of a product, such as a signal and its gate, were computed from the same elements."""
    return len(factors) == 2 and not origins(factors[0]).isdisjoint(origins(factors[1]))


def refuse_own_source() -> None:
    raise UnsupportedModelError(
        f"{running_module()} multiplies a signal with a gate that it computes from the same signal: an activation "
        "written out in several operations, which relevance rules cannot follow one by one. Put an activation of "
        "torch.nn or transformers.activations in its place, or make it one operation with "
        "tokenlight.rules.custom_ops.activation(x, formula)"
    )


def tag_origins(spec: OpSpec, sources: Sequence[Tensor], results: Iterable[Any]) -> None:
    """Tag results with their origins; not called for functions with a new source."""
    if spec.source_of_first or len(sources) == 1:
        sources_of_result = origins(sources[0])
    else:
        sources_of_result = frozenset().union(*map(origins, sources))
    if not sources_of_result:
        return
    for result in results:
        if isinstance(result, Tensor) and result.is_floating_point():
            result_origins = slice_origins(result, sources[0], sources_of_result) if spec.slices else sources_of_result
            result.tokenlight_origins = result_origins  # type: ignore[attr-defined]


def origins(tensor: Tensor) -> Origins:
    """The origins of a tensor. An untagged signal is its own origin; a constant without signals has none."""
    known: Origins | None = getattr(tensor, "tokenlight_origins", None)
    if known is None and tensor.requires_grad:
        known = tensor.tokenlight_origins = frozenset({next(NUMBERS)})  # type: ignore[attr-defined]
    return known or frozenset()


def slice_origins(result: Tensor, source: Tensor, source_origins: Origins) -> Origins:
    """The origins of a slice. Equal slices have equal origins."""
    if result.shape == source.shape:
        return source_origins
    if result.untyped_storage().data_ptr() != source.untyped_storage().data_ptr():
        return frozenset({next(NUMBERS)})  # a copy, selected by an index
    offset = result.storage_offset() - source.storage_offset()
    return frozenset((origin, offset, tuple(result.shape), result.stride()) for origin in source_origins)


def running_module() -> str:
    """The class name of the module whose code is running, for messages."""
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
        frame = frame.f_back
    return "the model"


UNKNOWN_IDS = torch.empty(0)  # the tag of tensors whose elements cannot be assigned to examples


def example_ids_of(x: Any) -> Tensor | None:
    """The example id of each element, in the signal's shape; None: in order."""
    return getattr(x, "tokenlight_example_ids", None)


def first_example_ids(involved: Iterable[Tensor]) -> Tensor | None:
    return next((example_ids for x in involved if (example_ids := example_ids_of(x)) is not None), None)


def ordered_example_ids(shape: Sequence[int], batch: int, device: Any) -> Tensor:
    size = torch.Size(shape).numel()
    return (torch.arange(size, device=device) * batch // max(size, 1)).view(*shape)


def may_reorder_examples(order: ExampleOrder | None, args: Sequence[Any], result: Any) -> bool:
    """Whether a function that moves elements may have changed the order of examples."""
    x, index = args[0], args[1] if len(args) > 1 else None
    if not isinstance(result, Tensor) or not result.ndim:
        return False
    if order == "stacked":
        return x[0].shape[:1] != result.shape[:1]
    if order == "transposed":
        return x.shape[0] != result.shape[0] or x.stride(0) != result.stride(0)
    if order == "indexed":
        first = index[0] if isinstance(index, tuple) and index else index
        return isinstance(first, (Tensor, list)) or x.shape[0] != result.shape[0]
    return order == "selected" or (order == "resized" and x.shape[0] != result.shape[0])


def move_example_ids(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], batch: int) -> Any:
    """The example ids after a function that only moves elements: the function is applied to the ids."""

    def ids(argument: Any) -> Any:
        if isinstance(argument, (tuple, list)):
            return [ids(element) for element in argument]
        example_ids = example_ids_of(argument)
        if example_ids is None:
            return ordered_example_ids(argument.shape, batch, argument.device)
        return example_ids.contiguous()

    if any(example_ids_of(x) is UNKNOWN_IDS for x in tensors(args[:1])):
        return UNKNOWN_IDS
    with torch.no_grad():
        return function(ids(args[0]), *args[1:], **kwargs)


def reduce_example_ids(example_ids: Tensor, dim: Any = (), keepdim: bool = False, **_: Any) -> Tensor:
    """The example ids of sums; unknown if elements of several examples are added."""
    if example_ids is UNKNOWN_IDS:
        return UNKNOWN_IDS
    lowest, highest = (function(example_ids, dim, keepdim=keepdim) for function in (torch.amin, torch.amax))
    return highest if torch.equal(lowest, highest) else UNKNOWN_IDS


def einsum_example_ids(args: Sequence[Any], batch: int) -> Tensor | None:
    """The example ids after an einsum such as "ibh,hnd->ibnd"; None: in order."""
    sides, arrow, result = str(args[0]).replace(" ", "").partition("->")
    signals = [pair for pair in zip(tensors(args[1:]), sides.split(","), strict=True) if pair[0].requires_grad]
    if not signals:
        return None
    x, letters = next((pair for pair in signals if example_ids_of(pair[0]) is not None), signals[0])
    example_ids = example_ids_of(x)
    if example_ids is None and letters[:1] == result[:1]:
        return None
    if example_ids is UNKNOWN_IDS or not arrow or "." in sides:  # the first axis may be any
        return UNKNOWN_IDS
    example_ids = ordered_example_ids(x.shape, batch, x.device) if example_ids is None else example_ids
    summed_axes = tuple(axis for axis, letter in enumerate(letters) if letter not in result)
    example_ids = reduce_example_ids(example_ids, summed_axes, keepdim=True) if summed_axes else example_ids
    if example_ids is UNKNOWN_IDS:
        return UNKNOWN_IDS
    ordered = torch.einsum(f"{letters}->{''.join(letter for letter in result if letter in letters)}", example_ids)
    return ordered[tuple(slice(None) if letter in letters else None for letter in result)]


def expand_example_ids(example_ids: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Example ids of elements computed from elements with these ids, vector by vector; None if shapes do not match."""
    for candidate in (example_ids, example_ids[..., :1]) if example_ids is not UNKNOWN_IDS else ():
        missing = len(shape) - candidate.ndim
        if missing >= 0 and all(size in (1, new) for size, new in zip(candidate.shape, shape[missing:], strict=True)):
            return candidate.expand(shape)
    return None


def example_ids_at(spec: OpSpec, args: Sequence[Any], involved: Iterable[Tensor]) -> Tensor | None:
    """The example ids of a function's arguments; if it writes into its first argument, of that."""
    return example_ids_of(args[0]) if spec.order == "first" else first_example_ids(involved)


def tag_example_ids(
    function: Function,
    spec: OpSpec,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    results: Sequence[Any],
    batch: int,
) -> bool:
    """Tag results whose examples are not in order with example ids; return whether any was tagged."""
    example_ids: Any = example_ids_at(spec, args, tensors((*args, *kwargs.values())))
    if spec.order == "einsum":
        example_ids = einsum_example_ids(args, batch)
    elif spec.moves_elements and (example_ids is not None or may_reorder_examples(spec.order, args, results[0])):
        example_ids = move_example_ids(function, args, kwargs, batch)
    elif spec.order == "summed" and example_ids is not None:
        example_ids = reduce_example_ids(example_ids, *args[1:], **kwargs)
    if example_ids is None:
        return False
    ids_of_results = example_ids if isinstance(example_ids, (tuple, list)) else [example_ids] * len(results)
    tagged = [tag_result(result, result_ids, batch) for result, result_ids in zip(results, ids_of_results, strict=True)]
    return any(tagged)


def tag_result(result: Any, example_ids: Tensor, batch: int) -> bool:
    """Tag a result with example ids unless it is in order; return whether it was tagged."""
    if not isinstance(result, Tensor) or not result.requires_grad:  # constants belong to no example
        return False
    expanded = expand_example_ids(example_ids, result.shape)
    if expanded is not None and torch.equal(expanded, ordered_example_ids(result.shape, batch, result.device)):
        return False
    result.tokenlight_example_ids = UNKNOWN_IDS if expanded is None else expanded  # type: ignore[attr-defined]
    return True
