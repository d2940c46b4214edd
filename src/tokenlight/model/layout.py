"""How a model runs: which modules are its blocks, in which order they are called, and where attention is.

Most families derive their blocks from one class of transformers, run each once, and call attention once in it. For the
others it is found out by a layout discovery (`rehearsal.py`).
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight.foundation.errors import NothingToRead, UnsupportedModelError
from tokenlight.foundation.transformers_internals import is_block, takes_attention_functions
from tokenlight.model.tape import FROM_ATTENTION


@dataclass(frozen=True)
class Layout:
    """What is expected of a run."""

    blocks: tuple[str, ...]  # names of modules in the order of their calls; one that is called twice stands here twice
    attentions: tuple[int, ...]  # of every call of a block: how often it calls attention
    outside: int = 0  # attention calls that are in no block
    watched: bool = False  # attention does not come through the interface: torch functions are watched
    chained: bool = True  # every block but the first reads what the one before it gave
    by_text: bool = True  # states are [batch, token, dim], or [token, batch, dim] like the embeddings
    time_first: bool = False  # embeddings are [token, batch, dim]
    state_alone: bool = False  # whatever else a block hands on, nobody reads it
    # Blocks are no modules, their parts lie in lists of their kinds: a block begins at the module that is named in its
    # place and ends where the next one begins, the last one where this module ends.
    container: str | None = None

    def to_batch_first(self, state: Tensor) -> Tensor:
        """From the model's order to [batch, token, dim], or back."""
        return state.transpose(0, 1) if self.time_first else state

    def expected(self) -> dict[str, Any]:
        """What the capture of a run finds (`Capture.found`)."""
        return {
            "embeddings": 1,
            "blocks": list(self.blocks),
            "attention": list(self.attentions),
            "attention outside of blocks": self.outside,
        }

    def modules(self, model: PreTrainedModel) -> list[nn.Module]:
        """The blocks, as often as they are called."""
        return [model.get_submodule(name) for name in self.blocks]

    def holders(self, model: PreTrainedModel) -> list[nn.Module]:
        """For every call of a block, the module that all its parts lie in: the block, or one that holds all blocks."""
        return (
            self.modules(model) if self.container is None else [model.get_submodule(self.container)] * len(self.blocks)
        )

    def refuse_missing(self, model: PreTrainedModel, signals: Set[str], beside_attention: bool) -> None:
        """Signals of which this model does not have one a block; `beside_attention`: a recurrence carries more."""
        name = type(model).__name__
        if signals & FROM_ATTENTION and (set(self.attentions) != {1} or self.outside or beside_attention):
            # Maps of some blocks only would tell a part of the story as if it were all of it.
            raise NothingToRead(
                f"{name}: {sum(map(bool, self.attentions))} of the model's {len(self.blocks)} blocks have attention, "
                f"{max(self.attentions)} maps at most, {self.outside} outside of blocks. A method that reads attention "
                "needs one map for each block, and no recurrence or convolution next to it. Choose a method that "
                "reads none, such as gradient_x_input or attn_lrp"
            )
        if signals & {*FROM_ATTENTION, "hidden", "second_norm"} and not (self.chained and self.by_text):
            found = "do not follow one another" if self.by_text else "do not read states [batch, token, dim]"
            raise UnsupportedModelError(
                f"the blocks of {name} {found}, so there are no states between them, which this needs; methods that "
                "read nothing but the embeddings work"
            )


def is_usual(model: PreTrainedModel) -> bool:
    """Whether a model looks as most families do; whether it is so, its first run says."""
    return takes_attention_functions(model) and any(map(is_block, model.modules()))


def plain_layout(model: PreTrainedModel) -> Layout:
    """As most families: every block of transformers' own kind once, with one attention call through the interface."""
    names = tuple(name for name, module in model.named_modules() if is_block(module))
    return Layout(names, (1,) * len(names))


def layout_of(model: PreTrainedModel) -> Layout:
    """What a layout discovery found, or else what is usual."""
    return DISCOVERED_LAYOUTS.get(model) or plain_layout(model)


DISCOVERED_LAYOUTS: WeakKeyDictionary[PreTrainedModel, Layout] = WeakKeyDictionary()
