"""Discovery of block structure: where attention joins the residual stream, inferred from module inputs and outputs.

A block's structure is known if the attention's output, perhaps after a norm of its own, is added to the residual,
    sum = residual_scale * input + scale * branch
and a module of the block reads this sum, or the sum plus one more module's output (an MLP parallel to attention) is the
block's output. In a post-norm block, everything after the sum reads a norm of it. Attention must be the only operation
that passes information between tokens. Any other block has no known structure.
"""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

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
from tokenlight.model.capture import Capture, CaptureSpec, state_in, state_out
from tokenlight.model.instrumentation_cache import FactSnapshot, borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.model_facts import FactsByModel
from tokenlight.model.precision import without_caller_modes
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class ModuleCall:
    """A module that ran inside a block, with its input and output."""

    path: str
    module: nn.Module
    before: Tensor
    after: Tensor

    def shaped(self, state: Tensor) -> "ModuleCall":
        """The call with input and output in the shape of the state: some families flatten batch and tokens."""
        shaped = [x.reshape(state.shape) if x.numel() == state.numel() else x for x in (self.before, self.after)]
        return ModuleCall(self.path, self.module, *shaped)


@dataclass(frozen=True)
class StructureMatch:
    """A block structure that agrees with the recorded inputs and outputs."""

    structure: BlockStructure
    norm: ModuleCall | None  # a norm that reads the sum

    @property
    def post_norm(self) -> BlockStructure:
        return self.structure if self.norm is None else replace(self.structure, norm=self.norm.path)


def linear_layers(calls: list[ModuleCall], state: Tensor, context: Tensor) -> list[ModuleCall]:
    """Affine modules whose input and output sizes fit a projection of the heads' outputs."""
    paths = [call.path for call in calls]
    return [
        call
        for call in calls
        if (call.before.numel(), call.after.numel()) == (context.numel(), state.numel())
        and paths.count(call.path) == 1
        and affine_map(call.module, call.before.shape[-1])
    ]


def find_structure(
    calls: list[ModuleCall], state: Tensor, context: Tensor, output: Tensor, gated_paths: set[str]
) -> StructureMatch | str:
    """The structure of a block, or the reason why it is not known, as the end of a sentence about blocks."""
    heads = context.transpose(1, 2).flatten(2)  # [batch, token, head * dim]
    calls = [call.shaped(state) for call in calls]
    candidates = projections(calls, heads)
    candidates += [Projection(call, None, gated=True) for call in calls if call.path in gated_paths]
    matches = [match for projection in candidates for match in structure_matches(calls, projection, state, output)]
    if matches:
        return matches[0]
    if not candidates:
        return "have no linear layer that reads the heads' outputs: directly, after a norm, or times a gate"
    return (
        "do not add up: no module in them reads a weighted sum of their input and the attention's output, and such a "
        "sum plus one other module's output is not their output"
    )


@dataclass(frozen=True)
class Projection:
    """A call that may be the attention's output projection."""

    call: ModuleCall
    norm: ModuleCall | None  # between the heads and the projection
    gated: bool = False


def projections(calls: list[ModuleCall], heads: Tensor) -> list[Projection]:
    """Linear layers that read the heads' outputs, directly or after a norm; wrappers before the layers inside."""
    norms = [call for call in calls if is_norm_of(call, heads)]
    return [
        Projection(call, norm)
        for norm in (None, *norms)
        for call in reversed(calls)
        if equals_reshaped(call.before, heads if norm is None else norm.after)
        and affine_map(call.module, heads.shape[-1])
    ]


def equals_reshaped(tensor: Tensor, other: Tensor) -> bool:
    """Whether both have the same numbers, perhaps with batch and tokens flattened in one of them."""
    return tensor.numel() == other.numel() and same(tensor.reshape(other.shape), other)


