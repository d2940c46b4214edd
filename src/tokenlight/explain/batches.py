"""Batches: groups of texts of similar length, padded to one length."""

from collections.abc import Hashable, Iterable, Sequence

import torch

from tokenlight.methods.config import MethodConfig
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import embedding_rows, padding_id
from tokenlight.tasks.request import Request
from tokenlight.tasks.task import Task
from tokenlight.text.batch import Batch, collate, with_units
from tokenlight.text.tokenized_text import TokenizedText


def collate_texts(task: Task, tokenized_texts: Sequence[TokenizedText], device: torch.device | str) -> Batch:
    """Tokenized texts as a padded batch."""
    return collate(tokenized_texts, task.tokenizer, device, padding_id(task.model), embedding_rows(task.model))


def collate_requests(
    task: Task, requests: Sequence[Request], method_configs: Iterable[MethodConfig], device: torch.device | str
) -> Batch:
    """What the model reads for these requests, with the units that the methods remove or score together."""
    units = {config.full_options["units"] for config in method_configs if "units" in config.method.options}
    units |= {"tokens" for config in method_configs if config.contexts}
    batch = collate_texts(task, [request.model_input for request in requests], device)
    return with_units(batch, [request.tokenized_text for request in requests], units)


def group_by_length(
    task: Task, tokenized_texts: Sequence[TokenizedText], batch_size: int, kinds: Sequence[Hashable]
) -> list[list[int]]:
    """The indices of the texts of each batch: texts of similar length, and of one kind."""
    if len(set(map(len, tokenized_texts))) > 1 and behavior_of(task.model).equal_lengths:
        batch_size = 1
    order = sorted(range(len(tokenized_texts)), key=lambda i: len(tokenized_texts[i]))
    groups = [[i for i in order if kinds[i] == kind] for kind in dict.fromkeys(kinds)]
    return [group[i : i + batch_size] for group in groups for i in range(0, len(group), batch_size)]
