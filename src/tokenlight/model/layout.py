"""Layout discovery: which modules are blocks and where attention is called, seen in a pass over a few tokens.

Most families derive their blocks from one class of transformers, run each once, and call attention once in it. For the
others it is found out by a layout discovery (`rehearsal.py`).
"""

from collections.abc import Mapping, Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from tokenlight._compat.transformers_internals import (
    is_block,
    set_attention,
    takes_attention_functions,
    written_attention_of,
)
from tokenlight.common.errors import NothingToRead, UnsupportedModelError
from tokenlight.model import private_copy as model_private_copy
from tokenlight.model.attention import WRITTEN_OUT, UnknownTerm
from tokenlight.model.attention_detection import AttentionDetector
from tokenlight.model.capture import FROM_ATTENTION, Capture, state_in, state_out, tensors_in
from tokenlight.model.config import accepted_inputs
from tokenlight.model.precision import KeepDouble
from tokenlight.model.private_copy import configs_of, embedding_layers, private_copy
from tokenlight.model.protected_buffers import ProtectBuffers
from tokenlight.rules.tags import running_module
from tokenlight.text.batch import Batch


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


ROWS, TOKENS = 2, 7  # of the layout discovery; numbers that no other axis of a state is likely to have


@dataclass(eq=False)
class Call:
    """A module that ran."""

    name: str
    module: nn.Module
    state: Tensor | None
    output: Tensor | None = None


@dataclass
class DiscoveryCapture(Capture):
    """Notes which modules run, one inside the other, and where attention is called."""

    running: list[Call] = field(default_factory=list)
    calls: list[tuple[Call, ...]] = field(default_factory=list)  # each with those that it is in, the outermost first
    attention_in: list[tuple[Call, ...]] = field(default_factory=list)

    def begin(self, call: Call) -> None:
        self.running.append(call)
        self.calls.append(tuple(self.running))

    def end(self, output: Any) -> None:
        self.running.pop().output = state_out(output)

    def count_attention(self) -> None:
        self.attention_in.append(tuple(self.running))


class NoBlocks(UnsupportedModelError):
    """Neither modules that transformers marks as blocks nor attention in a module of a list."""


def discover_layout(model: PreTrainedModel) -> Layout:
    """Attention through the interface, where the family knows it; otherwise as its own code computes it, watched.

    The model that runs is a copy: some remember what they have seen.
    """
    through_interface = None
    if takes_attention_functions(model):
        # The interface's functions cannot follow it, or are not called after all; the family's own code can be watched.
        with suppress(UnknownTerm, NoBlocks):
            through_interface = run_through(model, watched=False)
            if any(through_interface.attentions):
                return through_interface
    own = run_through(model, watched=True)
    return through_interface if through_interface and not any(own.attentions) else own


def run_through(model: PreTrainedModel, watched: bool) -> Layout:
    capture = DiscoveryCapture(shape=(ROWS, TOKENS))
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        NoLeaves(),
        AttentionDetector(capture) if watched else nullcontext(),
    ):
        copy = private_copy(model)
        prepare(copy, capture, watched)
        modules = set(copy.modules())
        with ProtectBuffers(copy):
            answer = run(copy)
        refuse_rebuilt(copy, modules)
        found, attention_in = find_blocks(copy, capture), list(capture.attention_in)
        for block in {call.module for call in found}:
            block.register_forward_hook(spoil_extras)
        again = run(copy)
        chained = all(same(one.output, two.state) for one, two in pairwise(found))
        container = None if chained else find_container(copy, capture, found, answer)
    if not found:
        raise NoBlocks(
            f"{type(model).__name__} has no blocks that tokenlight can find: no module that transformers marks as one, "
            "and no attention in a module of a list"
        )
    time_first = embeds_time_first(copy, capture)
    inside = [sum(call in path for path in attention_in) for call in found]
    states = [state for call in found for state in (call.state, call.output)]
    order = {False: (ROWS, TOKENS), True: (TOKENS, ROWS)}
    return Layout(
        blocks=tuple(call.name for call in found),
        attentions=tuple(inside),
        outside=len(attention_in) - sum(inside),
        watched=watched,
        chained=chained or container is not None,
        by_text=all(state is not None and state.shape[:2] == order[time_first] for state in states),
        time_first=time_first,
        state_alone=all(same(one, two) for one, two in zip(answer, again, strict=True)),
        container=container,
    )


def find_container(
    model: PreTrainedModel, capture: DiscoveryCapture, found: list[Call], answer: list[Tensor]
) -> str | None:
    """The module that holds blocks whose parts lie apart, as XLM's; None where states between them are not all.

    What a block begins with reads the whole state if, with this state of one text, any other text has its answer.
    """
    around = [path[:-1] for path in capture.calls if path[-1] in found]
    container = next((one for one in reversed(around[0]) if all(one in path for path in around)), None)
    states = [call.state for call in found]
    if container is None or container.output is None or len({call.module for call in found}) < len(found):
        return None
    if any(state is None or state.shape != container.output.shape for state in states):
        return None
    for call in found:
        handle = call.module.register_forward_pre_hook(putting(call.state), with_kwargs=True)
        other = run(model, first=ROWS * TOKENS)
        handle.remove()
        if not all(same(one, two) for one, two in zip(answer, other, strict=True)):
            return None
    return container.name


