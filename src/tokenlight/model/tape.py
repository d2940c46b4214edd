"""What a twin writes while it runs."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tokenlight.rules.gates import Gatekeeper

SIGNALS = ("embeddings", "hidden", "attention", "values", "context", "gated", "second_norm")
FROM_ATTENTION = frozenset({"attention", "values", "context", "gated"})


@dataclass(frozen=True)
class BlockCall:
    """How a block was called: enough to call it again."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def state(self) -> Tensor:
        """[batch, token, dim]: the block's input, with whatever graph lies before it."""
        return self.args[0] if self.args else self.kwargs["hidden_states"]

    def with_state(self, state: Tensor) -> "BlockCall":
        if self.args:
            return BlockCall((state, *self.args[1:]), self.kwargs)
        return BlockCall((), {**self.kwargs, "hidden_states": state})


@dataclass
class Tape:
    """What the twin writes while it runs; filled by its hooks and by the attention function."""

    keep: frozenset[str] = frozenset()
    differentiable: bool = False
    double: bool = False  # values from the embeddings on in double precision; only rules can follow other weights
    embeddings_instead: Tensor | None = None  # goes in place of the embedding layer's output
    gates: Gatekeeper | None = None  # which heads relevance flows through
    fused: bool = True  # attention may be one operation, without weights
    signals: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in SIGNALS})
    calls: Counter[str] = field(default_factory=Counter)
    last_block: bool = False  # signals are kept of the last block alone, and the graph begins at its input
    head_only: bool = False  # the graph begins at the last block's output
    cut: bool = False  # blocks leave no graph: what follows hangs on their outputs as leaves, and they run again later
    block_calls: list[BlockCall] = field(default_factory=list)
    block_outputs: list[Tensor] = field(default_factory=list)
    in_last_block: bool = False  # or behind it
    last_output: Tensor | None = None  # of the last block, as what follows goes on with it

    @property
    def may_fuse(self) -> bool:
        return self.fused and "attention" not in self.keep

    def clear(self) -> None:
        """As before a run."""
        for group in (*self.signals.values(), self.block_calls, self.block_outputs):
            group.clear()
        self.calls.clear()
        self.in_last_block, self.last_output = False, None

    def add(self, name: str, tensor: Tensor) -> Tensor:
        """Note a tensor on its way; the caller goes on with what comes back."""
        self.calls[name] += 1
        if name in self.keep and (self.in_last_block or not self.last_block):
            if self.differentiable and not self.head_only and not tensor.requires_grad:
                tensor = tensor.detach().requires_grad_()
            self.signals[name].append(tensor)
        return tensor


def without_graph(state: Tensor) -> Tensor:
    """The same values; the mark that rules leave on gates stays."""
    bare = state.detach()
    if hasattr(state, "tokenlight_gate"):
        bare.tokenlight_gate = state.tokenlight_gate  # type: ignore[attr-defined]
    return bare


def tensors_in(parts: Iterable[Any]) -> Iterator[Tensor]:
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, tuple | list):
            yield from tensors_in(part)
