"""Tasks whose output is a label, and how labels are found by name or index."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import is_whole

NO_LABEL = "-1"  # the label of examples without one in GLUE's test sets


@dataclass(frozen=True)
class Labeled(Task):
    """A task whose output is a label."""

    @property
    def labels(self) -> dict[int, str]:
        return read_labels(self.model.config.id2label, self.outputs)

    @property
    def outputs(self) -> int:
        return head_outputs(self.model) or self.model.config.num_labels or 1

    def index(self, name: object) -> int:
        return self.check_output(label_index(name, self.labels))

    def check_output(self, index: int) -> int:
        """`config.id2label` may name more labels than the model has outputs."""
        if index >= self.outputs:
            raise RefusedValue(
                f"the label {self.labels[index]!r} is output {index} in config.id2label, but the model has only "
                f"{self.outputs} outputs: choose another label, or mend config.id2label"
            )
        return index

    def name_of(self, index: int) -> str:
        """The label with this index, without reading all labels where `config.id2label` has the usual form."""
        names: Any = self.model.config.id2label or {}  # with indices as keys, or their digits
        name = names.get(index) if type(self).labels is Labeled.labels else None
        return name if isinstance(name, str) and str(index) not in names else self.labels[index]

    def read_target(self, value: Any) -> Any:
        return None if value is None else self.check_output(label_in_data(value, self.labels))

    def gold(self, label: object, target: ResolvedTarget) -> int | None:
        if label is None or (str(label) == NO_LABEL and NO_LABEL not in self.labels.values()):
            return target.index
        return self.read_target(label)


def read_labels(names: Mapping[Any, Any] | None, outputs: int) -> dict[int, str]:
    """The names in `config.id2label`, one for each output; transformers' default names where there are none at all."""
    if not names:
        return {i: f"LABEL_{i}" for i in range(outputs)}
    labels: dict[int, str] = {}
    for key, name in names.items():
        if not (is_whole(key) or (isinstance(key, str) and key.isdecimal())) or not (
            isinstance(name, str) or is_whole(name)
        ):
            raise RefusedValue(
                f"config.id2label holds {key!r}: {name!r}; expected the index of an output and the name of its label"
            )
        if int(key) in labels:
            raise RefusedValue(
                f"config.id2label has two names for output {int(key)}, {labels[int(key)]!r} and {name!r}: "
                "name every output once"
            )
        labels[int(key)] = str(name)
    if missing := [i for i in range(outputs) if i not in labels]:
        raise RefusedValue(
            f"the model has {outputs} outputs, and config.id2label has no name for "
            f"{', '.join(map(str, missing[:10]))}: name every output, from 0 to {outputs - 1}, in config.id2label"
        )
    return labels


def head_outputs(model: PreTrainedModel) -> int | None:
    """The number of the head's outputs, from its last linear layer; None if only the configuration tells.

    `config.num_labels` is only the number of names in `config.id2label`.
    """
    if model.base_model is model:
        return None
    layers = [layer for child in model.children() if child is not model.base_model for layer in child.modules()]
    sizes = [size for layer in layers if isinstance(size := getattr(layer, "out_features", None), int)]
    if not sizes or model.config.num_labels in sizes:
        return None
    return sizes[-1]


def label_index(label: object, labels: Mapping[int, str]) -> int:
    """An index, or a label by name (upper and lower case are the same if that is unambiguous).

    A whole number is an index. A text is a name, or the digits of an index where no label has that name.
    """
    if is_whole(label) and label in labels:
        return int(label)
    exact = [i for i, name in labels.items() if name == label]
    loose = exact or [i for i, name in labels.items() if isinstance(label, str) and name.lower() == label.lower()]
    if not loose and isinstance(label, str) and label.isdecimal():  # the command line has no numbers
        loose = [i for i in labels if i == int(label)]
    if len(loose) != 1:
        raise RefusedValue(f"the model has no label {label!r}; it has {describe_labels(labels)}")
    return loose[0]


def label_in_data(value: object, labels: Mapping[int, str]) -> int:
    """The index of a label as data holds it: a name wins over an index.

    Only some formats tell 1 from "1", so a number is read as the text that it is written as, whatever the format.
    """
    return label_index(str(value) if is_whole(value) else value, labels)


def describe_labels(labels: Mapping[int, str]) -> str:
    return ", ".join(f"{i} ({name!r})" for i, name in list(labels.items())[:20])
