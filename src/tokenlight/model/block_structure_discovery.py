"""Discovery of block structure: where attention joins the residual stream, seen in module inputs and outputs.

A block is understood if the attention's output, perhaps behind a norm of its own, joins the stream times a factor,
    joined = factor * input + other factor * branch
which a module of the block reads, or which with one more module's output (an MLP beside the attention) is the block's
output. In a post-norm block everything goes on behind a norm of it. Nothing but attention may carry anything from token
to token. Otherwise nothing is guessed.
"""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight._compat.accelerate_internals import hooks_of
from tokenlight._compat.torch_internals import hooks_on
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.behavior_probes import LONG, plain_ids
from tokenlight.model.block_structure import (
    BlockStructure,
    affine_map,
    blocks,
    listed_structure,
    probed_norm,
    refuse_spread,
)
from tokenlight.model.capture import Capture, state_in, state_out
from tokenlight.model.instrumentation_cache import FactSnapshot, borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class Piece:
    """A module that ran inside a block."""

    path: str
    module: nn.Module
    before: Tensor
    after: Tensor

    def shaped(self, state: Tensor) -> "Piece":
        """Some families fold batch and tokens into one axis for a while."""
        parts = [x.reshape(state.shape) if x.numel() == state.numel() else x for x in (self.before, self.after)]
        return Piece(self.path, self.module, *parts)


@dataclass(frozen=True)
class StructureMatch:
    """Where a block's attention joins the stream."""

    structure: BlockStructure
    norm: Piece | None  # one that reads the stream behind it

    @property
    def behind_norm(self) -> BlockStructure:
        return self.structure if self.norm is None else replace(self.structure, norm=self.norm.path)


def linear_layers(pieces: list[Piece], state: Tensor, context: Tensor) -> list[Piece]:
    """Those that could project heads' outputs, by the sizes of what they read and give."""
    paths = [piece.path for piece in pieces]
    return [
        piece
        for piece in pieces
        if (piece.before.numel(), piece.after.numel()) == (context.numel(), state.numel())
        and paths.count(piece.path) == 1
        and affine_map(piece.module, piece.before.shape[-1])
    ]


def find_structure(
    pieces: list[Piece], state: Tensor, context: Tensor, output: Tensor, behind_gate: set[str]
) -> StructureMatch | str:
    heads = context.transpose(1, 2).flatten(2)  # [batch, token, head * dim]
    pieces = [piece.shaped(state) for piece in pieces]
    readers = projections(pieces, heads)
    readers += [Projection(piece, None, gated=True) for piece in pieces if piece.path in behind_gate]
    found = [joint for projection in readers for joint in structure_matches(pieces, projection, state, output)]
    if found:
        return found[0]
    if not readers:
        return "have no linear layer that reads the heads' outputs: as they are, behind a norm, or times a gate"
    return (
        "do not add up: their input and what attention gives, each times a factor, are what no module of theirs reads, "
        "and not their output less what one other module gives"
    )


@dataclass(frozen=True)
class Projection:
    piece: Piece
    norm: Piece | None  # between the heads and it
    gated: bool = False


def projections(pieces: list[Piece], heads: Tensor) -> list[Projection]:
    """Linear layers that read the heads' outputs, those with others inside first."""
    norms = [piece for piece in pieces if is_norm_of(piece, heads)]
    return [
        Projection(piece, norm)
        for norm in (None, *norms)
        for piece in reversed(pieces)
        if is_explained_by(piece.before, heads if norm is None else norm.after)
        and affine_map(piece.module, heads.shape[-1])
    ]


def is_explained_by(one: Tensor, other: Tensor) -> bool:
    """The same numbers, perhaps with batch and tokens in one axis."""
    return one.numel() == other.numel() and same(one.reshape(other.shape), other)