def structure_matches(
    calls: list[ModuleCall], projection: Projection, state: Tensor, output: Tensor
) -> list[StructureMatch]:
    """All structures that agree with the recorded numbers, those with a norm of the sum first."""
    if projection.call.after.numel() != state.numel():
        return []
    projected = projection.call.after.reshape(state.shape)
    norms = [call for call in calls if is_norm_of(call, projected)]
    matches: list[StructureMatch] = []
    for norm in (*norms, None):
        branch = projected if norm is None else norm.after
        paths = {
            "projection": projection.call.path,
            "heads_norm": projection.norm and projection.norm.path,
            "branch_norm": norm and norm.path,
            "gated": projection.gated,
        }
        readers = [(call, factors) for call in calls if (factors := fit(call.before, state, branch))]
        for call, (residual_scale, scale) in readers:
            called_once = [other.path for other in calls].count(call.path) == 1
            reader = call if called_once and is_norm_of(call, call.before) else None
            matches.append(StructureMatch(BlockStructure(**paths, scale=scale, residual_scale=residual_scale), reader))
        if readers:
            continue
        parallel = [call.after for call in calls if not same(call.after, branch)]  # an MLP parallel to the attention
        sums = [factors for other in parallel if (factors := fit(output, state, branch, other))]
        matches += [
            StructureMatch(BlockStructure(**paths, scale=scale, residual_scale=residual_scale), None)
            for residual_scale, scale, _ in sums
        ]
    return sorted(matches, key=lambda match: match.norm is None)


def is_norm_of(call: ModuleCall, state: Tensor) -> bool:
    """Whether the call is a norm of this state."""
    if call.before.shape != state.shape or call.after.shape != state.shape or any(call.module.children()):
        return False
    if same(call.after, state) or not same(call.before, state):
        return False
    return probed_norm(call.module, state.shape[-1]) is not None


def same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.shape == other.shape and bool((tensor - other).norm() <= rounding(tensor) * other.norm())


def rounding(tensor: Tensor) -> float:
    """The relative rounding error of a few additions."""
    return 10 * torch.finfo(tensor.dtype).eps


def fit(total: Tensor, *terms: Tensor) -> tuple[float, ...] | None:
    """Factors f with total = sum of f_i * term_i up to rounding, elementwise; None if there are none or one is 0.

    Factors near an integer are rounded to it where the sum still agrees.
    """
    if any(term.shape != total.shape for term in terms):
        return None
    columns, target = torch.stack([term.double().flatten() for term in terms], 1), total.double().flatten()
    size = target.abs() + columns.abs().sum(1)  # rows are scaled to equal size, so that small numbers count as much
    size = torch.where(size > 0, size, 1.0)
    columns, target = columns / size[:, None], target / size
    solution = torch.linalg.lstsq(columns, target[:, None], driver="gelsd").solution[:, 0]
    near = max(1e-3, torch.finfo(total.dtype).eps)  # a fit to many numbers is more exact than each of them
    for factors in (torch.where((solution - solution.round()).abs() < near, solution.round(), solution), solution):
        if bool(((columns @ factors - target).abs() <= rounding(total)).all()):
            return tuple(factors.tolist()) if bool((factors != 0).all()) else None
    return None


BlockStructures = tuple[BlockStructure, ...]  # of every call of a block
# The structures, or the reason why there are none, with a snapshot of the model for which this holds.
STRUCTURES: FactsByModel[tuple[FactSnapshot, BlockStructures | str]] = FactsByModel()
CHANGED = 2  # index of the token that further passes change


def structures_of(model: PreTrainedModel) -> BlockStructures | None:
    structures = structures_or_reason(model)
    return None if isinstance(structures, str) else structures


def known_structures(model: PreTrainedModel) -> BlockStructures:
    """The structures of all blocks; refuses models without and those whose weights cannot be read."""
    structures = structures_or_reason(model)
    if isinstance(structures, str):
        raise UnsupportedModelError(
            f"decompositions need the structure of blocks, and those of {type(model).__name__} {structures}"
        )
    refuse_spread(model)
    return structures


def structures_or_reason(model: PreTrainedModel) -> BlockStructures | str:
    """The structures of all blocks, discovered once and again after a change, or why they are not known."""
    instrumented = model.__dict__.get("tokenlight")  # where `model` is the private copy of an instrumented model
    original = instrumented.original if isinstance(instrumented, InstrumentedModel) else model
    listed = listed_structure(model)
    if listed and all(is_unchanged(module) for block in blocks(original) for module in block.modules()):
        return (listed,) * len(blocks(original))
    known = STRUCTURES.get(original)
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
        STRUCTURES.set(original, known)
    return known[1]


