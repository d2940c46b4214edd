"""Loads the weights of a checkpoint as the model of a task, or refuses them."""

import os
import pickle
import re
import traceback
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks.labels import Labeled
from tokenlight.tasks.task import Task

SHOWN_NAMES = 3  # of weights that are missing or not known
DAMAGED = "the file is damaged, or was not copied or downloaded to its end; get it again"
LABEL_KEYS = ("id2label", "num_labels")  # either says in config.json how many labels there are
Mismatch = tuple[str, Collection[int], Collection[int]]  # a weight's name, its shape in the file and in the model


def read_weights(
    model: str | Path, task: type[Task], shared: Mapping[str, Any], settings: Mapping[str, Any]
) -> PreTrainedModel:
    """The model for a task; `shared` are the settings that config, tokenizer and weights have in common.

    A classifier's config.json may not define its labels: transformers then assumes 2, and the number of outputs
    is taken from the weights of the head instead.
    """
    found, report = from_pretrained(model, task, settings)
    if wrong := list(report["mismatched_keys"]):
        outputs = head_outputs(wrong, found.config.num_labels) if issubclass(task, Labeled) else None
        if outputs is None or defines_labels(model, shared, settings):
            raise misfit(model, wrong)
        found, report = from_pretrained(model, task, {**settings, "num_labels": outputs})
        if report["mismatched_keys"]:  # no head: other weights have as many rows as there are labels by default
            raise misfit(model, wrong)
    if not hasattr(found, "peft_config"):  # the report of transformers 5.0 does not include the weights of an adapter
        refuse_random_weights(model, task.name, report["missing_keys"], report["unexpected_keys"])
        warn_of_unread_layers(model, found, report["unexpected_keys"])
    return found


