"""Layout discovery: which modules are blocks and where attention is called, observed in a pass over a few tokens.

Most families derive their blocks from one class of transformers, run each once, and call attention once in each. Their
layout needs no discovery.
"""

from collections.abc import Mapping, Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from tokenlight._compat.transformers_internals import (
    is_block,
    plain_attention_of,
    set_attention,
    takes_attention_functions,
)
from tokenlight.common.errors import NothingToRead, UnsupportedModelError
from tokenlight.model import private_copy as model_private_copy
from tokenlight.model.attention import WRITTEN_OUT, UnknownTerm
from tokenlight.model.attention_detection import AttentionDetector
from tokenlight.model.capture import FROM_ATTENTION, Capture, state_in, state_out, tensors_in
from tokenlight.model.config import accepted_inputs
from tokenlight.model.model_facts import FactsByModel
from tokenlight.model.precision import KeepDouble, without_caller_modes
from tokenlight.model.private_copy import configs_of, embedding_layers, private_copy
from tokenlight.model.protected_buffers import ProtectBuffers
from tokenlight.rules.tags import running_module
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class Layout:
    """The expected calls of blocks and attention in a pass."""

    blocks: tuple[str, ...]  # names of modules in the order of their calls, one for each call
    attentions: tuple[int, ...]  # the number of attention calls in every call of a block
    outside: int = 0  # attention calls outside of blocks
    watched: bool = False  # the family computes attention itself: it is detected in torch functions
    chained: bool = True  # every block but the first reads the output of the block before it
    by_text: bool = True  # states are [batch, token, dim], or [token, batch, dim] like the embeddings
    time_first: bool = False  # embeddings are [token, batch, dim]
    state_alone: bool = False  # no other output of a block than its state is read
    # Blocks are not modules, but span modules in several lists: a block begins at the module that `blocks` names and
    # ends where the next one begins, the last one where this module ends.
    container: str | None = None

    def to_batch_first(self, state: Tensor) -> Tensor:
        """From the model's order to [batch, token, dim], or back."""
        return state.transpose(0, 1) if self.time_first else state

    def expected(self) -> dict[str, Any]:
        """The calls that a capture counts in a pass (`Capture.observed`)."""
        return {
            "embeddings": 1,
            "blocks": list(self.blocks),
            "attention": list(self.attentions),
            "attention outside of blocks": self.outside,
        }

    def modules(self, model: PreTrainedModel) -> list[nn.Module]:
        """The block of every call."""
        return [model.get_submodule(name) for name in self.blocks]

    def holders(self, model: PreTrainedModel) -> list[nn.Module]:
        """For every call of a block, the module that contains all of it: the block, or the container of all blocks."""
        return (
            self.modules(model) if self.container is None else [model.get_submodule(self.container)] * len(self.blocks)
        )

    def refuse_missing(self, model: PreTrainedModel, signals: Set[str], beside_attention: bool) -> None:
        """Refuse signals that this model does not have in every block.

        `beside_attention`: the model has recurrences, too.
        """
        name = type(model).__name__
        if signals & FROM_ATTENTION and (set(self.attentions) != {1} or self.outside or beside_attention):
            # Maps of only some blocks must not be shown as a description of the model.
            raise NothingToRead(
                f"{name}: {sum(map(bool, self.attentions))} of the model's {len(self.blocks)} blocks have attention, "
                f"{max(self.attentions)} maps at most, {self.outside} outside of blocks. A method that reads attention "
                "needs one map for each block, and no recurrence or convolution next to it. Choose a method that "
                "reads none, such as gradient_x_input or attn_lrp"
            )
        if signals & {*FROM_ATTENTION, "hidden", "second_norm"} and not (self.chained and self.by_text):
            reason = "do not follow one another" if self.by_text else "do not read states [batch, token, dim]"
            raise UnsupportedModelError(
                f"the blocks of {name} {reason}, so there are no states between them, which this needs; methods that "
                "read nothing but the embeddings work"
            )


def is_usual(model: PreTrainedModel) -> bool:
    """Whether a model probably has the layout of most families; its first pass is compared with that layout."""
    return takes_attention_functions(model) and any(map(is_block, model.modules()))


def plain_layout(model: PreTrainedModel) -> Layout:
    """The layout of most families: every block of transformers' class once, with one attention call in each."""
    names = tuple(name for name, module in model.named_modules() if is_block(module))
    return Layout(names, (1,) * len(names))


def layout_of(model: PreTrainedModel) -> Layout:
    """The discovered layout of a model, or else the usual one."""
    return DISCOVERED_LAYOUTS.get(model) or plain_layout(model)


