"""Protocols: which metrics on which texts, and what the explained pass sees."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.data.examples import Span
from tokenlight.explain.explainer import Explainer
from tokenlight.metrics.evaluate import Measure, check_labels, measure_by_name
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.question_answering import SIDES
from tokenlight.tasks.targets import ResolvedTarget, TargetSpec
from tokenlight.text.batch import Batch
from tokenlight.text.tokenized_text import TokenizedText

BATCH = 32  # texts that run together


@dataclass(frozen=True)
class HidingBatch(Batch):
    """A batch with hidden tokens: they attend to other tokens, but no token attends to them."""

    hidden: Tensor | None = None  # [batch, token] bool

    def inputs(self) -> dict[str, Tensor]:
        inputs = super().inputs()
        if self.hidden is not None:
            inputs["attention_mask"] = inputs["attention_mask"] * ~self.hidden
        return inputs


@dataclass(frozen=True)
class Protocol:
    """How methods are evaluated: which measures on which texts, and what the explained pass sees."""

    name: str
    measures: tuple[Measure, ...]
    tasks: tuple[str, ...] = ()  # empty: any
    target: Literal["predicted", "gold", "argmax"] = "predicted"  # "argmax": start and end of an answer, independently
    hide: tuple[Literal["cls", "sep"], ...] = ()  # tokens that no token may attend to in the explained pass
    zero_types: bool = False  # segment ids are 0 in the explained and in the measured pass
    zero_first: frozenset[str] = frozenset()  # methods whose score of the first token is set to 0
    absolute: frozenset[str] = frozenset()  # methods whose scores are replaced by their absolute values
    window: int | None = None  # tokens of a text; longer texts are truncated
    shortest: int = 0  # tokens, special ones included; shorter texts are set aside
    longest: int | None = None
    only_right: bool = False  # only examples with a correct prediction
    only_label: int | None = None  # only examples with this gold class
    least_probability: float = 0.0  # of the gold class
    lost_answer: Literal["set aside", "first token"] = "set aside"  # if the gold answer was truncated
    random_runs: int = 1  # runs of the control with random scores, over which values are averaged

    def __post_init__(self) -> None:
        check_labels(self.measures)

    @property
    def needs_marks(self) -> bool:
        return any(measure.entry.needs == "marks" for measure in self.measures)

    def fit(self, explainer: Explainer) -> Explainer:
        """The explainer with the tokenizer that the protocol requires, for all further steps."""
        task = explainer.task.name
        if self.tasks and task not in self.tasks:
            alternatives = (
                ", ".join(protocol.name for protocol in PROTOCOLS.values() if task in protocol.tasks) or "none"
            )
            raise RefusedValue(
                f"protocol '{self.name}' is for {' and '.join(self.tasks)}, but this model does {task}; "
                f"protocols for that: {alternatives}"
            )
        if self.window is None:
            return explainer
        tokenizer = copy.copy(explainer.tokenizer)
        tokenizer.model_max_length = min(self.window, tokenizer.model_max_length)
        return Explainer(explainer.model, tokenizer, type(explainer.task))

    def measured(self, batch: Batch) -> Batch:
        """The batch that the model sees in the measured pass, which also decides which examples are kept."""
        types = batch.token_type_ids
        return replace(batch, token_type_ids=types * 0) if self.zero_types and types is not None else batch

    def prepare(self, tokenizer: Any) -> Callable[[Batch], Batch] | None:
        """A function that makes the batch of the explained pass; None if that is the unchanged batch."""
        if not self.hide and not self.zero_types:
            return None
        ids = [{"cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}[role] for role in self.hide]
        hidden_ids = [token_id for token_id in ids if token_id is not None]

        def prepare_batch(batch: Batch) -> Batch:
            measured = self.measured(batch)
            if not hidden_ids:
                return measured
            hidden = (
                torch.isin(measured.input_ids, measured.input_ids.new_tensor(hidden_ids))
                & measured.attention_mask.bool()
            )
            return HidingBatch(**{**vars(measured), "hidden": hidden})

        return prepare_batch

    def keep(
        self,
        tokenized_text: TokenizedText,
        *,
        label: int | None = None,
        probability: float | None = None,
        right: bool | None = None,
    ) -> str | None:
        """Why an example is set aside; None if it is kept.

        `label` is the gold class, `probability` its probability in the measured pass, `right` whether the model
        predicts it (or prefers the right word to the wrong one). Values that the protocol does not use may be None.
        """
        total = len(tokenized_text) + tokenized_text.truncated
        if len(tokenized_text) < self.shortest:
            return f"fewer than {self.shortest} tokens"
        if self.longest is not None and total > self.longest:
            return f"more than {self.longest} tokens"
        if self.target == "gold" and label is None:
            return "no gold label"
        if self.only_label is not None and label != self.only_label:
            return f"gold label is not {self.only_label}"
        if self.least_probability > 0 and (probability is None or probability < self.least_probability):
            return f"probability of the gold label below {self.least_probability}"
        return "predicted wrongly" if self.only_right and not right else None

    def targets(
        self,
        explainer: Explainer,
        tokenized_texts: Sequence[TokenizedText],
        labels: Sequence[int | None] = (),
        instrumented: InstrumentedModel | None = None,
    ) -> list[TargetSpec]:
        """The target of each text; None stands for the prediction.

        `instrumented` is the instrumented model of `explainer`, if there is one already.
        """
        if self.target == "gold":
            return list(labels)
        if self.target == "predicted":
            return [None] * len(tokenized_texts)
        return self._argmax_targets(explainer, tokenized_texts, instrumented or InstrumentedModel(explainer.model))

    def _argmax_targets(
        self, explainer: Explainer, tokenized_texts: Sequence[TokenizedText], instrumented: InstrumentedModel
    ) -> list[TargetSpec]:
        """The tokens with the highest start and end logit in the explained pass, among all tokens of the text.

        Each is the highest on its own, so the end may come before the start.
        """
        prepare_batch = self.prepare(explainer.tokenizer)
        targets: dict[int, ResolvedTarget] = {}
        for indices in explainer.batches(list(tokenized_texts), BATCH, [False] * len(tokenized_texts)):
            batch = explainer.collate([tokenized_texts[i] for i in indices], instrumented.device)
            output = instrumented.predict(prepare_batch(batch) if prepare_batch else batch)
            for j, i in enumerate(indices):
                start, end = (output[side][j, : len(tokenized_texts[i])] for side in SIDES)
                predicted = explainer.task.prediction_target(tokenized_texts[i], None)
                targets[i] = replace(predicted, indices=(int(start.argmax()), int(end.argmax())))
        return [targets[i] for i in range(len(tokenized_texts))]

    def adjust(self, explanation: Explanation) -> Explanation:
        """The explanation with the scores that the paper's code uses."""
        scores = explanation.scores
        if explanation.method in self.absolute:
            scores = scores.abs()
        if explanation.method in self.zero_first:
            scores = torch.cat([scores.new_zeros(1), scores[1:]])
        return explanation if scores is explanation.scores else replace(explanation, scores=scores)

    def answer_marks(self, tokenized_text: TokenizedText, answer: Span) -> Tensor | None:
        """[token] bool: the gold answer, given in characters of the passage; None if it was truncated."""
        marks = torch.zeros(len(tokenized_text), dtype=torch.bool)
        passage = tokenized_text.segment_index(1)
        is_complete = bool(passage.tokens) and answer[1] <= passage.ends[-1]
        tokens = passage.find(answer) if is_complete else None
        if tokens is not None:
            marks[slice(*tokens)] = True
        elif self.lost_answer == "first token":
            marks[0] = True
        else:
            return None
        return marks


def other_class(label: int) -> int:
    """The class that `kendall_confidence` compares with (AttCAT): the previous one, or 1 for class 0."""
    return 1 if label == 0 else label - 1


def clean(metrics: Sequence[str | Measure], perturbation: Perturbation | None = None) -> Protocol:
    """The plain protocol: the predicted class, all texts, the unchanged model."""
    return Protocol(
        "clean",
        tuple(metric if isinstance(metric, Measure) else measure_by_name(metric, perturbation) for metric in metrics),
    )


PROTOCOLS: dict[str, Protocol] = {}


def protocol(name: str) -> Protocol:
    """The protocol of a paper by name."""
    if name not in PROTOCOLS:
        raise RefusedValue(f"there is no protocol '{name}'. Protocols: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


# Importing the presets registers them.
from tokenlight.bench import presets as presets  # noqa: E402
