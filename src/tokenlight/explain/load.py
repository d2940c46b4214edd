"""Loads a checkpoint by name or path as an Explainer."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from tokenlight.common.errors import RefusedType, RefusedValue, UnsupportedModelError
from tokenlight.explain.checkpoint_weights import read_weights
from tokenlight.explain.explainer import Explainer
from tokenlight.tasks import TASKS, find_task, task_of_class

# Settings that say which files are read, and how: config and tokenizer are read in the same way as the weights.
ABOUT_FILES = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")

CONFIG = "config.json"
NAMING_CODE = (CONFIG, "tokenizer_config.json")  # their "auto_map" names the checkpoint's own Python classes


def load(
    model: str | Path | None = None, *, task: str | None = None, trust_remote_code: bool = False, **settings: Any
) -> Explainer:
    """An explainer for a checkpoint by name or path; without one, for the sentiment model inside the package.

    `task` is read from the checkpoint's config if not given; `settings` go to `from_pretrained` (dtype, device_map,
    revision). Python code that comes with a checkpoint runs only with `trust_remote_code=True`.
    """
    if model is None:
        return embedded_explainer(task, settings)
    if not isinstance(model, str | os.PathLike):
        raise RefusedType(f"a checkpoint is named by a text or a path; found {type(model).__name__}: {model!r}")
    refuse_missing_folder(model)
    # Always passed on: without it, transformers asks on standard input whether to run the code.
    settings["trust_remote_code"] = bool(trust_remote_code)
    shared = {name: value for name, value in settings.items() if name in (*ABOUT_FILES, "trust_remote_code")}
    with refuse_own_code(model, shared), readable_config(model, shared):
        return read_checkpoint(model, task, shared, settings)


def embedded_explainer(task: str | None, settings: Mapping[str, Any]) -> Explainer:
    """The sentiment model inside the package, which is as it is."""
    from tokenlight.embedded import load_embedded

    explainer = Explainer(*load_embedded())
    if task is not None and find_task(task) is not type(explainer.task):
        raise RefusedValue(
            f"task={task!r}: the model inside the package is a {explainer.task.name} model; name another"
        )
    if settings:
        raise RefusedType(
            f"{', '.join(settings)}: settings are for a checkpoint that is named, tl.load(name, ...). The model inside "
            "the package takes none; change it afterwards, as by tl.load().model.double()"
        )
    return explainer


def refuse_missing_folder(model: str | os.PathLike[str]) -> None:
    """What is plainly a path, and leads nowhere: transformers would look for it on the Hub."""
    is_path = not isinstance(model, str) or model.startswith(("/", "./", "../", "~"))
    if is_path and not Path(model).expanduser().exists():
        raise RefusedValue(
            f"there is no folder {str(model)!r}: expected a checkpoint there, with config.json and weights"
        )


def read_checkpoint(
    model: str | Path, task: str | None, shared: Mapping[str, Any], settings: Mapping[str, Any]
) -> Explainer:
    """`shared` are the settings that config, tokenizer and weights have in common."""
    chosen = task_of_class(architecture(model, shared)) if task is None else find_task(task)
    tokenizer = read_tokenizer(model, shared)
    return Explainer(read_weights(model, chosen, shared, settings).eval(), tokenizer)


def architecture(model: str | Path, shared: Mapping[str, Any]) -> str:
    """The model class that a checkpoint's config.json names."""
    names = AutoConfig.from_pretrained(model, **shared).architectures
    if not names:
        raise UnsupportedModelError(
            f"{model}: its config.json names no architecture, so its task is not known. Name it with task= or --task: "
            f"{', '.join(TASKS)}"
        )
    return names[0]


@contextmanager
def refuse_own_code(model: str | Path, shared: Mapping[str, Any]) -> Iterator[None]:
    """Inside, where transformers refuses to run a checkpoint's own code, the error names the code and the option."""
    try:
        yield
    except ValueError as error:
        if shared["trust_remote_code"] or "trust_remote_code=True" not in str(error):
            raise
        raise not_run(model, own_code(model, shared)) from error


@contextmanager
def readable_config(model: str | Path, shared: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error about quantization_config if transformers fails because it is invalid."""
    try:
        yield
    except (AttributeError, TypeError, KeyError) as error:
        path = local_file(model, CONFIG, shared)
        config = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
        quantized = config.get("quantization_config")
        if quantized is None or isinstance(quantized, dict):
            raise
        raise RefusedValue(
            f"{path} holds quantization_config: {quantized!r}; expected an object that says how the weights are "
            'quantized, such as {"quant_method": ...}: correct it, or remove it where the weights are not quantized'
        ) from error


def not_run(model: str | Path, classes: Sequence[str]) -> ValueError:
    return RefusedValue(
        f"{model} can only be loaded by running Python code that comes with it ({', '.join(classes) or 'auto_map'}), "
        "and such code can do anything on this machine: it was not run. Read it; if you trust it, pass "
        "trust_remote_code=True to tl.load, or --trust-remote-code on the command line"
    )


def own_code(model: str | Path, shared: Mapping[str, Any], files: Sequence[str] = NAMING_CODE) -> list[str]:
    """Which classes of its own a checkpoint names, and where."""
    named: list[str] = []
    for file in files:
        path = local_file(model, file, shared)
        if path is None:
            continue
        try:
            classes = json.loads(path.read_text(encoding="utf-8"))["auto_map"]
            named += [f"{name} in {file}" for name in flat(classes.values() if isinstance(classes, dict) else classes)]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return named


def flat(names: Iterable[Any]) -> Iterator[str]:
    """Tokenizers name two classes, a slow one and a fast one; one of them may be missing."""
    for name in names:
        if isinstance(name, str):
            yield name
        elif isinstance(name, list | tuple):
            yield from flat(name)


def local_file(model: str | Path, file: str, shared: Mapping[str, Any]) -> Path | None:
    """A file of a checkpoint that is a folder, or that was downloaded."""
    folder = Path(model).expanduser()
    within = Path(shared.get("subfolder") or "") / file
    if folder.is_dir():
        return folder / within if (folder / within).is_file() else None
    places = {name: shared[name] for name in ("cache_dir", "revision") if shared.get(name) is not None}
    try:
        cached = try_to_load_from_cache(str(model), within.as_posix(), **places)
    except HFValidationError:
        return None
    return Path(cached) if isinstance(cached, str) else None


def read_tokenizer(model: str | Path, settings: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    """Read the tokenizer; refuse one with special tokens only, which transformers may make if there is no other."""
    expected = (
        "expected tokenizer.json or a vocabulary beside the weights, as tokenizer.save_pretrained(folder) writes it"
    )
    own = [] if settings["trust_remote_code"] else own_code(model, settings, NAMING_CODE[1:])
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, **settings)
    except ValueError as error:
        if own:
            raise not_run(model, own) from error
        if "trust_remote_code=True" in str(error):
            raise  # the caller says which code
        reason = str(error).partition("\n")[0].rstrip(": ")
        raise RefusedValue(f"the tokenizer of {model} cannot be read ({reason}): {expected}") from error
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise not_run(model, own) if own else RefusedValue(f"{model} holds no tokenizer: {expected}")
    return tokenizer
