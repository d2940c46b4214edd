"""The registry of tasks: a class for each kind of question, found by the name of a model's class."""

from typing import Any

from transformers import PreTrainedModel

from tokenlight._compat.transformers_internals import class_names
from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.common.registry import import_all
from tokenlight.tasks.task import Task

TASKS: dict[str, type[Task]] = {}  # every task by the name that transformers' pipelines give it


def register(task: type[Task]) -> type[Task]:
    """Add a task under its name."""
    TASKS[task.name] = task
    return task


def find_task(name: str) -> type[Task]:
    """By name; a wrong name lists the right ones."""
    if name not in TASKS:
        raise RefusedValue(f"there is no task {name!r}; tasks: {', '.join(TASKS)}")
    return TASKS[name]


def task_of_class(name: str) -> type[Task]:
    """By the end of a model class's name, which tells its head: 'BertForMaskedLM' -> MaskedToken.

    Of other names, transformers may know the task: 'XLNetForQuestionAnsweringSimple' answers questions.
    """
    for task in TASKS.values():
        if name.endswith(task.heads):
            return task
    for task in TASKS.values():
        if name in class_names(task.auto_class):
            return task
    known = [head for task in TASKS.values() for head in task.heads]
    raise UnsupportedModelError(
        f"{name} has no head that tokenlight can explain; load one of the classes *{', *'.join(known)}"
    )


def task_of(model: PreTrainedModel, tokenizer: Any = None) -> Task:
    """The task of a model by its head."""
    return task_of_class(type(model).__name__)(model, tokenizer)


import_all(__path__, __name__)  # a file registers its task