DISCOVERED_LAYOUTS: FactsByModel[Layout] = FactsByModel()


TEXTS, TOKENS = 2, 7  # sizes of the discovery's batch, which no other axis of a state is likely to have


@dataclass(eq=False)
class Call:
    """A call of a module, with its input and output states."""

    name: str
    module: nn.Module
    state: Tensor | None
    output: Tensor | None = None


@dataclass
class DiscoveryCapture(Capture):
    """Records the nested calls of modules, and where attention is called."""

    running: list[Call] = field(default_factory=list)
    calls: list[tuple[Call, ...]] = field(default_factory=list)  # each after the calls that contain it
    attention_in: list[tuple[Call, ...]] = field(default_factory=list)

    def begin(self, call: Call) -> None:
        self.running.append(call)
        self.calls.append(tuple(self.running))

    def end(self, output: Any) -> None:
        self.running.pop().output = state_out(output)

    def count_attention(self) -> None:
        self.attention_in.append(tuple(self.running))


class NoBlocks(UnsupportedModelError):
    """The model has neither modules of transformers' block class nor attention in a member of a module list."""


def discover_layout(model: PreTrainedModel) -> Layout:
    """The layout with registered attention functions, where the family calls them; otherwise with detected attention.

    The model that runs is a copy: some models change their state as they run.
    """
    with_functions = None
    if takes_attention_functions(model):
        # Where the functions lack a term of the family's attention, or are not called, its own code is observed.
        with suppress(UnknownTerm, NoBlocks):
            with_functions = observe_layout(model, watched=False)
            if any(with_functions.attentions):
                return with_functions
    detected = observe_layout(model, watched=True)
    return with_functions if with_functions and not any(detected.attentions) else detected


def observe_layout(model: PreTrainedModel, watched: bool) -> Layout:
    """The layout of a model as a pass over a few tokens shows it."""
    capture = DiscoveryCapture(shape=(TEXTS, TOKENS))
    with (
        without_caller_modes(),
        torch.no_grad(),
        NoLeaves(),
        AttentionDetector(capture) if watched else nullcontext(),
    ):
        copy = private_copy(model)
        prepare(copy, capture, watched)
        modules = set(copy.modules())
        with ProtectBuffers(copy):
            output = run(copy)
        refuse_rebuilt(copy, modules)
        blocks, attention_in = find_blocks(copy, capture), list(capture.attention_in)
        for block in {call.module for call in blocks}:
            block.register_forward_hook(set_extras_to_nan)
        output_of_states = run(copy)
        chained = all(same(block.output, following.state) for block, following in pairwise(blocks))
        container = None if chained else find_container(copy, capture, blocks, output)
    if not blocks:
        raise NoBlocks(
            f"{type(model).__name__} has no blocks that tokenlight can find: no module that transformers marks as one, "
            "and no attention in a module of a list"
        )
    time_first = embeds_time_first(copy, capture)
    inside = [sum(call in path for path in attention_in) for call in blocks]
    states = [state for call in blocks for state in (call.state, call.output)]
    order = {False: (TEXTS, TOKENS), True: (TOKENS, TEXTS)}
    return Layout(
        blocks=tuple(call.name for call in blocks),
        attentions=tuple(inside),
        outside=len(attention_in) - sum(inside),
        watched=watched,
        chained=chained or container is not None,
        by_text=all(state is not None and state.shape[:2] == order[time_first] for state in states),
        time_first=time_first,
        state_alone=all(same(*pair) for pair in zip(output, output_of_states, strict=True)),
        container=container,
    )


def find_container(
    model: PreTrainedModel, capture: DiscoveryCapture, blocks: list[Call], output: list[Tensor]
) -> str | None:
    """The module that contains blocks which span modules of several lists, as in XLM; None where there is none.

    The states between such blocks must carry all information: with the state of these texts written in place of its
    own, every other batch must have the same output.
    """
    around = [path[:-1] for path in capture.calls if path[-1] in blocks]
    container = next((call for call in reversed(around[0]) if all(call in path for path in around)), None)
    states = [call.state for call in blocks]
    if container is None or container.output is None or len({call.module for call in blocks}) < len(blocks):
        return None
    if any(state is None or state.shape != container.output.shape for state in states):
        return None
    for call in blocks:
        handle = call.module.register_forward_pre_hook(state_writer(call.state), with_kwargs=True)
        other = run(model, first=TEXTS * TOKENS)
        handle.remove()
        if not all(same(*pair) for pair in zip(output, other, strict=True)):
            return None
    return container.name


