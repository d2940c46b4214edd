"""The query positions from which the explained scalar is read, determined by its gradient."""

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
    """The explained scalar is not read from real tokens, so [query, key] maps have no row for it."""


@dataclass
class QueryWeights:
    """Weights of query positions for each part of a target; computed once for all passes over a batch.

    Weights [batch, token] sum to 1 and are proportional to the norm of the part's gradient at each token's last state.
    So a single query position has exactly 1, and with mean pooling all have about the same. If the scores of several
    tokens are added, each of these tokens has 1.
    """

    _weights: dict[tuple[int, bool], Tensor] = field(default_factory=dict)  # by (part, whether split)

    def of(self, part_index: int, split: bool) -> Tensor:
        return self._weights[part_index, split]

    def find(
        self,
        instrumented: InstrumentedModel,
        batch: Batch,
        parts: Sequence[OutputSelector],
        split: bool,
        output: Any = None,
        last_states: Tensor | None = None,
    ) -> None:
        """Compute the weights from an output and the last states; without them, the model runs again."""
        for part_index, part in enumerate(parts):
            if (part_index, split) in self._weights:
                continue
            if (weights := part.query_weights(batch.input_ids.shape[1])) is not None:
                self._weights[part_index, split] = weights
                continue
            if (
                part.row is not None
            ):  # start or end of a span: without its foil, because heads may read the question, too
                part = replace(part, foil=None)
            if last_states is None:
                output, last_states = run_head(instrumented, batch)
            norms = gradient_norms(part, output, last_states)
            if not norms.any(1).all():  # a saturated head has no gradient: use smaller states
                normalized_norms = gradient_norms(part, *run_head(instrumented, batch, normalize=True))
                norms = torch.where(norms.any(1, keepdim=True), norms, normalized_norms)
            self._weights[part_index, split] = normalize_weights(norms, batch)


def run_head(instrumented: InstrumentedModel, batch: Batch, normalize: bool = False) -> tuple[Any, Tensor | None]:
    """Output and last states; the graph starts at the last states."""
    capture = Capture(CaptureSpec(differentiable=True, head_only=True, normalize_last=normalize))
    return instrumented.run(batch, capture), capture.last_output


def gradient_norms(part: OutputSelector, output: Any, last_states: Tensor | None) -> Tensor:
    """[batch, token] norms of the gradient of the part's score with respect to the last states."""
    assert last_states is not None, "every model has a last block"
    with torch.enable_grad():
        score = part.score(output)
    (gradient,) = torch.autograd.grad(score.sum(), last_states, retain_graph=True, materialize_grads=True)
    return torch.linalg.vector_norm(gradient.double(), dim=-1)


def normalize_weights(norms: Tensor, batch: Batch) -> Tensor:
    """[batch, token] weights that sum to 1 for each text. Norms at padding, or no norm above 0, are refused."""
    norms = norms.to(batch.input_ids.device)
    for text_norms, real in zip(norms, batch.attention_mask.bool(), strict=True):
        if not text_norms.any():
            raise NoQueryPosition("the explained score reads no token of a text: its gradient is 0")
        if text_norms[~real].any():
            position = int((text_norms * ~real).nonzero()[0])
            raise NoQueryPosition(f"the explained score reads token {position} of a text, which is padding")
    return norms / norms.sum(1, keepdim=True)
