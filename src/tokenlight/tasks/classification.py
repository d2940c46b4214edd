"""One label, several labels or a number for a text or a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel

from tokenlight.tasks import register
from tokenlight.tasks.labels import Labeled
from tokenlight.tasks.selectors import Distribution, OutputSelector
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.text.batch import Batch


@register
@dataclass(frozen=True)
class Classification(Labeled):
    """The label of a text or of a pair of texts."""

    name = "text-classification"
    heads = ("ForSequenceClassification",)
    auto_class = "AutoModelForSequenceClassification"
    reads_pairs = True
    reads_windows = True
    compares_classes = True

    @property
    def several(self) -> bool:
        """Whether a text can have several labels, each with a probability of its own."""
        return distribution_of(self.model, self.outputs) == "sigmoid"

    @property
    def gives_number(self) -> bool:
        """One number, or with problem_type="regression" several: none of them is a probability."""
        return distribution_of(self.model, self.outputs) == "none"

    def select(
        self, targets: Sequence[ResolvedTarget], output: Any, batch: Batch, model: PreTrainedModel
    ) -> tuple[OutputSelector, ...]:
        distribution = distribution_of(model, output["logits"].shape[-1])
        selectors = super().select(targets, output, batch, model)
        return tuple(replace(selector, distribution=distribution) for selector in selectors)

    def probabilities(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits) if self.several else logits.softmax(0)

    def joint_log_probability(self, logits: Tensor, target_logits: Tensor) -> Tensor:
        if self.several:
            return logsigmoid(target_logits).sum()
        return super().joint_log_probability(logits, target_logits)


def distribution_of(model: PreTrainedModel, outputs: int) -> Distribution:
    """How the model's logits become probabilities."""
    kind = model.config.problem_type
    if kind == "multi_label_classification":
        return "sigmoid"
    return "none" if outputs == 1 or kind == "regression" else "softmax"
