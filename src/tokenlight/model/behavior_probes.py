"""Behavior that no configuration states, found by running the model on a few tokens.

The probes: two texts of different ids with the same embeddings, whose outputs must be equal; the first text in a batch
with a longer one, where its output must be the same as alone; and the user's model as loaded, which must agree with
the instrumented one.
"""

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import is_out_of_memory
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.config import accepted_inputs, classifies, count_from_first, padding_id
from tokenlight.model.instrumentation_cache import FactSnapshot, TensorState, borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.model_facts import FactsByModel, once_per_model
from tokenlight.model.precision import KeepDouble, without_caller_modes
from tokenlight.model.private_copy import private_copy
from tokenlight.model.protected_buffers import ProtectBuffers
from tokenlight.text.batch import Batch

SHORT, LONG = 4, 7  # tokens
# Largest relative difference between two implementations, in single and in half precision. Rounding alone may route a
# token to another expert, more often in half precision; wrong implementations differed by 0.4 to 2.
TOLERANCE_SINGLE, TOLERANCE_HALF = 0.1, 0.5


@dataclass(frozen=True)
class Behavior:
    """How a model treats ids, padding and tokens."""

    past_embeddings: float  # relative change of the output with the ids while the embeddings are fixed
    equal_lengths: bool  # the output for a text changes in a batch with a longer one: batch texts of one length alone
    reads_last: bool  # a classifier that reads the last token of a text

    def refuse_past_embeddings(self, model: PreTrainedModel) -> None:
        """Refuse models that read ids past the embeddings, for methods whose scores end at the embeddings."""
        if self.past_embeddings:
            raise UnsupportedModelError(
                f"{type(model).__name__} reads token ids in other places than its embedding layer: with the "
                f"embeddings held fixed, other ids change its output by {self.past_embeddings:.0%}, which scores at "
                "the embeddings cannot explain. "
                "Choose a method that runs the model on changed texts (erasure), or one that reads attention alone"
            )


BEHAVIORS: FactsByModel[tuple[FactSnapshot, Behavior]] = FactsByModel()


def behavior_of(model: PreTrainedModel | InstrumentedModel) -> Behavior:
    """The behavior of a model, probed once and again after its modules, hooks, settings or weights have changed."""
    if isinstance(model, InstrumentedModel):
        # An instrumented model has the modules that its original had, so only tensors can have changed.
        known: tuple[TensorState, Behavior] | None = model.facts.get("behavior")
        if known is None or not known[0].is_current():
            known = model.facts["behavior"] = TensorState(model.original), behavior_of_model(model)
        return known[1]
    return behavior_of_model(model)


def behavior_of_model(model: PreTrainedModel | InstrumentedModel) -> Behavior:
    """As `behavior_of`, with the full comparison of modules and settings."""
    original = model.original if isinstance(model, InstrumentedModel) else model
    known = BEHAVIORS.get(original)
    if known is None or not known[0].is_current(original):
        snapshot = FactSnapshot(original)
        with nullcontext(model) if isinstance(model, InstrumentedModel) else borrowed_model(model) as instrumented:
            known = BEHAVIORS.set(original, (snapshot, probe_behavior(instrumented)))
    return known[1]


def probe_behavior(instrumented: InstrumentedModel) -> Behavior:
    try:
        return run_probes(instrumented)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} does not run on a text of {SHORT} or {LONG} tokens, "
            f"on which tokenlight probes how it treats ids and padding ({error})"
        ) from error


