"""What is asked about a text, once it is read: its tokens, and target and foil in indices."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenlight.record.choices import OutputFunction
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


def inquire(task: Task, rows: Sequence[Row], target: Targets, foil: Targets) -> list[Inquiry]:
    """People's words for targets and foils, looked up in each text."""
    targets, foils = spread(target, len(rows), "target"), spread(foil, len(rows), "foil")
    function = shared_function(targets, foils)
    return [
        Inquiry(
            row,
            task.want_any(row) if function else task.want(row, one, other),
            named=(one, other) != (None, None),
            function=function,
        )
        for row, one, other in zip(rows, targets, foils, strict=True)
    ]
