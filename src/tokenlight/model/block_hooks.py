"""Hooks around every block: they capture its states, and begin and end graphs."""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle
from transformers import Cache, PreTrainedModel

from tokenlight._compat.torch_internals import begin_signal, is_callers_own, leaves_below, without_torch_functions
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model import block_structure
from tokenlight.model.capture import (
    BlockCall,
    Capture,
    begin_graph_at,
    refuse_cut_graph,
    state_in,
    state_out,
    tensors_in,
    with_state,
    without_graph,
)
from tokenlight.model.layout import Layout
from tokenlight.rules.ledger import LEDGER


class HasCapture(Protocol):
    capture: Capture  # of the current pass


class BlockHooks:
    """Hooks on the blocks of a layout. A module that is called as several blocks is hooked once."""

    def __init__(self, owner: HasCapture, model: PreTrainedModel, layout: Layout):
        self._owner, self._layout, self._last = owner, layout, len(layout.blocks) - 1
        self._names: dict[nn.Module, str] = dict(zip(layout.modules(model), layout.blocks, strict=True))
        self._handles: list[RemovableHandle] = []
        self._hooked_projections: set[nn.Module] = set()
        if layout.container is not None:
            self._hook_open_blocks(model.get_submodule(layout.container))
            return
        for block in self._names:
            norm = block_structure.second_norm(model, block)
            self._handles += [
                # Before the user's hooks, which are part of the block: they run again with it.
                block.register_forward_pre_hook(self._cut_before, with_kwargs=True, prepend=True),
                block.register_forward_pre_hook(self._before_last, with_kwargs=True, prepend=True),
                block.register_forward_pre_hook(self._begin, with_kwargs=True, prepend=True),
                block.register_forward_pre_hook(self._capture_state, with_kwargs=True),
                block.register_forward_hook(self._end),
                block.register_forward_hook(self._after_last),
                block.register_forward_hook(self._cut_after),
                *([] if norm is None else [norm.register_forward_pre_hook(self._capture_second_norm_input)]),
            ]

    def _hook_open_blocks(self, container: nn.Module) -> None:
        """Hook blocks that span several modules: they cannot be called on their own, nor with another state."""
        for first in self._names:
            self._handles += [
                first.register_forward_pre_hook(self._begin_open, with_kwargs=True, prepend=True),
                first.register_forward_pre_hook(self._capture_state, with_kwargs=True),
            ]
        self._handles += [
            container.register_forward_hook(self._end),
            container.register_forward_hook(self._after_last),
        ]

    def capture_projections(self, projections: Iterable[nn.Module]) -> None:
        """From now on, capture the inputs of these modules as the signal "projected"."""
        for module in set(projections) - self._hooked_projections:
            self._hooked_projections.add(module)
            self._handles.append(module.register_forward_pre_hook(self._capture_projection_input))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    @property
    def _capture(self) -> Capture:
        return self._owner.capture

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._capture.begin_block(self._names[module])
        self._capture.in_last_block = self._capture.block >= self._last

    def _begin_open(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._capture.spec.by_block or self._capture.spec.last_block:
            raise UnsupportedModelError(
                f"low_memory: a block of this model is spread over several modules ({type(module).__name__} is one), "
                "so it cannot run on its own; leave it off"
            )
        self._begin(module, args, kwargs)

    def _cut_before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._capture.spec.by_block:
            return None
        call = BlockCall(args, kwargs)
        if any(tensor is not call.state and tensor.requires_grad for tensor in tensors_in([*args, *kwargs.values()])):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} reads more of the input than the state before it; leave it off"
            )
        if any(isinstance(value, Cache) for value in (*args, *kwargs.values())):
            # When the block runs again, it would find its own keys there, without a gradient.
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} stores keys and values in a cache whenever it runs; leave it off"
            )
        capture, state = self._capture, self._layout.to_batch_first(call.state)
        self._refuse_cut_graph(module, state)
        if any(earlier.state is state for earlier in capture.block_calls):
            raise UnsupportedModelError(
                f"low_memory: two blocks read the same state ({type(module).__name__} is the second); leave it off"
            )
        capture.block_calls.append(call.with_state(state))
        # The block's graph begins at this leaf and is released when the block ends, unless something inside was stored.
        leaf = without_graph(state)
        capture.block_inputs.append(
            begin_signal(leaf) if capture.spec.differentiable and not capture.spec.head_only else leaf
        )
        call = call.with_state(self._layout.to_batch_first(leaf))
        return call.args, call.kwargs

    def _cut_after(self, module: nn.Module, args: Any, output: Any) -> Any:
        if not self._capture.spec.by_block:
            return None
        state = state_out(output)
        extras = [] if isinstance(output, Tensor) else list(tensors_in(output[1:]))
        if state is None or (extras and not self._layout.state_alone):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} returns more than one tensor that is read later; leave it off"
            )
        self._refuse_cut_graph(module, state)
        block_input = self._capture.block_inputs[-1]
        with without_torch_functions():
            others = [leaf for leaf in leaves_below(state) if leaf is not block_input and not is_callers_own(leaf)]
        if any(leaf.requires_grad for leaf in others):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} reads more of the input than the state before it; leave it off"
            )
        leaf = self._capture.last_output = begin_graph_at(self._layout.to_batch_first(state))
        self._capture.block_outputs.append(leaf)
        return with_state(output, self._layout.to_batch_first(leaf))

    def _capture_state(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inside_block(True)
        state = state_in(args, kwargs)
        if state is None:
            return None
        batch_first = self._layout.to_batch_first(state)
        self._refuse_cut_graph(module, batch_first)
        self._capture.add("hidden", batch_first)
        if not self._layout.time_first:
            return None
        # The block must compute from the captured view, or the view would have no gradient.
        call = BlockCall(args, kwargs).with_state(self._layout.to_batch_first(batch_first))
        return call.args, call.kwargs

    def _refuse_cut_graph(self, module: nn.Module, state: Tensor) -> None:
        """Refuse a block whose state has no gradient, so that gradients would leave out all that lies below it."""
        spec = self._capture.spec
        begins_below = spec.differentiable and not (spec.head_only or spec.last_block)
        if begins_below and self._layout.chained and not state.requires_grad:
            refuse_cut_graph(f"block {self._capture.block} ({type(module).__name__})")

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        inside_block(False)
        self._capture.inside = False

    def _capture_projection_input(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._capture.add("projected", args[0])

    def _capture_second_norm_input(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._capture.add("second_norm", args[0])

    def _before_last(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        capture = self._capture
        if not (capture.in_last_block and capture.spec.last_block and capture.spec.differentiable):
            return None
        call = BlockCall(args, kwargs)
        call = call.with_state(self._layout.to_batch_first(begin_graph_at(self._layout.to_batch_first(call.state))))
        return call.args, call.kwargs

    def _after_last(self, module: nn.Module, args: Any, output: Any) -> Any:
        state = state_out(output)
        if not self._capture.in_last_block or state is None:
            return None
        state = self._capture.last_output = self._layout.to_batch_first(state)
        self._capture.add("hidden", state)
        if self._capture.spec.head_only and not self._capture.spec.by_block:
            leaf = F.normalize(state.detach(), dim=-1) if self._capture.spec.normalize_last else state
            state = self._capture.last_output = begin_graph_at(leaf)
        elif not self._layout.time_first:
            return None
        return with_state(output, self._layout.to_batch_first(state))


def inside_block(inside: bool) -> None:
    """Record in the ledger of the rules, if there is one, that a block begins or ends."""
    ledger = LEDGER.get()
    if ledger is not None:
        ledger.inside_block = inside
