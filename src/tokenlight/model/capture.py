"""What a forward pass captures (`CaptureSpec`), and what it captured (`Capture`)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

from tokenlight._compat.torch_internals import begin_signal, changes_of, is_view, without_torch_functions
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.head_gates import GateApplier
from tokenlight.text.batch import Batch

SIGNALS = ("embeddings", "hidden", "attention", "values", "context", "gated", "projected", "second_norm")
FROM_ATTENTION = frozenset({"attention", "values", "context", "gated"})


@dataclass(frozen=True)
class BlockCall:
    """The arguments of a block's call, with which it can run again."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def state(self) -> Tensor:
        """[batch, token, dim]: the block's input, with its graph."""
        state = state_in(self.args, self.kwargs)
        if state is None:
            raise UnsupportedModelError("a block is called without hidden states as its first argument")
        return state

    def with_state(self, state: Tensor) -> "BlockCall":
        """The same call with another state in every argument that is the present one."""
        old = self.state
        args = tuple(state if arg is old else arg for arg in self.args)
        return BlockCall(args, {name: state if arg is old else arg for name, arg in self.kwargs.items()})


def state_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The hidden states among the arguments of a module's call."""
    state = args[0] if args else kwargs.get("hidden_states")
    return state if isinstance(state, Tensor) else None


def state_out(output: Any) -> Tensor | None:
    """The hidden states in a module's output."""
    state = output[0] if isinstance(output, tuple | list | ModelOutput) and output else output
    return state if isinstance(state, Tensor) else None


def with_state(output: Any, state: Tensor) -> Any:
    """The same output with another state."""
    if isinstance(output, ModelOutput):
        return type(output)(**{**output, next(iter(output)): state})
    return state if isinstance(output, Tensor) else type(output)([state, *output[1:]])


@dataclass(frozen=True, eq=False)
class CaptureSpec:
    """What one forward pass captures, where its graph begins, and which of the model's tensors are replaced."""

    keep: frozenset[str] = frozenset()  # signals to capture, of SIGNALS
    differentiable: bool = False  # the pass has a graph, and captured signals are part of it
    double: bool = False  # values from the embeddings on in double precision; rules cast weights as they need them
    embeddings: Tensor | None = None  # replaces the embedding layer's output
    gates: GateApplier | None = None  # head gates of the backward pass
    head_outputs: Callable[[Tensor, int], Tensor] | None = None  # replaces head outputs, given them and their block
    fused: bool = True  # attention may be one operation, without weights
    last_block: bool = False  # capture signals of the last block alone; the graph begins at its input
    head_only: bool = False  # the graph begins at the last block's output ...
    normalize_last: bool = False  # ... which is scaled to length 1
    by_block: bool = False  # the graph of each block is released; blocks run again in the backward pass

    @property
    def reads(self) -> frozenset[str]:
        """Signals that are captured, gated, or where the graph is cut."""
        between = {"hidden"} if self.head_only or self.last_block or self.by_block else set()
        return self.keep | between | (set() if self.gates is None else {"gated"})


@dataclass(frozen=True, eq=False)
class KeyChanges:
    """What a batch changes about attention keys."""

    hides: bool = False  # attention_mask hides tokens at which an output may be read
    hidden: Tensor | None = None  # [batch, token] bool: masked as keys, though attention_mask includes them
    factors: Tensor | None = None  # [batch, token]: the scores of each token as a key are multiplied with these
    shift_scores: bool = False  # ... after the least score of each query was subtracted from its scores

    @classmethod
    def of_batch(cls, batch: Batch) -> "KeyChanges":
        return cls(batch.hides, batch.hidden_in_attention, batch.key_factors, batch.shift_scores)