def is_unchanged(module: nn.Module) -> bool:
    """Whether a module computes what its class in torch or transformers defines: no hooks, no code of the user's."""
    defined_in = {type(module).__module__, getattr(inspect.unwrap(type(module).forward), "__module__", "")}
    replaced = "forward" in vars(module) and not hooks_of(module)  # accelerate's replacement calls the same function
    packages = {name.partition(".")[0] for name in defined_in}
    return packages <= {"torch", "transformers"} and not replaced and not hooks_on(module)


def capture_gated_projections(instrumented: InstrumentedModel) -> None:
    """Where a gate multiplies the heads' outputs, let further passes capture the projections' inputs."""
    structures = structures_of(instrumented.model) or ()
    holders = instrumented.layout.holders(instrumented.model)
    instrumented.capture_projections(
        holder.get_submodule(structure.projection)
        for holder, structure in zip(holders, structures, strict=False)
        if structure.gated
    )


def with_second_norm(structures: BlockStructures | str, listed: BlockStructure | None) -> BlockStructures | str:
    """Add the second norm of a listed family, where all blocks have the listed structure."""
    as_listed = listed is not None and set(structures) == {replace(listed, second_norm=None)}
    return tuple(listed for _ in structures) if as_listed and listed is not None else structures


@dataclass(frozen=True)
class Run:
    """What a pass over a few tokens recorded."""

    hidden: list[Tensor]  # every block's input, then the last one's output
    context: list[Tensor]  # of every block: the heads' outputs [batch, head, token, dim]
    calls: list[list[ModuleCall]]  # of every block, in the order of their ends


def discover_structure(instrumented: InstrumentedModel) -> BlockStructures | str:
    """The structure of every call of a block, or the reason why they are not known."""
    run(instrumented)  # discovers the layout, which the next run needs
    first = run(instrumented)
    if len(first.context) != len(first.calls):
        return "do not have one attention each"
    if any(state.ndim != 3 for state in first.hidden):
        return "return more than one state per token, not [batch, token, dim]"
    other = run(instrumented, FixedHeadOutputs([change(context) for context in first.context]), changed=True)
    if not separates_tokens(first, other):
        return "pass information between tokens outside of attention, as a convolution does"
    matches = find_structures(first)
    if isinstance(matches, str):
        matches = find_structures(first, gated_layers(instrumented, first))
    if isinstance(matches, str):
        return matches
    if not all(match.norm for match in matches):
        return tuple(match.structure for match in matches)
    norms = [{match.norm.path: match.norm.after} for match in matches if match.norm]
    # In a post-norm block, fixing the norm's output makes the block's output independent of the heads' outputs.
    fixed = run(instrumented, FixedHeadOutputs([change(context) for context in first.context]), norms)
    post_norm = [same(*states) for states in zip(fixed.hidden[1:], first.hidden[1:], strict=True)]
    if any(post_norm) and not all(post_norm):
        return "are post-norm in part"
    return tuple(match.post_norm if all(post_norm) else match.structure for match in matches)


def find_structures(run: Run, gated: list[set[str]] | None = None) -> list[StructureMatch] | str:
    """The structure of every block, or the reason why one is not known.

    `gated`: for every block, the paths of linear layers that read the heads' outputs times a gate.
    """
    matches: list[StructureMatch] = []
    for n, calls in enumerate(run.calls):
        gated_paths = gated[n] if gated else set()
        match = find_structure(calls, run.hidden[n], run.context[n], run.hidden[n + 1], gated_paths)
        if isinstance(match, str):
            return match
        matches.append(match)
    return matches


