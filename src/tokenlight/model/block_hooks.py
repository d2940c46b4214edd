"""Hooks around every block: capture of its states, and where graphs begin and end."""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import begin_signal, is_callers_own, leaves_below, without_torch_functions
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model import block_structure
from tokenlight.model.capture import (
    BlockCall,
    Capture,
    begin_graph_at,
    state_in,
    state_out,
    tensors_in,
    with_state,
    without_graph,
)
from tokenlight.model.layout import Layout
from tokenlight.rules.ledger import LEDGER


class HasCapture(Protocol):
    capture: Capture  # of the run that is under way


class BlockHooks:
    """Hooks on the blocks of a layout; a block that is called several times has them once."""

    def __init__(self, owner: HasCapture, model: PreTrainedModel, layout: Layout):
        self._owner, self._layout, self._last = owner, layout, len(layout.blocks) - 1
        self._names: dict[nn.Module, str] = dict(zip(layout.modules(model), layout.blocks, strict=True))
        self._handles: list[RemovableHandle] = []
        self._noted: set[nn.Module] = set()
        if layout.container is not None:
            self._hook_open_blocks(model.get_submodule(layout.container))
            return
        for block in self._names:
            norm = block_structure.second_norm(model, block)
            self._handles += [
                # Before hooks of the user's, which are part of the block: they run again with it.
                block.register_forward_pre_hook(self._cut_before, with_kwargs=True, prepend=True),
                block.register_forward_pre_hook(self._before_last, with_kwargs=True, prepend=True),
                block.register_forward_pre_hook(self._begin, with_kwargs=True, prepend=True),
                block.register_forward_pre_hook(self._note_state, with_kwargs=True),
                block.register_forward_hook(self._end),
                block.register_forward_hook(self._after_last),
                block.register_forward_hook(self._cut_after),
                *([] if norm is None else [norm.register_forward_pre_hook(self._note_second_norm)]),
            ]

    def _hook_open_blocks(self, container: nn.Module) -> None:
        """Blocks that are no modules cannot be called on their own, nor with another state."""
        for first in self._names:
            self._handles += [
                first.register_forward_pre_hook(self._begin_open, with_kwargs=True, prepend=True),
                first.register_forward_pre_hook(self._note_state, with_kwargs=True),
            ]
        self._handles += [
            container.register_forward_hook(self._end),
            container.register_forward_hook(self._after_last),
        ]

    def note_projections(self, projections: Iterable[nn.Module]) -> None:
        """From now on, what these modules read is noted; one that is called several times stands here several times."""
        for module in set(projections) - self._noted:
            self._noted.add(module)
            self._handles.append(module.register_forward_pre_hook(self._note_projected))

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
        if self._capture.cut or self._capture.last_block:
            raise UnsupportedModelError(
                f"low_memory: a block of this model is spread over several modules ({type(module).__name__} is one), "
                "so it cannot run on its own; leave it off"
            )
        self._begin(module, args, kwargs)

    def _cut_before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._capture.cut:
            return None
        call = BlockCall(args, kwargs)
        if any(part is not call.state and part.requires_grad for part in tensors_in([*args, *kwargs.values()])):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} reads more of the input than the state before it; leave it off"
            )
        capture, state = self._capture, self._layout.to_batch_first(call.state)
        if any(earlier.state is state for earlier in capture.block_calls):
            raise UnsupportedModelError(
                f"low_memory: two blocks read the same state ({type(module).__name__} is the second); leave it off"
            )
        capture.block_calls.append(call.with_state(state))
        # The block's graph begins here and is dropped when the block ends, unless something inside was stored.
        bare = without_graph(state)
        capture.block_inputs.append(begin_signal(bare) if capture.differentiable and not capture.head_only else bare)
        call = call.with_state(self._layout.to_batch_first(bare))
        return call.args, call.kwargs

    def _cut_after(self, module: nn.Module, args: Any, output: Any) -> Any:
        if not self._capture.cut:
            return None
        state = state_out(output)
        extras = [] if isinstance(output, Tensor) else list(tensors_in(output[1:]))
        if state is None or (extras and not self._layout.state_alone):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} hands on more than one tensor; leave it off"
            )
        begun = self._capture.block_inputs[-1]
        with without_torch_functions():
            others = [leaf for leaf in leaves_below(state) if leaf is not begun and not is_callers_own(leaf)]
        if any(leaf.requires_grad for leaf in others):
            raise UnsupportedModelError(
                f"low_memory: {type(module).__name__} reads more of the input than the state before it; leave it off"
            )
        leaf = self._capture.last_output = begin_graph_at(self._layout.to_batch_first(state))
        self._capture.block_outputs.append(leaf)
        return with_state(output, self._layout.to_batch_first(leaf))

    def _note_state(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inside_block(True)
        state = state_in(args, kwargs)
        if state is None:
            return None
        noted = self._layout.to_batch_first(state)
        self._capture.add("hidden", noted)
        if not self._layout.time_first:
            return None
        call = BlockCall(args, kwargs).with_state(self._layout.to_batch_first(noted))  # what is noted is on the way
        return call.args, call.kwargs

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        inside_block(False)
        self._capture.inside = False

    def _note_projected(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._capture.add("projected", args[0])

    def _note_second_norm(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._capture.add("second_norm", args[0])

    def _before_last(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        capture = self._capture
        if not (capture.in_last_block and capture.last_block and capture.differentiable):
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
        if self._capture.head_only and not self._capture.cut:
            leaf = F.normalize(state.detach(), dim=-1) if self._capture.shrunk else state
            state = self._capture.last_output = begin_graph_at(leaf)
        elif not self._layout.time_first:
            return None
        return with_state(output, self._layout.to_batch_first(state))


def inside_block(inside: bool) -> None:
    """Tell the rules, if there are any, that a block begins or ends."""
    ledger = LEDGER.get()
    if ledger is not None:
        ledger.inside_block = inside