def structure_matches(
    pieces: list[Piece], projection: Projection, state: Tensor, output: Tensor
) -> list[StructureMatch]:
    """All that add up; none for a projection that gives no state."""
    if projection.piece.after.numel() != state.numel():
        return []
    straight = projection.piece.after.reshape(state.shape)
    norms = [piece for piece in pieces if is_norm_of(piece, straight)]
    found: list[StructureMatch] = []
    for norm in (*norms, None):
        branch = straight if norm is None else norm.after
        paths = {
            "projection": projection.piece.path,
            "heads_norm": projection.norm and projection.norm.path,
            "branch_norm": norm and norm.path,
            "gated": projection.gated,
        }
        readers = [(piece, factors) for piece in pieces if (factors := fit(piece.before, state, branch))]
        for piece, (own, joining) in readers:
            alone = [one.path for one in pieces].count(piece.path) == 1
            reader = piece if alone and is_norm_of(piece, piece.before) else None
            found.append(StructureMatch(BlockStructure(**paths, scale=joining, residual_scale=own), reader))
        if readers:
            continue
        beside = [piece.after for piece in pieces if not same(piece.after, branch)]  # an MLP beside the attention
        sums = [factors for other in beside if (factors := fit(output, state, branch, other))]
        found += [
            StructureMatch(BlockStructure(**paths, scale=joining, residual_scale=own), None) for own, joining, _ in sums
        ]
    return sorted(found, key=lambda joint: joint.norm is None)


def is_norm_of(piece: Piece, state: Tensor) -> bool:
    """Whether it normalizes this state."""
    if piece.before.shape != state.shape or piece.after.shape != state.shape or any(piece.module.children()):
        return False
    if same(piece.after, state) or not same(piece.before, state):
        return False
    return probed_norm(piece.module, state.shape[-1]) is not None


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).norm() <= rounding(one) * other.norm())


def rounding(tensor: Tensor) -> float:
    """Of a few sums, one after another."""
    return 10 * torch.finfo(tensor.dtype).eps


def fit(whole: Tensor, *parts: Tensor) -> tuple[float, ...] | None:
    """The numbers with which the parts add up to the whole, if they do, number by number; whole ones exactly."""
    if any(part.shape != whole.shape for part in parts):
        return None
    columns, target = torch.stack([part.double().flatten() for part in parts], 1), whole.double().flatten()
    size = target.abs() + columns.abs().sum(1)  # as rounding: a large number must not hide small ones
    size = torch.where(size > 0, size, 1.0)
    columns, target = columns / size[:, None], target / size
    found = torch.linalg.lstsq(columns, target[:, None], driver="gelsd").solution[:, 0]
    near = max(1e-3, torch.finfo(whole.dtype).eps)  # what many numbers tell is nearer than one of them
    for factors in (torch.where((found - found.round()).abs() < near, found.round(), found), found):
        if bool(((columns @ factors - target).abs() <= rounding(whole)).all()):
            return tuple(factors.tolist()) if bool((factors != 0).all()) else None  # a part that is not needed is none
    return None


BlockStructures = tuple[BlockStructure, ...]  # of every call of a block
# With a snapshot of the model that they are true of; in words why there are none.
FOUND: WeakKeyDictionary[PreTrainedModel, tuple[FactSnapshot, BlockStructures | str]] = WeakKeyDictionary()
CHANGED = 2  # the token that is another in further passes


def structures_of(model: PreTrainedModel) -> BlockStructures | None:
    found = look_inside(model)
    return None if isinstance(found, str) else found


def known_structures(model: PreTrainedModel) -> BlockStructures:
    """As of a model whose weights can be read."""
    found = look_inside(model)
    if isinstance(found, str):
        raise UnsupportedModelError(f"decompositions take blocks apart, and those of {type(model).__name__} {found}")
    refuse_spread(model)
    return found


