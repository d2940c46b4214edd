"""Which positions the explained scalar is read from, seen in its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.text.batch import Batch


class NoQueryPosition(RefusedValue):
    """What is explained is not read from real tokens, so there are no rows of [query, key] maps for it."""


@dataclass
class QueryWeights:
    """The rows of [query, key] maps at which the parts of a target are read; found once for all passes over a batch.

    Rows are weights [batch, token] that sum to 1: in proportion to the length of the part's gradient at each token's
    last state. So a single token has exactly 1, and where a head takes the mean, each has about the same. Where the
    numbers of several tokens are added up, each of these tokens has 1.
    """

    _found: dict[tuple[int, bool], Tensor] = field(default_factory=dict)  # by place, and whether split

    def of(self, place: int, split: bool) -> Tensor:
        return self._found[place, split]

    def find(
        self,
        instrumented: InstrumentedModel,
        batch: Batch,
        parts: Sequence[OutputSelector],
        split: bool,
        output: Any = None,
        last: Tensor | None = None,
    ) -> None:
        """From an output and the last states that it was computed from; without them the model is asked again."""
        for place, part in enumerate(parts):
            if (place, split) in self._found:
                continue
            if (known := part.rows(batch.input_ids.shape[1])) is not None:
                self._found[place, split] = known
                continue
            if (
                part.row is not None
            ):  # the start or end of an answer, without its foil; some heads read the question, too
                part = replace(part, foil=None)
            if last is None:
                output, last = run_head(instrumented, batch)
            lengths = gradient_lengths(part, output, last)
            if not lengths.any(1).all():  # a head that is saturated, whose gradient shows at smaller states
                shrunk = gradient_lengths(part, *run_head(instrumented, batch, shrunk=True))
                lengths = torch.where(lengths.any(1, keepdim=True), lengths, shrunk)
            self._found[place, split] = mix_of(lengths, batch)


def run_head(instrumented: InstrumentedModel, batch: Batch, shrunk: bool = False) -> tuple[Any, Tensor | None]:
    """Output and last states, with a graph between them and none below."""
    capture = Capture(CaptureSpec(differentiable=True, head_only=True, normalize_last=shrunk))
    return instrumented.run(batch, capture), capture.last_output


def gradient_lengths(part: OutputSelector, output: Any, last: Tensor | None) -> Tensor:
    """[batch, token] of the part's score at the last states."""
    assert last is not None, "every model has a last block"
    with torch.enable_grad():
        score = part.score(output)
    (gradient,) = torch.autograd.grad(score.sum(), last, retain_graph=True, materialize_grads=True)
    return torch.linalg.vector_norm(gradient.double(), dim=-1)


def mix_of(lengths: Tensor, batch: Batch) -> Tensor:
    """[batch, token], rows sum to 1"""
    lengths = lengths.to(batch.input_ids.device)
    for found, real in zip(lengths, batch.attention_mask.bool(), strict=True):
        if not found.any():
            raise NoQueryPosition("what is explained reads no token of a text: its gradient is 0")
        if found[~real].any():
            place = int((found * ~real).nonzero()[0])
            raise NoQueryPosition(f"what is explained reads token {place} of a text, which is padding")
    return lengths / lengths.sum(1, keepdim=True)
