"""A task: everything that is special about what a model is asked. One subclass a task, each in a file of its own.

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

from tokenlight.foundation.first_look import SAMPLE
from tokenlight.model.inputs import max_length
from tokenlight.model.settings import embedding_rows
from tokenlight.record.choices import Choice, logits_at
from tokenlight.record.target_functions import refuse_padding_read
from tokenlight.tasks.targets import (
    Candidate,
    Goal,
    Question,
    Span,
    Target,
    TargetLike,
    Wanted,
    check_indices,
    chosen_indices,
    new_foils,
    refuse_equal,
)
from tokenlight.text.batches import Batch, refuse_unembedded_ids
from tokenlight.text.encoding import encode
from tokenlight.text.rows import Cut, Gap, Row, Text, is_whole

LogitsFor = Literal["text", "every token", "last token"]
MOST = 10  # candidates to pick from, where the model could say anything


@dataclass(frozen=True)
class Field:
    """A place to write in, on the page."""

    label: str
    placeholder: str


@dataclass(frozen=True)
class Fields:
    """What the page asks for."""

    text: Field
    second: Field | None = None
    second_required: bool = False


@dataclass(frozen=True)
class Task(ABC):
    """What this model is asked. Texts are given as rows; `i` is a text's place in the batch that was run."""

    model: PreTrainedModel = field(repr=False)  # the user's own, without wrappers
    tokenizer: Any = field(default=None, repr=False)  # None: the caller tokenises

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
    foil_has_own_row: ClassVar[bool] = False  # a foil is read at another token than the target
    reads_pairs: ClassVar[bool] = False
    names_spans: ClassVar[bool] = False  # a target is a stretch of tokens
    names_position: ClassVar[bool] = False  # the model answers for every token: a target says for which
    needs_position: ClassVar[bool] = False  # ... and no text says it by itself
    reads_windows: ClassVar[bool] = False  # what it says about parts of a text can be averaged
    compares_classes: ClassVar[bool] = False
    score_word: ClassVar[str] = "logit"  # what the explained number is called

    # Texts

    @property
    def max_length(self) -> int | None:
        """The longest input in tokens, or None where nothing limits it."""
        return max_length(self.model, self.tokenizer.model_max_length)

    def encode(self, texts: Sequence[Text]) -> list[Row]:
        """The texts as token rows, cut to what the model takes."""
        rows = encode(self.tokenizer, texts, self.max_length, self.cut, replies=self.reads_on)
        for row in rows:
            refuse_unembedded_ids(row, embedding_rows(self.model))
        return rows

    # From people's words to indices, and back

    def want(self, row: Row, target: TargetLike, foil: TargetLike) -> Wanted:
        """Indices for what the caller asked about this text. Functions of the output are not for here."""
        index = None if target is None else self.index(target)
        other = None if foil is None else self.index(foil)
        refuse_equal(index, other, target)
        return Wanted(index=index, foil=other)

    def read_target(self, value: Any) -> Any:
        """A target, foil or gold label as data holds it, as `want` takes it. A name wins over an index.

        Only some formats tell 1 from "1", so a number is read as the text that it is written as, whatever the format.
        """
        return str(value) if is_whole(value) else value

    def read_on(self, row: Row, wanted: Wanted) -> Row:
        """What the model reads to be asked this about a text."""
        return row

    def want_any(self, row: Row) -> Wanted:
        """For the caller's own function of the output."""
        return Wanted()

    def want_ids(self, target: Any, foil: Any) -> Wanted:
        """For those who tokenise themselves."""
        refuse_equal(target, foil, target)
        return Wanted(index=target, foil=foil)

    def trial_target(self, last: int) -> Any:
        """Something to ask about any token row whose last token has this place, as `want_ids` takes it."""
        return min(1, self.outputs - 1)

    def compose(self, target: Any, position: int | None = None, span: Span | None = None) -> Any:
        """What the separate fields of a page or a command say, as `explain` takes it."""
        if span is not None:
            raise ValueError(f"spans are for question answering; this is a {self.name} model")
        if position is not None:
            raise ValueError(f"a position is for models that answer for every token; this is a {self.name} model")
        return target

    def default_position(self, row: Row) -> int | None:
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

    def gold(self, label: object, wanted: Wanted) -> int | None:
        """The right answer of an example, by its label or by the word that it names."""
        return wanted.index

    def describe(self, row: Row, choices: Sequence[Choice], i: int) -> tuple[str, str | None]:
        """Target and foil in words."""
        if choices[0].function is not None:
            return getattr(choices[0].function, "__name__", "custom"), None
        target, foil = chosen_indices(choices, i)
        return self.words(row, target), self.words(row, foil) if foil else None

    def words(self, row: Row, indices: Sequence[int]) -> str:
        """A target or foil in words."""
        return self.name_of(indices[0])

    # Which number is explained

    def reads_at(self, wanted: Sequence[Wanted], batch: Batch) -> Tensor | None:
        """The tokens of each text whose logits count, [batch] or [batch, step], where that is known beforehand."""
        return None

    def positions(self, wanted: Sequence[Wanted], batch: Batch) -> Tensor | None:
        """[batch] the token axis of the logits; None where they have none, or where no token was named."""
        return None

    def choose(self, target: Target, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[Choice, ...]:
        """The parts whose scores add up to what is explained; `model` is the one that has answered."""
        positions = self.positions(target.wanted, batch)
        if target.function is not None:
            refuse_padding_read(target.function, output, batch)
            return (Choice(row=None, function=target.function),)
        logits = output["logits"]
        check_indices([w.index for w in target.wanted] + [w.foil for w in target.wanted], logits.shape[-1])
        predicted = (logits if positions is None else logits_at(logits, positions)).argmax(-1).tolist()
        index = [p if w.index is None else w.index for p, w in zip(predicted, target.wanted, strict=True)]
        foil = new_foils([w.foil for w in target.wanted], batch.input_ids)
        return (Choice(row=positions, index=batch.input_ids.new_tensor(index), foil=foil, position=positions),)

    def goal(self, index: Sequence[int], foil: Sequence[int], position: int | None) -> Goal:
        """Whose probability is measured, from what was chosen."""
        return Goal(tuple(index), foil[0] if foil else None, position)

    def moved(self, wanted: Wanted, row: Row, goal: Goal) -> Wanted:
        """The same wish about what is left of a text; the goal has moved already."""
        return replace(wanted, position=goal.position)

    def pose(self, question: Question) -> Question:
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

    def log_joint(self, rows: Tensor, wanted: Tensor) -> Tensor:
        """The log-probability of `wanted` [count], taken from as many rows of logits [count, index], all together."""
        return (wanted - rows.logsumexp(-1)).sum()

    @property
    def gives_number(self) -> bool:
        """The answer is a number, or several, none of which excludes another: it has no probability."""
        return False

    def prediction(self, row: Row, output: Any, wanted: Wanted, i: int) -> tuple[str, float | None]:
        """What the model says about a text, and how probable it finds that."""
        rows = self.answer_rows(output, i, len(row), wanted.position)
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
        self, row: Row, output: Any, wanted: Wanted, asked: Sequence[int] = (), i: int = 0
    ) -> tuple[Candidate, ...]:
        """All labels, or the likeliest tokens and those that were asked for."""
        rows = self.answer_rows(output, i, len(row), wanted.position)
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

    def gold_chance(self, row: Row, output: Any, wanted: Wanted, gold: int, i: int) -> tuple[float, bool]:
        """The probability of the right answer, and whether the model gives it."""
        rows = self.answer_rows(output, i, len(row), wanted.position)
        assert rows is not None, "a right answer stands somewhere"
        logits = rows[0].double()
        return float(self.chances(logits)[gold]), int(logits.argmax()) == gold

    def probability(self, output: Any, question: Question, i: int) -> Tensor:
        """The probability of the question's goal, in double precision."""
        return self.log_probability(output, question, i).exp()

    def log_probability(self, output: Any, question: Question, i: int) -> Tensor:
        """Its logarithm: the probability of a long answer is too small for a number."""
        goal = question.goal
        found = self.answer_rows(output, i, len(question), goal.position, len(goal.index))
        assert found is not None, "a goal names its token"
        rows = found.double()  # [token of the goal, index]
        wanted = rows[list(range(len(rows))), list(goal.index)]
        if goal.foil is not None:
            return logsigmoid(wanted - rows[:, goal.foil]).sum()
        return self.log_joint(rows, wanted)

    # What people are shown

    @property
    def fields(self) -> Fields:
        """What the page asks for."""
        return Fields(Field("Text", "Type or paste a text"))

    @property
    def examples(self) -> list[Text]:
        """To begin with, on the page."""
        return [SAMPLE]

    @property
    def sample(self) -> tuple[Text, TargetLike]:
        """A short input that fits, and what can be explained about it."""
        return SAMPLE, None