def putting(state: Tensor | None) -> Any:
    def put(module: nn.Module, args: Any, kwargs: Any) -> None:
        present = state_in(args, kwargs)
        if state is not None and present is not None:
            present.copy_(state)  # in place: whoever else reads the state reads this one

    return put


def refuse_rebuilt(model: PreTrainedModel, modules: set[nn.Module]) -> None:
    """A model that has put other modules in place since then: the next text would meet another model than was given."""
    if new := sorted({type(module).__name__ for module in set(model.modules()) - modules}):
        raise UnsupportedModelError(
            f"{type(model).__name__} replaces its own modules while it runs ({', '.join(new)}), and keeps the new "
            "ones for all later texts: what it says depends on earlier texts. Choose one way yourself, as with "
            "BigBird's model.bert.set_attention_type('original_full')"
        )


class NoLeaves(TorchFunctionMode):
    """While this is active, tensors that a model makes out of nothing are refused, where they want a gradient."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.requires_grad_:
            raise UnsupportedModelError(
                f"{running_module()} makes a tensor that requires a gradient but does not depend on the text: what "
                "should be there is not computed on this machine, for instance because a GPU kernel is missing"
            )
        return func(*args, **(kwargs or {}))


def embeds_time_first(model: PreTrainedModel, capture: DiscoveryCapture) -> bool:
    """Whether embeddings are [token, batch, dim]; anything but that and [batch, token, dim] is refused."""
    layers = embedding_layers(model)
    found = {
        None if call.output is None else call.output.shape[:2] for *_, call in capture.calls if call.module in layers
    }
    if found == {(TOKENS, ROWS)}:
        return True
    if found - {(ROWS, TOKENS)}:
        raise UnsupportedModelError(
            f"{type(model).__name__} embeds its tokens neither as [batch, token, dim] nor as [token, batch, dim]"
        )
    return False


def prepare(model: PreTrainedModel, capture: DiscoveryCapture, watched: bool) -> None:
    for config in configs_of(model):
        set_attention(config, written_attention_of(config) if watched else WRITTEN_OUT)
    holder = Holder(capture)
    for name, module in model.named_modules():
        module.__dict__["tokenlight"] = holder  # how the attention function finds the capture
        hook(capture, name, module)


@dataclass
class Holder:
    capture: Capture


def run(model: PreTrainedModel, first: int = 0) -> list[Tensor]:
    """What the model answers to a few tokens, of which one is the first."""
    vocabulary = model.config.get_text_config().vocab_size
    device = model_private_copy.device_of(model.get_input_embeddings())
    ids = (torch.arange(ROWS * TOKENS, device=device).view(ROWS, TOKENS) + first) % vocabulary
    accepted = accepted_inputs(model)
    given = {name: part for name, part in Batch(ids, torch.ones_like(ids)).inputs().items() if name in accepted}
    try:
        with KeepDouble() if model.dtype == torch.float64 else nullcontext():  # as in an instrumented model
            return list(tensors_in(model(**given, return_dict=True).values()))
    except UnsupportedModelError:
        raise
    except Exception as error:
        raise UnsupportedModelError(f"{type(model).__name__} does not run on token ids here: {error!r}") from error


def spoil_extras(module: nn.Module, args: Any, output: Any) -> Any:
    """Whatever a block hands on beside its state; if the answer stays the same, nobody reads it."""
    if not isinstance(output, tuple | list):
        return None
    spoilt = [torch.full_like(one, torch.nan) if is_number(one) else one for one in output[1:]]
    return type(output)([output[0], *spoilt])


def is_number(part: Any) -> bool:
    return isinstance(part, Tensor) and part.is_floating_point()


def hook(capture: DiscoveryCapture, name: str, module: nn.Module) -> None:
    def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
        capture.begin(Call(name, module, state_in(args, kwargs)))

    module.register_forward_pre_hook(begin, with_kwargs=True)
    module.register_forward_hook(lambda module, args, output: capture.end(output))


def find_blocks(model: PreTrainedModel, capture: DiscoveryCapture) -> list[Call]:
    """Those of transformers' own kind that ran; without any, the members of lists in which attention is called."""
    marked = [path[-1] for path in capture.calls if [is_block(call.module) for call in path].count(True) == 1]
    marked = [call for call in marked if is_block(call.module)]  # a block in a block is a part of it
    if marked:
        return marked
    listed = {id(one) for module in model.modules() if isinstance(module, nn.ModuleList) for one in module}
    inside = [[call for call in path if id(call.module) in listed] for path in capture.attention_in]
    kinds = {type(path[-1].module) for path in inside if path}  # others of their kind are blocks without attention
    return [path[-1] for path in capture.calls if type(path[-1].module) in kinds and id(path[-1].module) in listed]


def same(one: Tensor | None, two: Tensor | None) -> bool:
    return one is not None and two is not None and one.shape == two.shape and torch.equal(one, two)