def gated_layers(instrumented: InstrumentedModel, first: Run) -> list[set[str]]:
    """For every block, the paths of linear layers that read the heads' outputs, multiplied elementwise with a gate.

    A second run multiplies the heads' outputs with factors and fixes the outputs of these layers, so that everything
    else stays the same; their inputs must have changed by the same factors.
    """
    layers = [linear_layers(*each) for each in zip(first.calls, first.hidden, first.context, strict=False)]
    factors = [
        1.5 + torch.arange(context.numel(), device=context.device).sin().view(context.shape).to(context.dtype) / 2
        for context in first.context
    ]
    changed = [context * factor for context, factor in zip(first.context, factors, strict=True)]
    outputs = [{layer.path: layer.after for layer in block_layers} for block_layers in layers]
    second = run(instrumented, FixedHeadOutputs(changed), outputs)
    gated: list[set[str]] = []
    for block_layers, calls, factor in zip(layers, second.calls, factors, strict=True):
        inputs = {call.path: call.before for call in calls}
        flat = factor.transpose(1, 2).flatten(2)
        gated.append(
            {
                layer.path
                for layer in block_layers
                if same(inputs[layer.path].view_as(flat), layer.before.view_as(flat) * flat)
            }
        )
    return gated


@dataclass
class FixedHeadOutputs:
    """Head outputs that replace those of a pass, block by block."""

    contexts: list[Tensor]

    def __call__(self, context: Tensor, block: int) -> Tensor:
        return self.contexts[block].to(context.device)


def run(
    instrumented: InstrumentedModel,
    head_outputs: FixedHeadOutputs | None = None,
    results: list[dict[str, Tensor]] | None = None,
    changed: bool = False,
) -> Run:
    """One pass over a few tokens.

    `head_outputs` replace the model's own, `results` the outputs of modules (for every block, by path); `changed` gives
    one token another embedding.
    """
    calls: list[list[ModuleCall]] = [[] for _ in instrumented.layout.blocks]
    embeddings = None
    with without_caller_modes(instrumented.device):
        ids = torch.tensor([plain_ids(instrumented.model, LONG)], device=instrumented.device)
        if changed:
            embeddings = change(instrumented.embed(ids), axis=1)
    spec = CaptureSpec(frozenset({"hidden", "context"}), embeddings=embeddings, head_outputs=head_outputs)
    capture = Capture(spec)
    handles = []
    for block in set(instrumented.layout.holders(instrumented.model)):
        for path, module in block.named_modules():
            if path:
                hook = call_hook(capture, calls, path, results)
                handles.append(module.register_forward_hook(hook, with_kwargs=True))
    try:
        with without_caller_modes(instrumented.device):
            instrumented.run_uncounted(Batch(ids, torch.ones_like(ids)), capture)
    finally:
        for handle in handles:
            handle.remove()
    return Run(capture.signals["hidden"], capture.signals["context"], calls)


def call_hook(
    capture: Capture, calls: list[list[ModuleCall]], path: str, results: list[dict[str, Tensor]] | None
) -> Callable[..., Any]:
    """A forward hook that appends the call of a module, and replaces the module's output if `results` has one."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        before, after = state_in(args, kwargs), state_out(output)
        if not capture.inside or before is None or after is None:
            return None
        # Copies: the model may overwrite a module's output later.
        calls[capture.block].append(ModuleCall(path, module, before.detach().clone(), after.detach().clone()))
        result = None if results is None else results[capture.block].get(path)
        return None if result is None else result.view_as(after).clone()

    return hook


def change(tensor: Tensor, axis: int = 2) -> Tensor:
    """A copy with other values at one token."""
    changed = tensor.detach().clone()
    token = changed.select(axis, CHANGED)
    token.copy_(token.roll(1, -1) * 1.5 + token.abs().mean())
    return changed


def separates_tokens(first: Run, second: Run) -> bool:
    """Whether every block gives a token the same output in both runs if its state and head outputs are the same."""
    states = zip(first.hidden, second.hidden, first.hidden[1:], second.hidden[1:], strict=False)
    for first_input, second_input, first_output, second_output in states:
        unchanged = are_close(first_input, second_input)
        unchanged[:, CHANGED] = False
        if not unchanged.any() or not are_close(first_output, second_output)[unchanged].all():
            return False
    return True


def are_close(states: Tensor, others: Tensor) -> Tensor:
    """[batch, token] whether the states are equal up to rounding, which is larger where experts reorder tokens."""
    return (states - others).norm(dim=-1) <= torch.finfo(states.dtype).eps ** 0.5 * states.norm(dim=-1)