def run_probes(instrumented: InstrumentedModel) -> Behavior:
    with without_caller_modes(instrumented.device):
        first, second, *longer_parts = torch.tensor(
            plain_ids(instrumented.model, 2 * SHORT + LONG), device=instrumented.device
        ).split(SHORT)
        embeddings = instrumented.embed(first[None]).repeat(2, 1, 1)
        both = torch.stack([first, second])
        batch = Batch(both, torch.ones_like(both))
        try:
            classifier = classifies(instrumented.model)
            capture = Capture(CaptureSpec(differentiable=classifier, head_only=classifier, embeddings=embeddings))
            alone = instrumented.run_uncounted(batch, capture, ProtectBuffers(instrumented.model))
        except UnsupportedModelError:  # blocks that do not follow one another have no last state
            capture = Capture(CaptureSpec(embeddings=embeddings))
            alone = instrumented.run_uncounted(batch, capture, ProtectBuffers(instrumented.model))
        reads_last_token, longer = reads_last(alone, capture), torch.cat(longer_parts)
        padded = longer.roll(1)  # masked ids are arbitrary, except for a model that looks for the last token of a text
        padded[:SHORT] = first
        if reads_last_token:
            padded[SHORT:] = max(0, padding_id(instrumented.model) or 0)
        mask = torch.ones(2, LONG, dtype=torch.long, device=instrumented.device)
        mask[0, SHORT:] = 0
        padded_output = instrumented.run_uncounted(Batch(torch.stack([padded, longer]), mask), Capture())
        refuse_random_outputs(instrumented, batch)
        refuse_other_outputs(instrumented, batch, alone)
        return Behavior(difference_between_texts(alone), differs(alone, padded_output), reads_last_token)


def refuse_random_outputs(instrumented: InstrumentedModel, batch: Batch) -> None:
    """Refuse a model that draws random numbers or counts its calls: each pass would explain another output."""
    first, second = (instrumented.run_uncounted(batch, Capture(), ProtectBuffers(instrumented.model)) for _ in range(2))
    difference = largest_difference(first, second)
    if difference > min(1000 * precision_of(first), 0.01):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} gives another output for the same input (a relative difference of "
            f"{difference:.2g}): it draws random numbers or remembers earlier calls, in a module or a hook. Make it "
            "give the same output each time, for example by F.dropout(..., training=self.training)"
        )


def refuse_other_outputs(instrumented: InstrumentedModel, batch: Batch, alone: Any) -> None:
    """Refuse a model whose own implementations of attention and experts give other outputs than the plain ones here."""
    original = original_output(instrumented, batch)
    if original is None:
        return
    outputs = [alone]
    if instrumented.fusable:
        outputs.append(instrumented.run_uncounted(batch, Capture(CaptureSpec(fused=False))))
    difference = max(largest_difference(original, output) for output in outputs)
    if difference > (TOLERANCE_HALF if instrumented.dtype.itemsize < 4 else TOLERANCE_SINGLE):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} has other outputs than its instrumented model (by {difference:.0%}), "
            "which runs the family's own code of attention and experts in plain operations: implementations of "
            'transformers disagree. Load it with attn_implementation="eager" and experts_implementation="eager", or '
            "use another version of transformers"
        )


