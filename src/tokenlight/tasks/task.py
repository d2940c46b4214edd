"""The base class of tasks: everything that depends on what a model is asked.

The base class fits every model that answers with one row of logits; what a subclass says differently, it says in a
fact (a class attribute) or in a method. Nothing outside this folder asks which task it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.common.samples import SAMPLE
from tokenlight.model.config import embedding_rows, max_length
from tokenlight.tasks.selectors import OutputSelector, logits_at
from tokenlight.tasks.target_functions import refuse_padding_read
from tokenlight.tasks.targets import (
    Candidate,
    ChangedInput,
    MeasuredTarget,
    ResolvedTarget,
    Span,
    Target,
    TargetSpec,
    check_indices,
    chosen_indices,
    new_foils,
    refuse_equal,
)
from tokenlight.text.batch import Batch, refuse_unembedded_ids
from tokenlight.text.tokenize import encode
from tokenlight.text.tokenized_text import Cut, Gap, Text, TokenizedText, is_whole

LogitsFor = Literal["text", "every token", "last token"]
MOST = 10  # candidates to pick from, where the model could say anything


@dataclass(frozen=True)
class Task(ABC):
    """What this model is asked. Texts are given as rows; `i` is a text's place in the batch that was run."""

    model: PreTrainedModel = field(repr=False)  # the user's own, without wrappers
    tokenizer: Any = field(default=None, repr=False)  # None: the caller tokenizes

    name: ClassVar[str]  # as transformers' pipelines call it
    heads: ClassVar[tuple[str, ...]]  # how the names of model classes with such a head end
    auto_class: ClassVar[str]  # transformers' class that loads one
    trial_settings: ClassVar[Mapping[str, Any]] = {}  # of the configuration of a tiny model that is made to be tried

    cut: ClassVar[Cut] = "longest_first"  # which tokens of a long text give way
    logits_for: ClassVar[LogitsFor] = "text"
    parts: ClassVar[int] = 1  # numbers of the output that are added up
    with_words: ClassVar[bool] = False  # the model answers with a word of its vocabulary
    gap: ClassVar[Gap | None] = None
    reads_on: ClassVar[bool] = False  # from left to right: what is taken away is deleted, not replaced
    foil_has_own_query_position: ClassVar[bool] = False  # a foil is read at another token than the target
    reads_pairs: ClassVar[bool] = False
    names_spans: ClassVar[bool] = False  # a target is a stretch of tokens
    needs_position: ClassVar[bool] = False  # a target says for which token, as no text says it by itself
    reads_windows: ClassVar[bool] = False  # what it says about parts of a text can be averaged
    compares_classes: ClassVar[bool] = False
    score_word: ClassVar[str] = "logit"  # what the explained number is called

    # Texts

    @property
    def max_length(self) -> int | None:
        """The longest input in tokens, or None where nothing limits it."""
        return max_length(self.model, self.tokenizer.model_max_length)

    def encode(self, texts: Sequence[Text]) -> list[TokenizedText]:
        """The texts as token rows, cut to what the model takes."""
        tokenized_texts = encode(self.tokenizer, texts, self.max_length, self.cut, replies=self.reads_on)
        for tokenized_text in tokenized_texts:
            refuse_unembedded_ids(tokenized_text, embedding_rows(self.model))
        return tokenized_texts

    # From people's words to indices, and back

    def resolve_target(self, tokenized_text: TokenizedText, target: TargetSpec, foil: TargetSpec) -> ResolvedTarget:
        """Indices for what the caller asked about this text. Functions of the output are not for here."""
        index = None if target is None else self.index(target)
        other = None if foil is None else self.index(foil)
        refuse_equal(index, other, target)
        return ResolvedTarget(index=index, foil=other)

    def read_target(self, value: Any) -> Any:
        """A target, foil or gold label as data holds it, as `resolve_target` takes it. A name wins over an index.

        Only some formats tell 1 from "1", so a number is read as the text that it is written as, whatever the format.
        """
        return str(value) if is_whole(value) else value

    def read_on(self, tokenized_text: TokenizedText, resolved: ResolvedTarget) -> TokenizedText:
        """What the model reads to be asked this about a text."""
        return tokenized_text

    def resolve_any_target(self, tokenized_text: TokenizedText) -> ResolvedTarget:
        """For the caller's own function of the output."""
        return ResolvedTarget()

    def resolve_target_ids(self, target: Any, foil: Any) -> ResolvedTarget:
        """For those who tokenize themselves."""
        refuse_equal(target, foil, target)
        return ResolvedTarget(index=target, foil=foil)

    def trial_target(self, last: int) -> Any:
        """Something to ask about any token row whose last token has this place, as `resolve_target_ids` takes it."""
        return min(1, self.outputs - 1)

    def compose(self, target: Any, position: int | None = None, span: Span | None = None) -> Any:
        """What the separate fields of a page or a command say, as `explain` takes it."""
        if span is not None:
            raise RefusedValue(f"spans are for question answering; this is a {self.name} model")
        if position is not None:
            raise RefusedValue(f"a position is for models that answer for every token; this is a {self.name} model")
        return target

    def default_position(self, tokenized_text: TokenizedText) -> int | None:
        """The token that a page asks about first, where the model answers for every token."""
        return None

    def check_shared(self, target: Any) -> None:
        """Refuse a target that is meant for every text of a corpus, and can be none."""
        self.index(target)

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Between how many labels or tokens the model chooses."""

    @abstractmethod
    def index(self, name: object) -> int:
        """The index of a label or of a token."""

    @abstractmethod
    def name_of(self, index: int) -> str:
        """The label or the token behind an index."""

    @property
    def labels(self) -> dict[int, str]:
        """Index -> label; none where the model answers with something else."""
        return {}

    def gold(self, label: object, resolved: ResolvedTarget) -> int | None:
        """The right answer of an example, by its label or by the word that it names."""
        return resolved.index

    def describe(
        self, tokenized_text: TokenizedText, selectors: Sequence[OutputSelector], i: int
    ) -> tuple[str, str | None]:
        """Target and foil in words."""
        if selectors[0].function is not None:
            return getattr(selectors[0].function, "__name__", "custom"), None
        target, foil = chosen_indices(selectors, i)
        return self.words(tokenized_text, target), self.words(tokenized_text, foil) if foil else None

    def words(self, tokenized_text: TokenizedText, indices: Sequence[int]) -> str:
        """A target or foil in words."""
        return self.name_of(indices[0])

    # Which number is explained

    def reads_at(self, resolved: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        """The tokens of each text whose logits count, [batch] or [batch, step], where that is known beforehand."""
        return None

    def positions(self, resolved: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        """[batch] the token axis of the logits; None where they have none, or where no token was named."""
        return None

    def select(self, target: Target, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[OutputSelector, ...]:
        """The parts whose scores add up to what is explained; `model` is the one that has answered."""
        positions = self.positions(target.resolved, batch)
        if target.function is not None:
            refuse_padding_read(target.function, output, batch)
            return (OutputSelector(row=None, function=target.function),)
        logits = output["logits"]
        check_indices([w.index for w in target.resolved] + [w.foil for w in target.resolved], logits.shape[-1])
        predicted = (logits if positions is None else logits_at(logits, positions)).argmax(-1).tolist()
        index = [p if w.index is None else w.index for p, w in zip(predicted, target.resolved, strict=True)]
        foil = new_foils([w.foil for w in target.resolved], batch.input_ids)
        return (OutputSelector(row=positions, index=batch.input_ids.new_tensor(index), foil=foil, position=positions),)

    def measured_target(self, index: Sequence[int], foil: Sequence[int], position: int | None) -> MeasuredTarget:
        """Whose probability is measured, from what was chosen."""
        return MeasuredTarget(tuple(index), foil[0] if foil else None, position)

    def moved(
        self, resolved: ResolvedTarget, tokenized_text: TokenizedText, measured_target: MeasuredTarget
    ) -> ResolvedTarget:
        """The same wish about what is left of a text; the goal has moved already."""
        return replace(resolved, position=measured_target.position)

    def pose(self, question: ChangedInput) -> ChangedInput:
        """The question as the model has to read it."""
        return question

    # What the model says

    def answer_rows(
        self, output: Any, i: int, length: int, position: int | None, count: int = 1
    ) -> Tensor | None:  # [count, index]
        """The logits that answer for a text of so many tokens; None where no token was named."""
        return output["logits"][i][None]

    def chances(self, logits: Tensor) -> Tensor:
        """[index] probabilities from one row of logits."""
        return logits.softmax(0)

    def log_joint(self, rows: Tensor, resolved: Tensor) -> Tensor:
        """The log-probability of `resolved` [count], taken from as many rows of logits [count, index], all together."""
        return (resolved - rows.logsumexp(-1)).sum()

    @property
    def gives_number(self) -> bool:
        """The answer is a number, or several, none of which excludes another: it has no probability."""
        return False

    def prediction(
        self, tokenized_text: TokenizedText, output: Any, resolved: ResolvedTarget, i: int
    ) -> tuple[str, float | None]:
        """What the model says about a text, and how probable it finds that."""
        rows = self.answer_rows(output, i, len(tokenized_text), resolved.position)
        if rows is None:
            return "something for every token", None
        logits = rows[0].float()
        if self.gives_number:
            return self.numbers_in_words(logits.tolist()), None
        best = int(logits.argmax())
        return self.name_of(best), float(self.chances(logits)[best])

    def numbers_in_words(self, numbers: Sequence[float]) -> str:
        """The answer of a regression: its number, or every one with its name where there are several."""
        if len(numbers) == 1:
            return f"{numbers[0]:.4g}"
        return ", ".join(f"{self.name_of(i)} {number:.4g}" for i, number in enumerate(numbers))

    def candidates(
        self,
        tokenized_text: TokenizedText,
        output: Any,
        resolved: ResolvedTarget,
        asked: Sequence[int] = (),
        i: int = 0,
    ) -> tuple[Candidate, ...]:
        """All labels, or the likeliest tokens and those that were asked for."""
        rows = self.answer_rows(output, i, len(tokenized_text), resolved.position)
        assert rows is not None, "a position was chosen before"
        logits = rows[0].double()
        if self.gives_number:
            return tuple(Candidate(self.name_of(i), i, value=number) for i, number in enumerate(logits.tolist()))
        chances = self.chances(logits)
        indices = list(range(len(logits)))
        if self.with_words:
            likeliest = chances.topk(min(MOST, len(logits))).indices.tolist()
            indices = list(dict.fromkeys([*likeliest, *asked]))
        return tuple(Candidate(self.name_of(index), index, float(chances[index])) for index in indices)

    def gold_chance(
        self, tokenized_text: TokenizedText, output: Any, resolved: ResolvedTarget, gold: int, i: int
    ) -> tuple[float, bool]:
        """The probability of the right answer, and whether the model gives it."""
        rows = self.answer_rows(output, i, len(tokenized_text), resolved.position)
        assert rows is not None, "a right answer stands somewhere"
        logits = rows[0].double()
        return float(self.chances(logits)[gold]), int(logits.argmax()) == gold

    def probability(self, output: Any, question: ChangedInput, i: int) -> Tensor:
        """The probability of the question's goal, in double precision."""
        return self.log_probability(output, question, i).exp()

    def log_probability(self, output: Any, question: ChangedInput, i: int) -> Tensor:
        """Its logarithm: the probability of a long answer is too small for a number."""
        measured_target = question.measured_target
        found = self.answer_rows(output, i, len(question), measured_target.position, len(measured_target.index))
        assert found is not None, "a goal names its token"
        rows = found.double()  # [token of the goal, index]
        resolved = rows[list(range(len(rows))), list(measured_target.index)]
        if measured_target.foil is not None:
            return logsigmoid(resolved - rows[:, measured_target.foil]).sum()
        return self.log_joint(rows, resolved)

    # To try the model

    @property
    def sample(self) -> tuple[Text, TargetSpec]:
        """A short input that the model can read, and a target for it; a pair if the model reads nothing but pairs."""
        return SAMPLE, None