@dataclass
class Capture:
    """What one forward pass captured; filled by the hooks and attention functions of the instrumented model."""

    spec: CaptureSpec = field(default_factory=CaptureSpec)
    keys: KeyChanges = field(default_factory=KeyChanges)  # of the batch
    signals: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in SIGNALS})
    versions: list[tuple[Tensor, int]] = field(default_factory=list)  # of signals, to detect in-place writes
    shape: tuple[int, int] = (0, 0)  # batch and tokens
    embedded: int = 0  # calls of the embedding layer
    block: int = -1  # the block that runs, or ran last
    inside: bool = False  # a block runs
    in_last_block: bool = False  # the last block runs, or has run
    blocks: list[str] = field(default_factory=list)  # names of blocks in the order of their calls
    attentions: list[int] = field(default_factory=list)  # attention calls in each of them
    outside: int = 0  # attention calls in no block
    block_calls: list[BlockCall] = field(default_factory=list)  # by_block: how each block was called
    block_inputs: list[Tensor] = field(default_factory=list)  # by_block: the leaf that replaced each block's input
    block_outputs: list[Tensor] = field(default_factory=list)  # by_block: the leaf that replaced each block's output
    last_output: Tensor | None = None  # the last block's output, as the head reads it

    @property
    def may_fuse(self) -> bool:
        """Whether attention may be one operation, which neither returns weights nor exposes its scores."""
        return self.spec.fused and "attention" not in self.spec.keep and self.keys.factors is None

    @property
    def reads(self) -> frozenset[str]:
        """The signals that the model must have in every block."""
        return self.spec.reads

    def clear(self) -> None:
        """Reset all that a pass fills, before the pass is repeated."""
        for group in (*self.signals.values(), self.block_calls, self.block_inputs, self.block_outputs, self.blocks):
            group.clear()
        self.attentions.clear()
        self.versions.clear()
        self.embedded, self.outside, self.block = 0, 0, -1
        self.inside = self.in_last_block = False
        self.last_output = None

    def observed(self) -> dict[str, Any]:
        """The calls that were counted, for comparison with `Layout.expected`."""
        return {
            "embeddings": self.embedded,
            "blocks": self.blocks,
            "attention": self.attentions,
            "attention outside of blocks": self.outside,
        }

    def begin_block(self, name: str) -> None:
        self.block += 1
        self.blocks.append(name)
        self.attentions.append(0)
        self.inside = True

    def count_attention(self) -> None:
        if self.inside:
            self.attentions[-1] += 1
        else:
            self.outside += 1

    def add(self, name: str, tensor: Tensor) -> Tensor:
        """Capture a tensor if the spec has its signal; the caller must go on with the returned tensor."""
        spec = self.spec
        if name in spec.keep and (self.in_last_block or not spec.last_block):
            if spec.differentiable and not spec.head_only and not torch.is_grad_enabled():
                refuse_cut_graph(f"the attention of block {self.block}" if name in FROM_ATTENTION else "a block")
            if spec.differentiable and not spec.head_only and not tensor.requires_grad:
                tensor = begin_signal(tensor.detach())
            self.signals[name].append(tensor)
            if not tensor.is_inference():
                self.versions.append((tensor, changes_of(tensor)))
        return tensor

    def refuse_overwritten(self) -> None:
        """Refuse a model that has written over a captured tensor."""
        if any(changes_of(tensor) != version for tensor, version in self.versions):
            names = sorted(self.spec.keep)
            raise UnsupportedModelError(
                f"the model writes over a state after it was captured, one of {', '.join(names)}"
            )


def refuse_cut_graph(reader: str) -> None:
    """Refuse a model that cuts states off from the text, whose gradients would leave out what it computes there."""
    raise UnsupportedModelError(
        f"{reader} computes without a gradient: the model's own code calls detach() or torch.no_grad(), so gradients "
        "do not hold all that the text does to the output. Remove these calls, or choose a method that needs no "
        "gradient, such as erasure or rollout"
    )


def without_graph(state: Tensor) -> Tensor:
    """The detached state, which keeps the tag of multiplicative gates."""
    detached = state.detach()
    if hasattr(state, "tokenlight_gate"):
        detached.tokenlight_gate = state.tokenlight_gate  # type: ignore[attr-defined]
    return detached


def begin_graph_at(state: Tensor) -> Tensor:
    """The state as the leaf of a new graph, without its former graph.

    It stays the same tensor, so that a hook that has stored it has stored the leaf. Views and leaves cannot be detached
    in place: they are replaced by a new tensor.
    """
    with without_torch_functions():
        if is_view(state) or (state.is_leaf and state.requires_grad):
            return begin_signal(without_graph(state))
        state.detach_()
        for tag in [name for name in vars(state) if name.startswith("tokenlight_") and name != "tokenlight_gate"]:
            delattr(state, tag)
        return begin_signal(state)


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors in nested tuples and lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from tensors_in(value)