def look_inside(model: PreTrainedModel) -> BlockStructures | str:
    instrumented = model.__dict__.get("tokenlight")  # of a model that is an instrumented model's
    original = instrumented.original if isinstance(instrumented, InstrumentedModel) else model
    listed = listed_structure(model)
    if listed and all(is_unchanged(module) for block in blocks(original) for module in block.modules()):
        return (listed,) * len(blocks(original))
    known = FOUND.get(original)
    if known is None or not known[0].is_current(original):
        snapshot = FactSnapshot(original)
        try:
            with (
                nullcontext(instrumented)
                if isinstance(instrumented, InstrumentedModel)
                else borrowed_model(model) as running
            ):
                known = snapshot, with_second_norm(discover_structure(running), listed)
        except UnsupportedModelError as error:
            known = snapshot, f"cannot be recorded: {error}"
        FOUND[original] = known
    return known[1]


def is_unchanged(module: nn.Module) -> bool:
    """Whether a module computes what its class in torch or transformers says: no hooks, no code of the user's."""
    written_in = {type(module).__module__, getattr(inspect.unwrap(type(module).forward), "__module__", "")}
    replaced = "forward" in vars(module) and not hooks_of(module)  # by accelerate, it is still the same function
    packages = {name.partition(".")[0] for name in written_in}
    return packages <= {"torch", "transformers"} and not replaced and not hooks_on(module)


def note_gated_projections(instrumented: InstrumentedModel) -> None:
    """Where a gate lies on the heads' outputs, what is projected is noted by the instrumented model's further runs."""
    known = structures_of(instrumented.model) or ()
    holders = instrumented.layout.holders(instrumented.model)
    instrumented.note_projections(
        holder.get_submodule(one.projection) for holder, one in zip(holders, known, strict=False) if one.gated
    )


def with_second_norm(found: BlockStructures | str, listed: BlockStructure | None) -> BlockStructures | str:
    """The last norm of a family that is listed, where its blocks are as they are listed."""
    alike = listed is not None and set(found) == {replace(listed, second_norm=None)}
    return tuple(listed for _ in found) if alike and listed is not None else found


@dataclass(frozen=True)
class Run:
    """A pass over a few tokens."""

    hidden: list[Tensor]  # every block's input, then the last one's output
    context: list[Tensor]  # of every block: the heads' outputs [batch, head, token, dim]
    pieces: list[list[Piece]]  # of every block, in the order in which they ended


def discover_structure(instrumented: InstrumentedModel) -> BlockStructures | str:
    """Of every call of a block, or why there are none."""
    run(instrumented)  # only now the instrumented model knows how the model runs
    first = run(instrumented)
    if len(first.context) != len(first.pieces):
        return "do not have one attention each"
    if any(state.ndim != 3 for state in first.hidden):
        return "hand on more than one state a token, not [batch, token, dim]"
    other = run(instrumented, Held([change(context) for context in first.context]), changed=True)
    if not by_token(first, other):
        return "carry something from token to token beside attention, as a convolution does"
    joints = find_structures(first)
    if isinstance(joints, str):
        joints = find_structures(first, behind_gates(instrumented, first))
    if isinstance(joints, str):
        return joints
    if not all(joint.norm for joint in joints):
        return tuple(joint.structure for joint in joints)
    norms = [{joint.norm.path: joint.norm.after} for joint in joints if joint.norm]
    behind = run(instrumented, Held([change(context) for context in first.context]), norms)
    post_norm = [same(*states) for states in zip(behind.hidden[1:], first.hidden[1:], strict=True)]
    if any(post_norm) and not all(post_norm):
        return "are post-norm in part"
    return tuple(joint.behind_norm if all(post_norm) else joint.structure for joint in joints)


def find_structures(run: Run, gated: list[set[str]] | None = None) -> list[StructureMatch] | str:
    """Of every block, with the linear layers that read heads' outputs behind a gate; or why there are none."""
    joints: list[StructureMatch] = []
    for n, inside in enumerate(run.pieces):
        behind_gate = gated[n] if gated else set()
        found = find_structure(inside, run.hidden[n], run.context[n], run.hidden[n + 1], behind_gate)
        if isinstance(found, str):
            return found
        joints.append(found)
    return joints


