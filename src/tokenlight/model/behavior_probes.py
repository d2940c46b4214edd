"""Behavior that no configuration states, found by running the model on a few tokens.

Passes of a few tokens: two rows of other ids with the same embeddings, whose answers must be the same; the first row
beside a longer one, whose answer must be the one that it had alone; and the model itself, as it was loaded.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import is_out_of_memory
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.model.capture import Capture
from tokenlight.model.config import accepted_inputs, classifies, padding_id
from tokenlight.model.instrumentation_cache import FactSnapshot, TensorState, borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.precision import KeepDouble
from tokenlight.model.private_copy import private_copy
from tokenlight.model.protected_buffers import ProtectBuffers
from tokenlight.text.batch import Batch

SHORT, LONG = 4, 7  # tokens
# Rounding alone may send a token to another expert, the more so in half precision; a wrong implementation says
# something else altogether (0.4 to 2 in what was seen).
FINE, ROUGH = 0.1, 0.5


@dataclass(frozen=True)
class Behavior:
    """How a model treats ids, padding and tokens."""

    past_embeddings: float  # the share of its answer that changes with the ids while the embeddings are held
    equal_lengths: bool  # beside a longer text, a text gets another answer than alone
    reads_last: bool  # one answer for the whole text, read at its last token

    def refuse_past_embeddings(self, model: PreTrainedModel) -> None:
        """For methods that follow an answer back to the embeddings."""
        if self.past_embeddings:
            raise UnsupportedModelError(
                f"{type(model).__name__} reads token ids in other places than its embedding layer: with the "
                f"embeddings held fixed, other ids change {self.past_embeddings:.0%} of its answer, which nothing that "
                "is read at the embeddings explains. "
                "Take a method that asks about changed texts (erasure), or one that reads attention alone"
            )


BY_MODEL: WeakKeyDictionary[PreTrainedModel, tuple[FactSnapshot, Behavior]] = WeakKeyDictionary()
BY_INSTRUMENTED: WeakKeyDictionary[InstrumentedModel, tuple[TensorState, Behavior]] = (
    WeakKeyDictionary()
)  # whose model has the same modules


def behavior_of(model: PreTrainedModel | InstrumentedModel) -> Behavior:
    """Found out once for each model, and again when its modules, hooks, settings or numbers have changed."""
    if isinstance(model, InstrumentedModel):
        known = BY_INSTRUMENTED.get(model)
        if known is None or not known[0].is_current():
            known = BY_INSTRUMENTED[model] = TensorState(model.original), behavior_of_model(model)
        return known[1]
    return behavior_of_model(model)


def behavior_of_model(model: PreTrainedModel | InstrumentedModel) -> Behavior:
    original = model.original if isinstance(model, InstrumentedModel) else model
    known = BY_MODEL.get(original)
    if known is None or not known[0].is_current(original):
        snapshot = FactSnapshot(original)
        with nullcontext(model) if isinstance(model, InstrumentedModel) else borrowed_model(model) as instrumented:
            known = BY_MODEL[original] = snapshot, probe_behavior(instrumented)
    return known[1]


def probe_behavior(instrumented: InstrumentedModel) -> Behavior:
    try:
        return run_probes(instrumented)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} does not run on a text of {SHORT} or {LONG} tokens, "
            "which is how tokenlight "
            f"finds out what it does with ids and padding ({error})"
        ) from error


def run_probes(instrumented: InstrumentedModel) -> Behavior:
    with torch.inference_mode(False), torch.autocast(instrumented.device.type, enabled=False):
        first, other, *rest = torch.tensor(
            plain_ids(instrumented.model, 2 * SHORT + LONG), device=instrumented.device
        ).split(SHORT)
        held = instrumented.embed(first[None]).repeat(2, 1, 1)
        together = torch.stack([first, other])
        batch = Batch(together, torch.ones_like(together))
        try:
            capture = Capture(
                differentiable=classifies(instrumented.model),
                head_only=classifies(instrumented.model),
                embeddings_instead=held,
            )
            alone = instrumented.run_uncounted(batch, capture, ProtectBuffers(instrumented.model))
        except UnsupportedModelError:  # blocks that do not follow one another have no last state
            capture = Capture(embeddings_instead=held)
            alone = instrumented.run_uncounted(batch, capture, ProtectBuffers(instrumented.model))
        last, longer = reads_last(alone, capture), torch.cat(rest)
        padded = longer.roll(1)  # the mask hides any id; only those who look for the end of a text need the right one
        padded[:SHORT] = first
        if last:
            padded[SHORT:] = max(0, padding_id(instrumented.model) or 0)
        mask = torch.ones(2, LONG, dtype=torch.long, device=instrumented.device)
        mask[0, SHORT:] = 0
        beside = instrumented.run_uncounted(Batch(torch.stack([padded, longer]), mask), Capture())
        refuse_changing_answers(instrumented, batch)
        refuse_other_answers(instrumented, batch, alone)
        return Behavior(bypass(alone), differs(alone, beside), last)


def refuse_changing_answers(instrumented: InstrumentedModel, batch: Batch) -> None:
    """A model that draws random numbers or counts its calls gives every pass of a method another answer to explain."""
    one, other = (instrumented.run_uncounted(batch, Capture(), ProtectBuffers(instrumented.model)) for _ in range(2))
    apart = furthest(one, other)
    if apart > min(1000 * precision_of(one), 0.01):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} gives another answer when it is asked the same "
            f"again (by {apart:.2g} of it): "
            "it draws random numbers or remembers earlier calls, in a module or a hook. Make it give the same answer "
            "each time, for example by F.dropout(..., training=self.training)"
        )


def refuse_other_answers(instrumented: InstrumentedModel, batch: Batch, alone: Any) -> None:
    """The model itself may run by another implementation of attention and experts, which must say the same."""
    own = own_answers(instrumented, batch)
    if own is None:
        return
    ways = [alone, instrumented.run_uncounted(batch, Capture(fused=False))] if instrumented.fusable else [alone]
    apart = max(furthest(own, one) for one in ways)
    if apart > (ROUGH if instrumented.dtype.itemsize < 4 else FINE):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} answers differently from its instrumented model (by "
            f"{apart:.0%}), which runs the family's "
            "own code of attention and experts in plain operations: implementations of transformers disagree. Load it "
            'with attn_implementation="eager" and experts_implementation="eager", or '
            "use another version of transformers"
        )


def own_answers(instrumented: InstrumentedModel, batch: Batch) -> Any:
    """What the model says as it was loaded; None where that does not run on these few tokens, or in this precision."""
    try:
        copy = private_copy(instrumented.original, own_experts=True)
        with torch.no_grad(), KeepDouble() if instrumented.dtype == torch.float64 else nullcontext():
            return copy(**{name: part for name, part in batch.inputs().items() if name in accepted_inputs(copy)})
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None


SEES_LATER: WeakKeyDictionary[InstrumentedModel, bool] = WeakKeyDictionary()


def sees_later_tokens(instrumented: InstrumentedModel) -> bool:
    """Whether the output at a token depends on tokens after it; True where the output has no token axis.

    Two texts that differ in their last token alone have the same outputs before it in a causal model.
    """
    if instrumented not in SEES_LATER:
        with torch.inference_mode(False), torch.autocast(instrumented.device.type, enabled=False):
            *text, other = plain_ids(instrumented.model, LONG + 1)
            ids = torch.tensor([text, [*text[:-1], other]], device=instrumented.device)
            output = instrumented.run_uncounted(Batch(ids, torch.ones_like(ids)), Capture())
        by_token = {name: part[:, :-1] for name, part in answers_in(output) if for_each_token(instrumented, part)}
        SEES_LATER[instrumented] = not by_token or bypass(by_token) > 0
    return SEES_LATER[instrumented]


def for_each_token(instrumented: InstrumentedModel, answers: Tensor) -> bool:
    """Whether the second axis of answers to a text of LONG tokens is that of its tokens, and not so many labels."""
    return answers.shape[1] == LONG and not classifies(instrumented.model)


def plain_ids(model: PreTrainedModel, count: int) -> list[int]:
    """So many ids without a role, from all over the vocabulary."""
    free = ids_without_role(model)
    return [free[(len(free) * (2 * i + 1) // (2 * count)) % len(free)] for i in range(count)]


def ids_without_role(model: PreTrainedModel) -> list[int]:
    """All but those that a configuration names, which may decide where a text ends."""
    config: Any = model.config.get_text_config()
    named = [value for name, value in config.to_dict().items() if "token" in name]
    roles = {one for value in named for one in (value if isinstance(value, list) else [value])}
    return [i for i in range(int(config.vocab_size)) if i not in roles] or [0]


def answers_in(output: Any, rows: int = 2) -> Iterator[tuple[str, Tensor]]:
    for name, part in output.items():
        if isinstance(part, Tensor) and part.is_floating_point() and part.ndim > 1 and len(part) == rows:
            yield name, part.detach()


def bypass(output: Any) -> float:
    """How far apart the answers to two rows of the same embeddings are; 0 but for rounding."""
    share = max((relative(two[0], two[1]) for _, two in answers_in(output)), default=0.0)
    # Rows of a batch go through the same operations: less than rounding of a whole pass lies between them.
    return share if share > min(1000 * precision_of(output), 0.01) else 0.0


def differs(alone: Any, beside: Any) -> bool:
    """Whether the first row's answer has changed; batches of other shapes may be rounded otherwise."""
    return furthest(alone, beside) > precision_of(alone) ** 0.5


def furthest(alone: Any, beside: Any) -> float:
    """How far apart the first row's answers are."""
    others = dict(answers_in(beside))
    shares = [relative(one[0], others[name][0][: len(one[0])]) for name, one in answers_in(alone) if name in others]
    return max(shares, default=0.0)


def relative(one: Tensor, other: Tensor) -> float:
    one, other = one.double(), other.double()
    return float((one - other).norm() / one.norm().clamp_min(torch.finfo(torch.float64).tiny))


def precision_of(output: Any, rows: int = 2) -> float:
    return max((torch.finfo(part.dtype).eps for _, part in answers_in(output, rows)), default=0.0)


def reads_last(output: Any, capture: Capture) -> bool:
    logits = output.get("logits")
    if not capture.head_only or not isinstance(logits, Tensor) or capture.last_output is None:
        return False
    (gradient,) = torch.autograd.grad(logits.sum(), capture.last_output, materialize_grads=True)
    read = (gradient != 0).any(-1)  # [batch, token]
    return bool(read[:, -1].all() and not read[:, :-1].any())
