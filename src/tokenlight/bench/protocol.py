"""Protocols: which metrics, on which texts, and what the explained pass sees."""

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
from tokenlight.model.capture import Capture
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.question_answering import LooseAnswers
from tokenlight.text.batch import Batch
from tokenlight.text.tokenized_text import TokenizedText

BATCH = 32  # texts that run together


@dataclass(frozen=True)
class HidingBatch(Batch):
    """A batch with tokens that are there, and look at others, but that no token may look at."""

    hidden: Tensor | None = None  # [batch, token] bool

    def inputs(self) -> dict[str, Tensor]:
        found = super().inputs()
        if self.hidden is not None:
            found["attention_mask"] = found["attention_mask"] * ~self.hidden
        return found


@dataclass(frozen=True)
class Protocol:
    """How methods are judged: which measures, on which texts, and what the explained pass sees."""

    name: str
    measures: tuple[Measure, ...]
    tasks: tuple[str, ...] = ()  # empty: any
    target: Literal["predicted", "gold", "argmax"] = "predicted"  # "argmax": start and end of an answer, each alone
    hide: tuple[Literal["cls", "sep"], ...] = ()  # tokens that no token may attend to in the explained pass
    zero_types: bool = False  # segment ids are 0 in the explained and in the measured pass
    zero_first: frozenset[str] = frozenset()  # methods whose score of the first token is set to 0
    absolute: frozenset[str] = frozenset()  # methods of whose scores the sign is dropped
    window: int | None = None  # tokens that are read of a text; the rest is cut off
    shortest: int = 0  # tokens, special ones included; shorter texts are set aside
    longest: int | None = None
    only_right: bool = False  # only examples that the model gets right
    only_label: int | None = None  # only examples with this gold class
    least_probability: float = 0.0  # of the gold class
    lost_answer: Literal["set aside", "first token"] = "set aside"  # where the gold answer was cut off
    random_runs: int = 1  # of the control with random scores, whose means are averaged

    def __post_init__(self) -> None:
        check_labels(self.measures)

    @property
    def needs_marks(self) -> bool:
        return any(measure.entry.needs == "marks" for measure in self.measures)

    def fit(self, explainer: Explainer) -> Explainer:
        """The explainer that reads texts as the protocol does. Use it for everything else."""
        task = explainer.task.name
        if self.tasks and task not in self.tasks:
            others = ", ".join(one.name for one in PROTOCOLS.values() if task in one.tasks) or "none"
            raise RefusedValue(
                f"protocol '{self.name}' is for {' and '.join(self.tasks)}, but this model does {task}; "
                f"protocols for that: {others}"
            )
        if self.window is None and self.target != "argmax":
            return explainer
        tokenizer = copy.copy(explainer.tokenizer)
        if self.window is not None:
            tokenizer.model_max_length = min(self.window, tokenizer.model_max_length)
        return Explainer(explainer.model, tokenizer, LooseAnswers if self.target == "argmax" else None)

    def measured(self, batch: Batch) -> Batch:
        """What the model sees when its answer is measured, and when the filters ask it."""
        types = batch.token_type_ids
        return replace(batch, token_type_ids=types * 0) if self.zero_types and types is not None else batch

    def prepare(self, tokenizer: Any) -> Callable[[Batch], Batch] | None:
        """What the explained pass sees, for `explain_rows`; None where that is the batch as it is."""
        if not self.hide and not self.zero_types:
            return None
        ids = [{"cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}[role] for role in self.hide]
        known = [token for token in ids if token is not None]

        def change(batch: Batch) -> Batch:
            seen = self.measured(batch)
            if not known:
                return seen
            hidden = torch.isin(seen.input_ids, seen.input_ids.new_tensor(known)) & seen.attention_mask.bool()
            return HidingBatch(**{**vars(seen), "hidden": hidden})

        return change

    def keep(
        self,
        tokenized_text: TokenizedText,
        *,
        label: int | None = None,
        probability: float | None = None,
        right: bool | None = None,
    ) -> str | None:
        """Why an example is set aside; None where it is not.

        `label` is the gold class, `probability` its probability in the measured pass, `right` whether the model
        prefers it (or the right word to the wrong one). What the protocol does not ask for may be None.
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
    ) -> list[Any]:
        """target= of `explain_rows` and `evaluate` for each row; None stands for what the model predicts.

        `instrumented`, if there is one, is of this model.
        """
        if self.target == "gold":
            return list(labels)
        if self.target == "predicted":
            return [None] * len(tokenized_texts)
        return self._peaks(explainer, tokenized_texts, instrumented or InstrumentedModel(explainer.model))

    def _peaks(
        self, explainer: Explainer, tokenized_texts: Sequence[TokenizedText], instrumented: InstrumentedModel
    ) -> list[tuple[int, int]]:
        """The tokens with the highest start and end logit of the explained pass, among all tokens of the row."""
        change = self.prepare(explainer.tokenizer)
        found: dict[int, tuple[int, int]] = {}
        for places in explainer.batches(list(tokenized_texts), BATCH, [False] * len(tokenized_texts)):
            batch = explainer.collate([tokenized_texts[i] for i in places], instrumented.device)
            with torch.inference_mode(), torch.autocast(instrumented.device.type, enabled=False):
                output = instrumented.run(change(batch) if change else batch, Capture())
            for place, i in enumerate(places):
                start, end = (output[side][place, : len(tokenized_texts[i])] for side in ("start_logits", "end_logits"))
                found[i] = int(start.argmax()), int(end.argmax())
        return [found[i] for i in range(len(tokenized_texts))]

    def adjust(self, explanation: Explanation) -> Explanation:
        """The explanation with the scores that the paper's code goes on with."""
        scores = explanation.scores
        if explanation.method in self.absolute:
            scores = scores.abs()
        if explanation.method in self.zero_first:
            scores = torch.cat([scores.new_zeros(1), scores[1:]])
        return explanation if scores is explanation.scores else replace(explanation, scores=scores)

    def answer_marks(self, tokenized_text: TokenizedText, answer: Span) -> Tensor | None:
        """[token] bool: the gold answer, given in characters of the context; None where it was cut off."""
        marks = torch.zeros(len(tokenized_text), dtype=torch.bool)
        context = tokenized_text.segment_index(1)
        whole = bool(context.tokens) and answer[1] <= context.ends[-1]
        found = context.find(answer) if whole else None
        if found is not None:
            marks[slice(*found)] = True
        elif self.lost_answer == "first token":
            marks[0] = True
        else:
            return None
        return marks


def other_class(label: int) -> int:
    """The class that `kendall_confidence` compares with (AttCAT): the one before, and 1 for 0; of two the other."""
    return 1 if label == 0 else label - 1


def clean(metrics: Sequence[str | Measure], perturbation: Perturbation | None = None) -> Protocol:
    """The plain protocol: predicted class, every text, the model as it is."""
    return Protocol(
        "clean", tuple(one if isinstance(one, Measure) else measure_by_name(one, perturbation) for one in metrics)
    )


PROTOCOLS: dict[str, Protocol] = {}


def protocol(name: str) -> Protocol:
    """A paper's protocol by its name; a wrong name lists the right ones."""
    if name not in PROTOCOLS:
        raise RefusedValue(f"there is no protocol '{name}'. Protocols: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


# Importing the presets registers them.
from tokenlight.bench import presets as presets  # noqa: E402
