"""The base class of tasks: everything that depends on what a model computes for a text.

The base class fits models with one row of logits per text. Subclasses override class attributes and methods. No code
outside this folder checks which task it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import check_quantity
from tokenlight.common.samples import SAMPLE
from tokenlight.model.config import embedding_rows, max_length
from tokenlight.tasks.selectors import OutputSelector, logits_at
from tokenlight.tasks.target_functions import OutputFunction, refuse_padding_read
from tokenlight.tasks.targets import (
    Candidate,
    ChangedInput,
    ResolvedTarget,
    Span,
    TargetKind,
    TargetSpec,
    check_indices,
    foil_tensor,
    refuse_equal,
    refuse_wrong_count,
    selected_indices,
)
from tokenlight.text.batch import Batch, refuse_unembedded_ids
from tokenlight.text.tokenize import encode
from tokenlight.text.tokenized_text import Cut, Gap, Text, TokenizedText, is_whole

LogitsFor = Literal["text", "every token", "last token"]
MAX_CANDIDATES = 10  # that are listed, for models with a vocabulary of outputs


@dataclass(frozen=True)
class Task(ABC):
    """What the model computes, and how targets are named. `i` is the index of a text in the batch of an output."""

    model: PreTrainedModel = field(repr=False)  # the user's own, without wrappers
    tokenizer: Any = field(default=None, repr=False)  # None: the caller tokenizes

    name: ClassVar[str]  # its name in transformers' pipelines
    heads: ClassVar[tuple[str, ...]]  # endings of the names of model classes with such a head
    auto_class: ClassVar[str]  # transformers' class that loads such models
    trial_settings: ClassVar[Mapping[str, Any]] = {}  # of the configuration of a tiny model for tests

    cut: ClassVar[Cut] = "longest_first"  # which tokens of a long text are truncated
    logits_for: ClassVar[LogitsFor] = "text"
    parts: ClassVar[int] = 1  # numbers of the output that are added up
    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("index",)  # of resolved targets, functions aside
    with_words: ClassVar[bool] = False  # the output is a token of the vocabulary
    gap: ClassVar[Gap | None] = None
    generates: ClassVar[bool] = False  # reads from left to right, so tokens are deleted instead of replaced
    foil_has_own_query_position: ClassVar[bool] = False  # a foil is read at another token than the target
    reads_pairs: ClassVar[bool] = False
    names_spans: ClassVar[bool] = False  # a target is a span of tokens
    needs_position: ClassVar[bool] = False  # a target must name its position
    reads_windows: ClassVar[bool] = False  # predictions for parts of a text can be averaged
    compares_classes: ClassVar[bool] = False
    score_word: ClassVar[str] = "logit"  # what the explained number is called

    # Texts

    @property
    def max_length(self) -> int | None:
        """The longest input in tokens, or None where nothing limits it."""
        return max_length(self.model, self.tokenizer.model_max_length)

    def encode(self, texts: Sequence[Text]) -> list[TokenizedText]:
        """The tokenized texts, truncated to the model's maximum length."""
        tokenized_texts = encode(self.tokenizer, texts, self.max_length, self.cut, replies=self.generates)
        for tokenized_text in tokenized_texts:
            refuse_unembedded_ids(tokenized_text, embedding_rows(self.model))
        return tokenized_texts

    # From names to indices, and back

    def resolve_target(self, tokenized_text: TokenizedText, target: TargetSpec, foil: TargetSpec) -> ResolvedTarget:
        """Target and foil in indices. A target that is resolved already is checked, and returned as it is."""
        if isinstance(target, ResolvedTarget):
            if foil is not None:
                raise RefusedValue("a resolved target has its own foil: leave foil out")
            self.check_resolved(tokenized_text, target)
            return target
        return self.resolve_names(tokenized_text, target, foil)

    def resolve_names(self, tokenized_text: TokenizedText, target: Any, foil: Any) -> ResolvedTarget:
        """Indices for names of targets, positions and foils; None stands for the prediction."""
        index = None if target is None else self.index(target)
        foil_index = None if foil is None else self.index(foil)
        refuse_equal(index, foil_index, target)
        return ResolvedTarget(() if index is None else (index,), () if foil_index is None else (foil_index,))

    def check_resolved(self, tokenized_text: TokenizedText, target: ResolvedTarget) -> None:
        """Refuse a resolved target that does not fit the task or the text. `select` checks the number of outputs."""
        if target.function is not None or target.kind == "function":
            raise RefusedValue("pass a target function itself as target=, not in a ResolvedTarget")
        if target.kind not in self.target_kinds:
            kinds = " or ".join(map(repr, self.target_kinds))
            raise RefusedValue(f"resolved targets of a {self.name} model have the kind {kinds}, found {target.kind!r}")
        refuse_wrong_count(target)
        check_quantity(target.quantity)
        refuse_equal(target.indices or None, target.foil, target.indices)
        for name in ("position", "passage", "given", "parts"):  # tasks that read one of them check it
            if (value := getattr(target, name)) not in (None, ()):
                raise RefusedValue(f"a resolved target of a {self.name} model has no {name}, found {value!r}")

    def read_target(self, value: Any) -> Any:
        """A target, foil or gold label of a data set, as `resolve_target` takes it. A name wins over an index.

        Only some formats distinguish 1 from "1", so a number is read as the text that is written for it.
        """
        return str(value) if is_whole(value) else value

    def append_continuation(self, tokenized_text: TokenizedText, target: ResolvedTarget) -> TokenizedText:
        """What the model reads: the text, followed by the tokens of a continuation."""
        return tokenized_text

    def resolve_function(self, tokenized_text: TokenizedText, function: OutputFunction) -> ResolvedTarget:
        """The caller's own function of the output as a target."""
        return ResolvedTarget(kind="function", function=function)

    def resolve_target_ids(self, target: Any, foil: Any) -> ResolvedTarget:
        """Target and foil of callers without a tokenizer, who give indices."""
        refuse_equal(target, foil, target)
        return ResolvedTarget(() if target is None else (target,), () if foil is None else (foil,))

    def trial_target(self, last: int) -> Any:
        """A target for any text whose last token has this index, as `resolve_target_ids` takes it."""
        return min(1, self.outputs - 1)

    def compose(self, target: Any, position: int | None = None, span: Span | None = None) -> Any:
        """A target from the separate fields of the page or the command line, as `explain` takes it."""
        if span is not None:
            raise RefusedValue(f"spans are for question answering; this is a {self.name} model")
        if position is not None:
            raise RefusedValue(f"a position is for models that answer for every token; this is a {self.name} model")
        return target

    def default_position(self, tokenized_text: TokenizedText) -> int | None:
        """The position that the page explains first, for models with an output for every token."""
        return None

    def check_shared(self, target: Any) -> None:
        """Refuse a target that is invalid for every text of a corpus."""
        self.index(target)

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of labels or tokens that the model has logits for."""

    @abstractmethod
    def index(self, name: object) -> int:
        """The index of a label or of a token."""

    @abstractmethod
    def name_of(self, index: int) -> str:
        """The label or the token with this index."""

    @property
    def labels(self) -> dict[int, str]:
        """Index -> label; empty for models without labels."""
        return {}

    def gold(self, label: object, target: ResolvedTarget) -> int | None:
        """The index of an example's gold label, or of the word that its target names."""
        return target.index

    def describe(
        self, tokenized_text: TokenizedText, selectors: Sequence[OutputSelector], i: int
    ) -> tuple[str, str | None]:
        """Target and foil in words."""
        if selectors[0].function is not None:
            return getattr(selectors[0].function, "__name__", "custom"), None
        target, foil = selected_indices(selectors, i)
        return self.words(tokenized_text, target), self.words(tokenized_text, foil) if foil else None

    def words(self, tokenized_text: TokenizedText, indices: Sequence[int]) -> str:
        """A target or foil in words."""
        return self.name_of(indices[0])

    # Which number is explained

    def read_positions(self, targets: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        """[batch] or [batch, step]: the tokens of each text whose logits are read; None: not known before the pass."""
        return None

    def positions(self, targets: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        """[batch] indices into the token axis of the logits; None if they have none, or if no position is named."""
        return None

    def select(
        self, targets: Sequence[ResolvedTarget], output: Any, batch: Batch, model: PreTrainedModel
    ) -> tuple[OutputSelector, ...]:
        """The parts whose scores add up to what is explained; `model` computed the output."""
        function = targets[0].function
        positions = self.positions(targets, batch)
        if function is not None:
            refuse_padding_read(function, output, batch)
            return (OutputSelector(row=None, function=function),)
        logits = output["logits"]
        check_indices([index for target in targets for index in (*target.indices, *target.foil)], logits.shape[-1])
        predicted = (logits if positions is None else logits_at(logits, positions)).argmax(-1).tolist()
        indices = [p if t.index is None else t.index for p, t in zip(predicted, targets, strict=True)]
        foil = foil_tensor([target.foil for target in targets], 0, batch.input_ids.device)
        return (
            OutputSelector(row=positions, index=batch.input_ids.new_tensor(indices), foil=foil, position=positions),
        )

    def measured_target(self, selected: ResolvedTarget) -> ResolvedTarget:
        """The target whose probability is measured, from selected indices, their position and `given` tokens."""
        return selected

    def prediction_target(self, tokenized_text: TokenizedText, position: int | None) -> ResolvedTarget:
        """The model's prediction about a text of which tokens may be removed, as a target."""
        return ResolvedTarget(position=position)

    def complete_input(self, changed: ChangedInput) -> ChangedInput:
        """The input as the model has to read it, with the tokens of a continuation."""
        return changed

    # Predictions and probabilities

    def logits_of_text(
        self, output: Any, i: int, length: int, position: int | None, count: int = 1
    ) -> Tensor | None:  # [count, index]
        """The logits of a text with `length` tokens, for `count` tokens of a continuation; None without a position."""
        return output["logits"][i][None]

    def probabilities(self, logits: Tensor) -> Tensor:
        """[index] probabilities from the logits of one prediction."""
        return logits.softmax(0)

    def joint_log_probability(self, logits: Tensor, target_logits: Tensor) -> Tensor:
        """The log-probability of all tokens of a target, from logits [token, index] and its own logits [token]."""
        return (target_logits - logits.logsumexp(-1)).sum()

    @property
    def gives_number(self) -> bool:
        """Whether the output is a number or several, as in regression, so that it has no probability."""
        return False

    def prediction(
        self, tokenized_text: TokenizedText, output: Any, target: ResolvedTarget, i: int
    ) -> tuple[str, float | None]:
        """The model's prediction for a text, and its probability."""
        rows = self.logits_of_text(output, i, len(tokenized_text), target.position)
        if rows is None:
            return "something for every token", None
        logits = rows[0].float()
        if self.gives_number:
            return self.numbers_in_words(logits.tolist()), None
        best = int(logits.argmax())
        return self.name_of(best), float(self.probabilities(logits)[best])

    def numbers_in_words(self, numbers: Sequence[float]) -> str:
        """The output of a regression: its number, or each with its name if there are several."""
        if len(numbers) == 1:
            return f"{numbers[0]:.4g}"
        return ", ".join(f"{self.name_of(i)} {number:.4g}" for i, number in enumerate(numbers))

    def candidates(
        self,
        tokenized_text: TokenizedText,
        output: Any,
        target: ResolvedTarget,
        named: Sequence[int] = (),
        i: int = 0,
    ) -> tuple[Candidate, ...]:
        """All labels, or the likeliest tokens and those that are `named`."""
        rows = self.logits_of_text(output, i, len(tokenized_text), target.position)
        assert rows is not None, "candidates are listed for a position"
        logits = rows[0].double()
        if self.gives_number:
            return tuple(Candidate(self.name_of(i), i, value=number) for i, number in enumerate(logits.tolist()))
        probabilities = self.probabilities(logits)
        indices = list(range(len(logits)))
        if self.with_words:
            likeliest = probabilities.topk(min(MAX_CANDIDATES, len(logits))).indices.tolist()
            indices = list(dict.fromkeys([*likeliest, *named]))
        return tuple(Candidate(self.name_of(index), index, float(probabilities[index])) for index in indices)

    def gold_probability(
        self, tokenized_text: TokenizedText, output: Any, target: ResolvedTarget, gold: int, i: int
    ) -> tuple[float, bool]:
        """The probability of the gold label or token, and whether the model predicts it."""
        rows = self.logits_of_text(output, i, len(tokenized_text), target.position)
        assert rows is not None, "a gold label belongs to a text or to a position"
        logits = rows[0].double()
        return float(self.probabilities(logits)[gold]), int(logits.argmax()) == gold

    def log_probability(self, output: Any, changed: ChangedInput, i: int) -> Tensor:
        """Of the input's target, in double precision. That of a long answer may be too small for a number."""
        target = changed.target
        rows = self.logits_of_text(output, i, len(changed), target.position, target.steps)
        assert rows is not None, "a measured target has a position where its task needs one"
        logits = rows.double()  # [token of the target, index]
        target_logits = logits[list(range(len(logits))), list(target.indices)]
        if target.foil:
            return logsigmoid(target_logits - logits[:, target.foil[0]]).sum()
        return self.joint_log_probability(logits, target_logits)

    # To try the model

    @property
    def sample(self) -> tuple[Text, TargetSpec]:
        """A short input that the model can read, and a target for it; a pair if the model reads nothing but pairs."""
        return SAMPLE, None
