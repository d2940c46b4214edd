"""What a forward pass is asked to keep, and what it kept."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from transformers.utils.generic import ModelOutput

from tokenlight._compat.torch_internals import begin_signal, changes_of, is_view, without_torch_functions
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.head_gates import Gatekeeper

SIGNALS = ("embeddings", "hidden", "attention", "values", "context", "gated", "projected", "second_norm")
FROM_ATTENTION = frozenset({"attention", "values", "context", "gated"})


@dataclass(frozen=True)
class BlockCall:
    """How a block was called: enough to call it again."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def state(self) -> Tensor:
        """[batch, token, dim]: the block's input, with whatever graph lies before it."""
        found = state_in(self.args, self.kwargs)
        if found is None:
            raise UnsupportedModelError("a block is called without hidden states as its first argument")
        return found

    def with_state(self, state: Tensor) -> "BlockCall":
        """The same call with another state, in every place where this one is."""
        old = self.state
        args = tuple(state if part is old else part for part in self.args)
        return BlockCall(args, {name: state if part is old else part for name, part in self.kwargs.items()})


def state_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """What a module that is called like this gets as its state."""
    found = args[0] if args else kwargs.get("hidden_states")
    return found if isinstance(found, Tensor) else None


def state_out(output: Any) -> Tensor | None:
    """What a module hands on as its state."""
    found = output[0] if isinstance(output, tuple | list | ModelOutput) and output else output
    return found if isinstance(found, Tensor) else None


def with_state(output: Any, state: Tensor) -> Any:
    """The same output with another state."""
    if isinstance(output, ModelOutput):
        return type(output)(**{**output, next(iter(output)): state})
    return state if isinstance(output, Tensor) else type(output)([state, *output[1:]])


@dataclass
class Capture:
    """What the instrumented model writes while it runs; filled by its hooks and by the attention function."""

    keep: frozenset[str] = frozenset()
    differentiable: bool = False
    double: bool = False  # values from the embeddings on in double precision; only rules can follow other weights
    embeddings_instead: Tensor | None = None  # goes in place of the embedding layer's output
    gates: Gatekeeper | None = None  # which heads relevance flows through
    fused: bool = True  # attention may be one operation, without weights
    hides: bool = False  # the batch hides tokens that may be read
    hidden: Tensor | None = None  # [batch, token] bool: no token attends to these, though the model's mask has them
    key_factors: Tensor | None = None  # [batch, token]: scores of each token as a key are multiplied with these
    shift_scores: bool = False  # ... after the least score that a query sees was taken from all of its scores
    signals: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in SIGNALS})
    shape: tuple[int, int] = (0, 0)  # batch and tokens of the run
    embedded: int = 0  # calls of the embedding layer
    block: int = -1  # the block that runs, or ran last
    inside: bool = False  # a block runs
    blocks: list[str] = field(default_factory=list)  # by name, in the order of their calls
    attentions: list[int] = field(default_factory=list)  # calls of attention in each of them
    outside: int = 0  # ... and in none
    versions: list[tuple[Tensor, int]] = field(default_factory=list)  # of what is kept: has it been written over?
    last_block: bool = False  # signals are kept of the last block alone, and the graph begins at its input
    head_only: bool = False  # the graph begins at the last block's output ...
    shrunk: bool = False  # ... of which only the direction goes on
    cut: bool = False  # blocks leave no graph: what follows hangs on their outputs as leaves, and they run again later
    block_calls: list[BlockCall] = field(default_factory=list)
    block_inputs: list[Tensor] = field(default_factory=list)  # the leaves that blocks were given in place of the states
    block_outputs: list[Tensor] = field(default_factory=list)
    in_last_block: bool = False  # or behind it
    last_output: Tensor | None = None  # of the last block, as what follows goes on with it

    @property
    def may_fuse(self) -> bool:
        return self.fused and "attention" not in self.keep

    @property
    def reads(self) -> frozenset[str]:
        """Signals that somebody needs, or that something is done to."""
        between = {"hidden"} if self.head_only or self.last_block or self.cut else set()
        return self.keep | between | (set() if self.gates is None else {"gated"})

    def clear(self) -> None:
        """As before a run."""
        for group in (*self.signals.values(), self.block_calls, self.block_inputs, self.block_outputs, self.blocks):
            group.clear()
        self.attentions.clear()
        self.versions.clear()
        self.embedded, self.outside, self.block = 0, 0, -1
        self.inside = self.in_last_block = False
        self.last_output = None

    def observed(self) -> dict[str, Any]:
        """What ran, for comparison with what was expected."""
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
        """Note a tensor on its way; the caller goes on with what comes back."""
        if name in self.keep and (self.in_last_block or not self.last_block):
            if self.differentiable and not self.head_only and not tensor.requires_grad:
                tensor = begin_signal(tensor.detach())
            self.signals[name].append(tensor)
            if not tensor.is_inference():
                self.versions.append((tensor, changes_of(tensor)))
        return tensor

    def refuse_overwritten(self) -> None:
        """What was kept must still be what it was."""
        if any(changes_of(tensor) != version for tensor, version in self.versions):
            names = sorted(self.keep)
            raise UnsupportedModelError(f"the model writes over a state after it was noted, one of {', '.join(names)}")


def without_graph(state: Tensor) -> Tensor:
    """The same values; the mark that rules leave on gates stays."""
    bare = state.detach()
    if hasattr(state, "tokenlight_gate"):
        bare.tokenlight_gate = state.tokenlight_gate  # type: ignore[attr-defined]
    return bare


def begin_graph_at(state: Tensor) -> Tensor:
    """The state as the leaf of a new graph, without the graph that it had.

    It stays the same tensor, so that a hook that has stored it has stored the leaf. Views and leaves cannot be cut off
    in place: they are replaced by a new tensor.
    """
    with without_torch_functions():
        if is_view(state) or (state.is_leaf and state.requires_grad):
            return begin_signal(without_graph(state))
        state.detach_()
        for mark in [name for name in vars(state) if name.startswith("tokenlight_") and name != "tokenlight_gate"]:
            delattr(state, mark)
        return begin_signal(state)


def tensors_in(parts: Iterable[Any]) -> Iterator[Tensor]:
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, tuple | list):
            yield from tensors_in(part)
