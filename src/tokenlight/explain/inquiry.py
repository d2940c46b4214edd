"""What is asked about a text, once it is read: its tokens, and target and foil in indices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tokenlight.explain.numbers import Number
from tokenlight.record.target_functions import OutputFunction
from tokenlight.tasks.targets import Targets, Wanted, shared_function, spread
from tokenlight.tasks.task import Task
from tokenlight.text.rows import Row


@dataclass(frozen=True)
class Inquiry:
    """One text and what is asked about it, as the model counts: nothing has to be looked up again."""

    row: Row
    wanted: Wanted
    named: bool = False  # somebody named a target or a foil
    function: OutputFunction | None = None  # the caller's own target, which all texts of a call share
    given: tuple[int, ...] = ()  # tokens between the text and what is asked about: the beginning of an answer
    read: Row = field(kw_only=True)  # what the model reads: the text, and an answer behind it

    @property
    def kind(self) -> tuple[int, ...]:
        """Those of one kind can share a batch. A function of the output must not see padding, which it may read."""
        length = 0 if self.function is None else len(self.read)
        return self.wanted.foiled, bool(self.wanted.answer), self.wanted.each, self.wanted.against_all, length

    @property
    def number(self) -> dict[str, Number]:
        """What is explained of each token that follows the text, as a result keeps it; nothing where there is none."""
        if not self.wanted.answer:
            return {}
        return {"number": "log_probability" if self.wanted.against_all else "logit"}

    def apart(self, task: Task) -> "list[Inquiry]":
        """Target and foil as inquiries of their own, where the model has to read each for itself."""
        if not self.wanted.foil_answer:
            return [self]
        wishes = [
            replace(self.wanted, foil_answer=()),
            replace(self.wanted, answer=self.wanted.foil_answer, foil_answer=()),
        ]
        return [replace(self, wanted=wish, read=task.read_on(self.row, wish)) for wish in wishes]


def inquire(task: Task, rows: Sequence[Row], target: Targets, foil: Targets) -> list[Inquiry]:
    """People's words for targets and foils, looked up in each text."""
    targets, foils = spread(target, len(rows), "target"), spread(foil, len(rows), "foil")
    function = shared_function(targets, foils)
    found: list[Inquiry] = []
    for row, one, other in zip(rows, targets, foils, strict=True):
        wanted = task.want_any(row) if function else task.want(row, one, other)
        named = (one, other) != (None, None)
        found.append(Inquiry(row, wanted, named, function, read=task.read_on(row, wanted)))
    return found