def original_output(instrumented: InstrumentedModel, batch: Batch) -> Any:
    """The output of the user's model as loaded; None, with a warning, if it does not run on a short text."""
    try:
        copy = private_copy(instrumented.original, own_experts=True)
        with torch.no_grad(), KeepDouble() if instrumented.dtype == torch.float64 else nullcontext():
            return copy(**{name: tensor for name, tensor in batch.inputs().items() if name in accepted_inputs(copy)})
    except Exception as error:
        if is_out_of_memory(error):
            raise
        warnings.warn(
            f"{type(instrumented.model).__name__} as loaded does not run on a text of {SHORT} tokens "
            f"({type(error).__name__}: {error}), so the outputs of the instrumented model could not be compared with "
            "its own",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


@once_per_model
def reads_left_padding(instrumented: InstrumentedModel) -> bool:
    """Whether padding on the left changes the output for a text, though it is masked and positions are given.

    Some models count positions from the first column and take none; some recurrences ignore the mask.
    """
    model = instrumented.model
    with without_caller_modes(instrumented.device):
        texts = torch.tensor(plain_ids(model, 2 * SHORT), device=instrumented.device).view(2, SHORT)
        padding = texts.new_full((2, LONG - SHORT), max(0, padding_id(model) or 0))
        masks = torch.ones_like(texts), torch.zeros_like(padding)
        padded = Batch(torch.cat([padding, texts], 1), torch.cat(masks[::-1], 1))
        alone = instrumented.run_uncounted(Batch(texts, masks[0]), Capture())
        beside_padding = dict(output_tensors(instrumented.run_uncounted(count_from_first(model, padded), Capture())))
    differences = [
        relative_difference(
            output,
            beside_padding[name][:, -SHORT:]
            if has_token_axis(instrumented, beside_padding[name])
            else beside_padding[name],
        )
        for name, output in output_tensors(alone)
        if name in beside_padding
    ]
    return max(differences, default=0.0) > precision_of(alone) ** 0.5


@once_per_model
def sees_later_tokens(instrumented: InstrumentedModel) -> bool:
    """Whether the output at a token depends on tokens after it; True where the output has no token axis.

    Two texts that differ in their last token alone have the same outputs before it in a causal model.
    """
    with without_caller_modes(instrumented.device):
        *text, another_id = plain_ids(instrumented.model, LONG + 1)
        ids = torch.tensor([text, [*text[:-1], another_id]], device=instrumented.device)
        output = instrumented.run_uncounted(Batch(ids, torch.ones_like(ids)), Capture())
    by_token = {name: tensor[:, :-1] for name, tensor in output_tensors(output) if has_token_axis(instrumented, tensor)}
    return not by_token or difference_between_texts(by_token) > 0


def has_token_axis(instrumented: InstrumentedModel, output: Tensor) -> bool:
    """Whether the second axis of an output for texts of LONG tokens is the token axis, not one of LONG labels."""
    return output.shape[1] == LONG and not classifies(instrumented.model)


def plain_ids(model: PreTrainedModel, count: int) -> list[int]:
    """This many ids of ordinary tokens, spread over the vocabulary."""
    free = ordinary_ids(model)
    return [free[(len(free) * (2 * i + 1) // (2 * count)) % len(free)] for i in range(count)]


def ordinary_ids(model: PreTrainedModel) -> list[int]:
    """All ids but those that the configuration names, which may mark the end of a text."""
    config: Any = model.config.get_text_config()
    named = [value for name, value in config.to_dict().items() if "token" in name]
    special_ids = {id_ for value in named for id_ in (value if isinstance(value, list) else [value])}
    return [i for i in range(int(config.vocab_size)) if i not in special_ids] or [0]


def output_tensors(output: Any, texts: int = 2) -> Iterator[tuple[str, Tensor]]:
    """The tensors [batch, ...] of a model's output for a batch of this many texts, by name."""
    for name, tensor in output.items():
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.ndim > 1 and len(tensor) == texts:
            yield name, tensor.detach()


def difference_between_texts(output: Any) -> float:
    """The relative difference between the outputs for the two texts of a batch; 0.0 where rounding explains it."""
    difference = max((relative_difference(both[0], both[1]) for _, both in output_tensors(output)), default=0.0)
    # Texts of a batch go through the same operations: they differ by less than the rounding of a whole pass.
    return difference if difference > min(1000 * precision_of(output), 0.01) else 0.0


def differs(output: Any, other: Any) -> bool:
    """Whether the first text's output has changed; batches of another shape may be rounded differently."""
    return largest_difference(output, other) > precision_of(output) ** 0.5


def largest_difference(output: Any, other: Any) -> float:
    """The largest relative difference between the first text's tensors in two outputs."""
    others = dict(output_tensors(other))
    differences = [
        relative_difference(tensor[0], others[name][0][: len(tensor[0])])
        for name, tensor in output_tensors(output)
        if name in others
    ]
    return max(differences, default=0.0)


def relative_difference(tensor: Tensor, other: Tensor) -> float:
    """|tensor - other| / |tensor|"""
    tensor, other = tensor.double(), other.double()
    return float((tensor - other).norm() / tensor.norm().clamp_min(torch.finfo(torch.float64).tiny))


def precision_of(output: Any, texts: int = 2) -> float:
    """The machine epsilon of the output's coarsest dtype."""
    return max((torch.finfo(tensor.dtype).eps for _, tensor in output_tensors(output, texts)), default=0.0)


def reads_last(output: Any, capture: Capture) -> bool:
    """Whether the logits of every text depend on the last of its final states alone."""
    logits = output.get("logits")
    if not capture.spec.head_only or not isinstance(logits, Tensor) or capture.last_output is None:
        return False
    (gradient,) = torch.autograd.grad(logits.sum(), capture.last_output, materialize_grads=True)
    read = (gradient != 0).any(-1)  # [batch, token]
    return bool(read[:, -1].all() and not read[:, :-1].any())
