"""Tensor tags for later rules: gates, head outputs, attention maps, source elements, and examples of a batch.

Its last operation multiplies a signal with a gate that was computed from the same signal, as in x * sigmoid(x). Rules
that see one operation at a time would take that for a gated MLP, whose two factors come from layers of their own.

Rules note per text what does not reach the input. As a rule the elements of the first text come first in memory, then
those of the second, and so on. Experts pick the tokens that are theirs, and some models put time before the batch:
from there on a signal carries a tensor of numbers, its owners, until the order is as before.
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


Origins = frozenset[Any]  # numbers of tensors that mixing layers made, or places within them
NUMBERS = count()


def have_one_source(factors: Sequence[Tensor]) -> bool:
    """Whether the factors of a product, such as a signal and its gate, were computed from the same elements."""
    return len(factors) == 2 and not origins(factors[0]).isdisjoint(origins(factors[1]))


def refuse_own_source() -> None:
    raise UnsupportedModelError(
        f"{running_module()} multiplies a signal with a gate that it computes from the same signal: an activation "
        "written out in several operations, which relevance rules cannot follow one by one. Put an activation of "
        "torch.nn or transformers.activations in its place, or make it one operation with "
        "tokenlight.rules.custom_ops.activation(x, formula)"
    )


def note_origins(spec: OpSpec, sources: Sequence[Tensor], results: Iterable[Any]) -> None:
    """Write on what comes out of a function where it comes from; not for functions with a new source."""
    if spec.source_of_first or len(sources) == 1:
        found = origins(sources[0])
    else:
        found = frozenset().union(*map(origins, sources))
    if not found:
        return
    for result in results:
        if isinstance(result, Tensor) and result.is_floating_point():
            place = origins_of_part(result, sources[0], found) if spec.slices else found
            result.tokenlight_origins = place  # type: ignore[attr-defined]


def origins(tensor: Tensor) -> Origins:
    """A signal that nobody has written on yet is its own origin; constants that no signal went into have none."""
    known: Origins | None = getattr(tensor, "tokenlight_origins", None)
    if known is None and tensor.requires_grad:
        known = tensor.tokenlight_origins = frozenset({next(NUMBERS)})  # type: ignore[attr-defined]
    return known or frozenset()


def origins_of_part(part: Tensor, whole: Tensor, found: Origins) -> Origins:
    """The same part cut out twice has the same origins."""
    if part.shape == whole.shape:
        return found
    if part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
        return frozenset({next(NUMBERS)})  # picked by an index: copied in another order
    offset = part.storage_offset() - whole.storage_offset()
    return frozenset((origin, offset, tuple(part.shape), part.stride()) for origin in found)


def running_module() -> str:
    """The module whose code is running, for messages."""
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
        frame = frame.f_back
    return "the model"


UNKNOWN = torch.empty(0)  # somebody's, but nobody knows whose


def owners_of(x: Any) -> Tensor | None:
    """Numbers of texts, of the signal's shape; None: in order."""
    return getattr(x, "tokenlight_owners", None)


def first_owners(involved: Iterable[Tensor]) -> Tensor | None:
    return next((owners for x in involved if (owners := owners_of(x)) is not None), None)


def in_order(shape: Sequence[int], batch: int, device: Any) -> Tensor:
    size = torch.Size(shape).numel()
    return (torch.arange(size, device=device) * batch // max(size, 1)).view(*shape)


def may_disturb(order: ExampleOrder | None, args: Sequence[Any], result: Any) -> bool:
    """Whether a function that moves elements may have put those of several texts in another order."""
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


def moved(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], batch: int) -> Any:
    """The owners after a function that only moves elements: it is done to them, too."""

    def numbers(part: Any) -> Any:
        if isinstance(part, (tuple, list)):
            return [numbers(one) for one in part]
        found = owners_of(part)
        return in_order(part.shape, batch, part.device) if found is None else found.contiguous()

    if any(owners_of(x) is UNKNOWN for x in tensors(args[:1])):
        return UNKNOWN
    with torch.no_grad():
        return function(numbers(args[0]), *args[1:], **kwargs)


def reduced(owners: Tensor, dim: Any = (), keepdim: bool = False, **_: Any) -> Tensor:
    """The owners of sums: known where only elements of one text are added."""
    if owners is UNKNOWN:
        return UNKNOWN
    lowest, highest = (function(owners, dim, keepdim=keepdim) for function in (torch.amin, torch.amax))
    return highest if torch.equal(lowest, highest) else UNKNOWN


def by_letters(args: Sequence[Any], batch: int) -> Tensor | None:
    """The owners after an einsum such as "ibh,hnd->ibnd"; None: in order as before."""
    sides, arrow, result = str(args[0]).replace(" ", "").partition("->")
    signals = [pair for pair in zip(tensors(args[1:]), sides.split(","), strict=True) if pair[0].requires_grad]
    if not signals:
        return None
    x, letters = next((pair for pair in signals if owners_of(pair[0]) is not None), signals[0])
    owners = owners_of(x)
    if owners is None and letters[:1] == result[:1]:
        return None
    if owners is UNKNOWN or not arrow or "." in sides:  # the first axis may be any
        return UNKNOWN
    owners = in_order(x.shape, batch, x.device) if owners is None else owners
    gone = tuple(axis for axis, letter in enumerate(letters) if letter not in result)
    owners = reduced(owners, gone, keepdim=True) if gone else owners
    if owners is UNKNOWN:
        return UNKNOWN
    ordered = torch.einsum(f"{letters}->{''.join(letter for letter in result if letter in letters)}", owners)
    return ordered[tuple(slice(None) if letter in letters else None for letter in result)]


def spread(owners: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Owners of elements that were computed from these, row by row."""
    for found in (owners, owners[..., :1]) if owners is not UNKNOWN else ():
        missing = len(shape) - found.ndim
        if missing >= 0 and all(size in (1, new) for size, new in zip(found.shape, shape[missing:], strict=True)):
            return found.expand(shape)
    return None


def owners_at(spec: OpSpec, args: Sequence[Any], involved: Iterable[Tensor]) -> Tensor | None:
    """The owners of what goes into a function; of what it writes into, if it does."""
    return owners_of(args[0]) if spec.order == "first" else first_owners(involved)


def note_owners(
    function: Function,
    spec: OpSpec,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    parts: Sequence[Any],
    batch: int,
) -> bool:
    """Write on what comes out whose it is, where that is not a matter of order; whether anything was written."""
    owners: Any = owners_at(spec, args, tensors((*args, *kwargs.values())))
    if spec.order == "einsum":
        owners = by_letters(args, batch)
    elif spec.moves_elements and (owners is not None or may_disturb(spec.order, args, parts[0])):
        owners = moved(function, args, kwargs, batch)
    elif spec.order == "summed" and owners is not None:
        owners = reduced(owners, *args[1:], **kwargs)
    if owners is None:
        return False
    each = owners if isinstance(owners, (tuple, list)) else [owners] * len(parts)
    noted = [note(part, own, batch) for part, own in zip(parts, each, strict=True)]
    return any(noted)


def note(part: Any, owners: Tensor, batch: int) -> bool:
    if (
        not isinstance(part, Tensor) or not part.requires_grad
    ):  # a constant, such as a bias that is expanded, is nobody's
        return False
    found = spread(owners, part.shape)
    if found is not None and torch.equal(found, in_order(part.shape, batch, part.device)):
        return False
    part.tokenlight_owners = UNKNOWN if found is None else found  # type: ignore[attr-defined]
    return True