def from_pretrained(model: str | Path, task: type[Task], settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model, and what transformers reports about its weights."""
    auto = getattr(transformers, task.auto_class)
    with readable_weights(model):
        return auto.from_pretrained(model, **{**settings, "output_loading_info": True, "ignore_mismatched_sizes": True})


def head_outputs(mismatches: Iterable[Mismatch], expected: int) -> int | None:
    """How many outputs the head of a checkpoint has, if that alone differs from the configuration."""
    found = {
        stored[0] if stored[1:] == made[1:] and made[0] == expected else None
        for stored, made in ((tuple(stored), tuple(made)) for _, stored, made in mismatches)
    }
    return found.pop() if len(found) == 1 else None


def defines_labels(model: str | Path, shared: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether config.json or the caller says how many labels there are."""
    written, _ = PreTrainedConfig.get_config_dict(model, **shared)
    return any(key in written or key in settings for key in LABEL_KEYS)


def misfit(model: str | Path, mismatches: Iterable[Mismatch]) -> ValueError:
    shown = sorted(f"{name} is {list(stored)} in the file, {list(made)} expected" for name, stored, made in mismatches)
    return RefusedValue(
        f"the weights of {model} do not fit its configuration: {shorten(shown, '; ')}. Correct config.json (for a "
        "classifier, id2label must name every output), or get files that belong together"
    )


def refuse_random_weights(model: str | Path, task: str, missing: Collection[str], unknown: Collection[str]) -> None:
    """transformers fills what a checkpoint lacks with random numbers, which mean nothing."""
    if not missing:
        return
    if (prefix := common_prefix(missing, unknown)) is not None:
        mapping = {f"^{re.escape(prefix)}": ""}
        raise RefusedValue(
            f"the names of the weights of {model} all begin with {prefix!r} ({min(unknown)}), which was put before "
            f"them when they were saved. Load it with tl.load({str(model)!r}, key_mapping={mapping!r}); "
            "model.save_pretrained(folder) then writes a checkpoint that needs no such setting"
        )
    other = ""
    if unknown:
        other = (
            f" It has weights that this model does not know: {shorten(sorted(unknown))}. If some of them are those "
            "under another name, pass key_mapping={pattern: name} to tl.load."
        )
    raise RefusedValue(
        f"{model} was not trained for {task}: it has no weights for {shorten(sorted(missing))}, and random ones would "
        f"mean nothing.{other} Name another checkpoint or task; or load the model yourself, and call "
        "tl.Explainer(model, tokenizer)"
    )


def warn_of_unread_layers(name: str | Path, model: nn.Module, unknown: Collection[str]) -> None:
    """Warn of layers in a file that transformers does not load, because the configuration has fewer layers.

    This is not an error: some checkpoints have additional layers for training or decoding, such as those that predict
    several tokens at once.
    """
    layers = unread_layers(model, unknown)
    if not layers:
        return
    counts = ", ".join(f"{count} in {place}" for place, count in dict.fromkeys(found[:2] for found in layers))
    unread = shorten([f"{place}.{number}" for place, _, number in layers])
    warnings.warn(
        f"the weights of {name} hold layers that its configuration does not count ({counts}), and they were left out: "
        f"{unread}. Unless these serve another purpose, this is not the model that was trained: correct the number of "
        "layers in config.json, or get files that belong together",
        RuntimeWarning,
        stacklevel=5,  # the caller of tl.load
    )


def unread_layers(model: nn.Module, unknown: Iterable[str]) -> list[tuple[str, int, int]]:
    """Layers that only the file has: the name of their list in the model, how long it is, and the number in the file.

    Names in a file may lack the beginning that they have in the model, or have more of it.
    """
    lists = {name: len(module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    found = set[tuple[str, int, int]]()
    for key in unknown:
        parts = key.split(".")
        for i, part in enumerate(parts):
            stored = ".".join(parts[:i])
            same = (name for name in lists if part.isdecimal() and is_end_of_other(name, stored))
            place = next(same, None)
            if place is not None and int(part) >= lists[place]:
                found.add((place, lists[place], int(part)))
                break
    return sorted(found)


def is_end_of_other(name: str, other: str) -> bool:
    """Whether one of two dotted names ends with the other."""
    return bool(name and other) and (f".{name}".endswith(f".{other}") or f".{other}".endswith(f".{name}"))


def common_prefix(missing: Collection[str], unknown: Collection[str]) -> str | None:
    """What stands before every missing name in the file, as where a wrapper of the model was saved."""
    first = min(missing)
    prefixes = (name.removesuffix(first) for name in sorted(unknown) if name.endswith(first))
    return next((prefix for prefix in prefixes if {prefix + name for name in missing} <= set(unknown)), None)


def shorten(items: list[str], between: str = ", ") -> str:
    more = f" and {len(items) - SHOWN_NAMES} more" if len(items) > SHOWN_NAMES else ""
    return between.join(items[:SHOWN_NAMES]) + more


@contextmanager
def readable_weights(model: str | Path) -> Iterator[None]:
    """Raise errors about files of weights with what to do; torch's message advises to execute code from the file."""
    try:
        yield
    except SafetensorError as error:
        raise RefusedValue(f"the weights of {model} cannot be read ({error}): {DAMAGED}") from error
    except pickle.UnpicklingError as error:
        reason = str(error.__context__ or "").partition("\n")[0].rstrip(".")
        what = f" ({reason})" if reason and "weights_only" not in reason else ""
        raise RefusedValue(
            f"the weights of {model} are in a pickle file that holds more than numbers, or is damaged{what}: it was "
            "not read, because reading it could run code. Take a checkpoint with .safetensors files, or convert this "
            "one where it was made: model.save_pretrained(folder)"
        ) from None
    except (AttributeError, TypeError, ValueError) as error:
        if not (others := entries_that_are_not_tensors(model)):
            raise
        raise RefusedValue(
            f"the file of weights of {model} holds {shorten(others)}, which are no weights; expected a mapping of "
            "names to tensors, as model.save_pretrained(folder) writes it. A training program's file often holds that "
            "mapping under one of its keys: save that alone"
        ) from error
    except (RuntimeError, KeyError, EOFError, OSError) as error:
        if not from_unpickling(error):
            raise
        reason = str(error).partition(". ")[0]
        raise RefusedValue(f"the weights of {model} cannot be read ({reason}): {DAMAGED}") from error


def entries_that_are_not_tensors(model: str | Path) -> list[str]:
    """Names of the entries of a folder's pickle file of weights that are not tensors."""
    file = Path(os.path.expanduser(model), transformers.utils.WEIGHTS_NAME)
    if not file.is_file():
        return []
    content = torch.load(file, map_location="meta", weights_only=True)
    if not isinstance(content, dict):
        return [type(content).__name__]
    return [repr(name) for name, value in content.items() if not isinstance(value, torch.Tensor)]


def from_unpickling(error: BaseException) -> bool:
    """Whether the error came up while torch read a file."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).name in ("serialization.py", "_weights_only_unpickler.py")
