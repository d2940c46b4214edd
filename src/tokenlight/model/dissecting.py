"""Where a block keeps its output projection and norms, found in what its modules hand on in a pass over a few tokens.

A block is understood if its output is what the pieces add up to:
    output = input + scale * branch + other scale * (what some module of the block gave: its MLP)
or, in post-norm blocks, norm(norm(input + branch) + MLP). The branch is the attention's output projection, perhaps
behind a norm of its own. Otherwise nothing is guessed.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.foundation.torch_internals import hook_numbers
from tokenlight.model.anatomy import Anatomy, blocks, listed_anatomy, probed_norm, refuse_spread
from tokenlight.model.habits import SHORT, plain_ids
from tokenlight.model.kept_twins import borrowed_twin
from tokenlight.model.tape import Tape, state_in, state_out
from tokenlight.model.twin import Twin
from tokenlight.text.batches import Batch

# With the hooks that a model had, which change what it does; in words why there is none.
FOUND: WeakKeyDictionary[PreTrainedModel, tuple[tuple[int, ...], Anatomy | str]] = WeakKeyDictionary()


def anatomy_of(model: PreTrainedModel) -> Anatomy | None:
    found = look_inside(model)
    return None if isinstance(found, str) else found


def known_anatomy(model: PreTrainedModel) -> Anatomy:
    """As of a model whose weights can be read."""
    found = look_inside(model)
    if isinstance(found, str):
        raise UnsupportedModelError(f"decompositions take blocks apart, and those of {type(model).__name__} {found}")
    refuse_spread(model)
    return found


def look_inside(model: PreTrainedModel) -> Anatomy | str:
    if listed := listed_anatomy(model):
        return listed
    twin = model.__dict__.get("tokenlight")  # of a model that is a twin's
    original = twin.original if isinstance(twin, Twin) else model
    hooks, known = hook_numbers(original), FOUND.get(original)
    if known is None or known[0] != hooks:
        try:
            with nullcontext(twin) if isinstance(twin, Twin) else borrowed_twin(model) as running:
                known = hooks, dissect(running)
        except UnsupportedModelError as error:
            known = hooks, f"cannot be recorded: {error}"
        FOUND[original] = known
    return known[1]


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


def dissect(twin: Twin) -> Anatomy | str:
    """The same for every block, or why there is none."""
    calls: list[list[Piece]] = []  # of blocks, one after another: a block may be called several times
    handles = []
    for block in dict.fromkeys(blocks(twin.model)):
        handles.append(block.register_forward_pre_hook(lambda module, args: calls.append([])))
        for path, module in block.named_modules():
            if path:
                handles.append(module.register_forward_hook(note(calls, path), with_kwargs=True))
    try:
        ids = torch.tensor([plain_ids(twin.model, SHORT)], device=twin.device)
        tape = Tape(keep=frozenset({"hidden", "context"}))
        with torch.inference_mode(False), torch.autocast(twin.device.type, enabled=False):
            twin.run_uncounted(Batch(ids, torch.ones_like(ids)), tape)
    finally:
        for handle in handles:
            handle.remove()
    hidden, context = tape.signals["hidden"], tape.signals["context"]
    if len(context) != len(calls):
        return "do not have one attention each"
    anatomies: list[Anatomy] = []
    for n, inside in enumerate(calls):
        found = dissect_block(inside, hidden[n], context[n], hidden[n + 1])
        if isinstance(found, str):
            return found
        anatomies.append(found)
    scales = torch.tensor([one.scale for one in anatomies], dtype=torch.float64)
    kinds = {replace(one, scale=1.0) for one in anatomies}
    if len(kinds) > 1 or float(scales.max() - scales.min()) > rounding(hidden[0]):
        return "are not all alike"
    return replace(kinds.pop(), scale=float(scales.mean()))


def note(calls: list[list[Piece]], path: str) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        before, after = state_in(args, kwargs), state_out(output)
        if calls and before is not None and after is not None:
            calls[-1].append(Piece(path, module, before.detach(), after.detach()))

    return hook


def dissect_block(pieces: list[Piece], state: Tensor, context: Tensor, output: Tensor) -> Anatomy | str:
    heads = context.transpose(1, 2).flatten(2)  # [batch, token, head * dim]
    pieces = [piece.shaped(state) for piece in pieces]
    projections = [
        piece
        for piece in pieces
        if isinstance(piece.module, nn.Linear | Conv1D)
        and piece.before.numel() == heads.numel()
        and same(piece.before.reshape(heads.shape), heads)
        and piece.after.numel() == state.numel()
    ]
    if len(projections) != 1:
        return f"have {len(projections)} linear layers that read the heads' outputs as they are; one was expected"
    branch = projections[0].after.reshape(state.shape)
    norms = [p for p in pieces if is_norm_of(p, branch)]
    if len(norms) > 1:
        return f"have {len(norms)} norms behind the attention's output"
    branch = norms[0].after if norms else branch
    paths = {"projection": projections[0].path, "branch_norm": norms[0].path if norms else None}
    if (norm := norm_behind(pieces, state + branch, output)) is not None:
        return Anatomy(**paths, norm=norm)
    for piece in pieces:  # the MLP, or what stands behind it
        if piece.after.shape == state.shape and not same(piece.after, branch):
            scales = fit(output - state, branch, piece.after)
            if scales is not None:
                return Anatomy(**paths, scale=scales[0])
    return "are not input + attention + MLP: what their modules give does not add up to their output"


def norm_behind(pieces: list[Piece], joined: Tensor, output: Tensor) -> str | None:
    """Post-norm blocks: the norm after the attention joined the stream, where output = norm(its result + MLP)."""
    firsts = [piece for piece in pieces if is_norm_of(piece, joined)]
    lasts = [piece for piece in pieces if same(piece.after, output) and is_norm_of(piece, piece.before)]
    for first in firsts:
        for last in lasts:
            rest = last.before - first.after if last.before.shape == first.after.shape else None
            if rest is not None and any(p.after.shape == rest.shape and fit(rest, p.after) for p in pieces):
                return first.path
    return None


def is_norm_of(piece: Piece, state: Tensor) -> bool:
    """Whether it normalises this state."""
    if piece.before.shape != state.shape or piece.after.shape != state.shape or any(piece.module.children()):
        return False
    if same(piece.after, state) or not same(piece.before, state):
        return False
    return probed_norm(piece.module, state.shape[-1]) is not None


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and relative_distance(one, other) <= rounding(one)


def relative_distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm().clamp_min(1e-300))


def rounding(tensor: Tensor) -> float:
    """Of a few dozen sums, one after another."""
    return 100 * torch.finfo(tensor.dtype).eps


def fit(whole: Tensor, *parts: Tensor) -> tuple[float, ...] | None:
    """The numbers with which the parts add up to the whole, if they do; whole numbers exactly."""
    columns = torch.stack([part.double().flatten() for part in parts], 1)
    found = torch.linalg.lstsq(columns, whole.double().flatten()[:, None], driver="gelsd").solution[:, 0]
    scales = tuple(float(round(float(x))) if abs(x - round(float(x))) < 1e-3 else float(x) for x in found)
    added = sum(scale * part.double() for scale, part in zip(scales, parts, strict=True))
    if not all(scales) or relative_distance(torch.as_tensor(added), whole.double()) > rounding(whole):
        return None
    return scales
