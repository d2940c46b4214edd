"""Labels: what they are called, and what people write for them."""

from dataclasses import dataclass

from tokenlight.tasks.targets import is_whole
from tokenlight.tasks.task import Task


@dataclass(frozen=True)
class Labelled(Task):
    """A task whose answer is a label."""

    @property
    def labels(self) -> dict[int, str]:
        return {int(i): name for i, name in (self.model.config.id2label or {}).items()}

    @property
    def outputs(self) -> int:
        return self.model.config.num_labels or 1

    def index(self, name: object) -> int:
        return label_index(name, self.labels)

    def name_of(self, index: int) -> str:
        return self.labels[index]


def label_index(label: object, labels: dict[int, str]) -> int:
    """An index, or a label by name (upper and lower case are the same if that is unambiguous)."""
    if is_whole(label) and label in labels:
        return int(label)
    exact = [i for i, name in labels.items() if name == label]
    loose = exact or [i for i, name in labels.items() if isinstance(label, str) and name.lower() == label.lower()]
    if not loose and isinstance(label, str) and label.isdecimal():  # the command line has no numbers
        loose = [i for i in labels if i == int(label)]
    if len(loose) != 1:
        raise ValueError(f"the model has no label {label!r}; it has {describe_labels(labels)}")
    return loose[0]


def describe_labels(labels: dict[int, str]) -> str:
    return ", ".join(f"{i} ({name!r})" for i, name in list(labels.items())[:20])