def behind_gates(instrumented: InstrumentedModel, first: Run) -> list[set[str]]:
    """Of every block, the linear layers that read heads' outputs times a gate, number by number.

    In a run with other heads' outputs, what these layers give is held, so that everything else is as it was; what they
    read must have changed as the heads' outputs have, by the same factors.
    """
    layers = [linear_layers(*each) for each in zip(first.pieces, first.hidden, first.context, strict=False)]
    factors = [
        1.5 + torch.arange(one.numel(), device=one.device).sin().view(one.shape).to(one.dtype) / 2
        for one in first.context
    ]
    changed = [context * factor for context, factor in zip(first.context, factors, strict=True)]
    held = [{layer.path: layer.after for layer in found} for found in layers]
    second = run(instrumented, Held(changed), held)
    found: list[set[str]] = []
    for before, after, factor in zip(layers, second.pieces, factors, strict=True):
        read = {piece.path: piece.before for piece in after}
        flat = factor.transpose(1, 2).flatten(2)
        found.append(
            {one.path for one in before if same(read[one.path].view_as(flat), one.before.view_as(flat) * flat)}
        )
    return found


@dataclass
class Held:
    """Heads' outputs that go in place of a run's own, block after block; where a capture has its gates."""

    contexts: list[Tensor]

    def __call__(self, context: Tensor, layer: int) -> Tensor:
        return self.contexts[layer].to(context.device)


def run(
    instrumented: InstrumentedModel,
    held: Held | None = None,
    results: list[dict[str, Tensor]] | None = None,
    changed: bool = False,
) -> Run:
    """The model on a few tokens; with heads' outputs that are held, with what some modules give (by block and path),
    with another embedding at one token."""
    pieces: list[list[Piece]] = [[] for _ in instrumented.layout.blocks]
    capture = Capture(keep=frozenset({"hidden", "context"}), gates=held)  # type: ignore[arg-type]
    handles = []
    for block in set(instrumented.layout.holders(instrumented.model)):
        for path, module in block.named_modules():
            if path:
                hook = note(capture, pieces, path, results)
                handles.append(module.register_forward_hook(hook, with_kwargs=True))
    try:
        with torch.inference_mode(False), torch.autocast(instrumented.device.type, enabled=False):
            ids = torch.tensor([plain_ids(instrumented.model, LONG)], device=instrumented.device)
            if changed:
                capture.embeddings_instead = change(instrumented.embed(ids), axis=1)
            instrumented.run_uncounted(Batch(ids, torch.ones_like(ids)), capture)
    finally:
        for handle in handles:
            handle.remove()
    return Run(capture.signals["hidden"], capture.signals["context"], pieces)


def note(
    capture: Capture, into: list[list[Piece]], path: str, results: list[dict[str, Tensor]] | None
) -> Callable[..., Any]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        before, after = state_in(args, kwargs), state_out(output)
        if not capture.inside or before is None or after is None:
            return None
        # Copies: what a module gives may be written over later.
        into[capture.block].append(Piece(path, module, before.detach().clone(), after.detach().clone()))
        held = None if results is None else results[capture.block].get(path)
        return None if held is None else held.view_as(after).clone()

    return hook


def change(tensor: Tensor, axis: int = 2) -> Tensor:
    """Another row at one token."""
    changed = tensor.detach().clone()
    place = changed.select(axis, CHANGED)
    place.copy_(place.roll(1, -1) * 1.5 + place.abs().mean())
    return changed


def by_token(one: Run, other: Run) -> bool:
    """Whether tokens whose state and heads' outputs are the same in both runs come out of every block the same."""
    for before, now, after, result in zip(one.hidden, other.hidden, one.hidden[1:], other.hidden[1:], strict=False):
        unchanged = close_rows(before, now)
        unchanged[:, CHANGED] = False
        if not unchanged.any() or not close_rows(after, result)[unchanged].all():
            return False
    return True


def close_rows(one: Tensor, other: Tensor) -> Tensor:
    """[batch, token]; experts sort tokens, so that rounding differs."""
    return (one - other).norm(dim=-1) <= torch.finfo(one.dtype).eps ** 0.5 * one.norm(dim=-1)