def state_writer(state: Tensor | None) -> Any:
    """A forward pre-hook that writes this state over the one that its module gets."""

    def write(module: nn.Module, args: Any, kwargs: Any) -> None:
        present = state_in(args, kwargs)
        if state is not None and present is not None:
            present.copy_(state)  # in place: other modules may read the same tensor

    return write


def refuse_rebuilt(model: PreTrainedModel, modules: set[nn.Module]) -> None:
    """Refuse a model that has replaced some of these modules: later texts would run through other modules."""
    if new := sorted({type(module).__name__ for module in set(model.modules()) - modules}):
        raise UnsupportedModelError(
            f"{type(model).__name__} replaces its own modules while it runs ({', '.join(new)}), and keeps the new "
            "ones for all later texts: its output depends on earlier texts. Choose one setting yourself, as with "
            "BigBird's model.bert.set_attention_type('original_full')"
        )


class NoLeaves(TorchFunctionMode):
    """While this is active, a model that calls `requires_grad_` on a tensor is refused."""

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
    """Whether embeddings are [token, batch, dim]; refuses all orders but this and [batch, token, dim]."""
    layers = embedding_layers(model)
    shapes = {
        None if call.output is None else call.output.shape[:2] for *_, call in capture.calls if call.module in layers
    }
    if shapes == {(TOKENS, TEXTS)}:
        return True
    if shapes - {(TEXTS, TOKENS)}:
        raise UnsupportedModelError(
            f"{type(model).__name__} embeds its tokens neither as [batch, token, dim] nor as [token, batch, dim]"
        )
    return False


def prepare(model: PreTrainedModel, capture: DiscoveryCapture, watched: bool) -> None:
    for config in configs_of(model):
        set_attention(config, plain_attention_of(config) if watched else WRITTEN_OUT)
    holder = Holder(capture)
    for name, module in model.named_modules():
        module.__dict__["tokenlight"] = holder  # where the attention function looks up the capture
        hook(capture, name, module)


@dataclass
class Holder:
    """The owner of the capture during discovery, in place of an instrumented model."""

    capture: Capture


def run(model: PreTrainedModel, first: int = 0) -> list[Tensor]:
    """The output tensors of the model for consecutive token ids from `first`."""
    vocabulary = model.config.get_text_config().vocab_size
    device = model_private_copy.device_of(model.get_input_embeddings())
    ids = (torch.arange(TEXTS * TOKENS, device=device).view(TEXTS, TOKENS) + first) % vocabulary
    accepted = accepted_inputs(model)
    inputs = {name: tensor for name, tensor in Batch(ids, torch.ones_like(ids)).inputs().items() if name in accepted}
    try:
        with KeepDouble() if model.dtype == torch.float64 else nullcontext():  # as in an instrumented model
            return list(tensors_in(model(**inputs, return_dict=True).values()))
    except UnsupportedModelError:
        raise
    except Exception as error:
        raise UnsupportedModelError(f"{type(model).__name__} does not run on token ids here: {error!r}") from error


def set_extras_to_nan(module: nn.Module, args: Any, output: Any) -> Any:
    """A forward hook that sets all outputs of a block but the state to NaN, which shows if they are read."""
    if not isinstance(output, tuple | list):
        return None
    extras = [torch.full_like(extra, torch.nan) if is_float_tensor(extra) else extra for extra in output[1:]]
    return type(output)([output[0], *extras])


def is_float_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def hook(capture: DiscoveryCapture, name: str, module: nn.Module) -> None:
    def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
        capture.begin(Call(name, module, state_in(args, kwargs)))

    module.register_forward_pre_hook(begin, with_kwargs=True)
    module.register_forward_hook(lambda module, args, output: capture.end(output))


def find_blocks(model: PreTrainedModel, capture: DiscoveryCapture) -> list[Call]:
    """The calls of transformers' block class; without any, those of module list members that call attention."""
    marked = [path[-1] for path in capture.calls if [is_block(call.module) for call in path].count(True) == 1]
    marked = [call for call in marked if is_block(call.module)]  # a block inside a block belongs to the outer one
    if marked:
        return marked
    listed = {id(member) for module in model.modules() if isinstance(module, nn.ModuleList) for member in module}
    inside = [[call for call in path if id(call.module) in listed] for path in capture.attention_in]
    kinds = {
        type(path[-1].module) for path in inside if path
    }  # other modules of these classes are blocks without attention
    return [path[-1] for path in capture.calls if type(path[-1].module) in kinds and id(path[-1].module) in listed]


def same(tensor: Tensor | None, other: Tensor | None) -> bool:
    return tensor is not None and other is not None and tensor.shape == other.shape and torch.equal(tensor, other)
