"""Loads the model that a command names, or says in one line why there is none."""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from ssl import SSLError
from typing import Any
from urllib.error import HTTPError, URLError

from tokenlight.cli.app import escape_logs
from tokenlight.common.errors import RefusedValue

DEFAULT = "default"  # the name of the embedded model
CONFIGS = ("config.json", "adapter_config.json")  # every checkpoint has one of them
HUB = "https://huggingface.co"
DEVICES = ("cpu", "cuda", "xpu")
PATIENCE = 10  # seconds until the Hub counts as unreachable


def load_model(name: str, task: str | None, trust_remote_code: bool = False, device: str | None = None) -> Any:
    from rich.text import Text

    from tokenlight.common.console import SafeConsole

    with SafeConsole(stderr=True).status(Text(f"loading {name}")):  # on a terminal, while it lasts
        explainer = find_and_load(name, task, trust_remote_code)
        if device is not None:
            move_model(explainer.model, device)
        return explainer


def find_and_load(name: str, task: str | None, trust_remote_code: bool) -> Any:
    from transformers.utils.logging import disable_progress_bar

    from tokenlight.explain.load import load

    disable_progress_bar()
    escape_logs()
    if name == DEFAULT:
        return load(task=task)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in CONFIGS):
            raise RefusedValue(f"there is no model in {name!r}: expected a checkpoint, but there is no {CONFIGS[0]}")
        try:
            chosen = folder if name.startswith("~") else name
            return load(chosen, task=task, trust_remote_code=trust_remote_code)
        except OSError as error:
            raise RefusedValue(f"there is no model in {name!r}: {first_sentence(error)}") from error
    if folder.exists() or name.startswith(("/", ".", "~")):
        found = "this is a file" if folder.exists() else "there is no such folder"
        raise RefusedValue(f"cannot load {name!r}: expected a folder with a checkpoint, but {found}")
    look_for_hub(name)
    try:
        return load(name, task=task, trust_remote_code=trust_remote_code)
    except OSError as error:
        raise RefusedValue(f"cannot load {name!r}: there is no such folder, and {what_hub_said(error)}") from error


def move_model(model: Any, device: str) -> None:
    """To the CPU or a GPU, if it is there."""
    import torch

    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is not None and chosen.type == "mps":
        raise RefusedValue(
            f"--device {device}: Apple's GPUs have no double precision, which tokenlight needs; take cpu"
        )
    if chosen is None or chosen.type not in DEVICES:
        raise RefusedValue(f"--device {device}: expected {', '.join(DEVICES)}, or one of several such as cuda:1")
    try:
        model.to(chosen)
    except (AssertionError, RuntimeError) as error:  # torch without CUDA, no such GPU, or not enough memory
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RefusedValue(f"--device {device}: the model cannot be moved there ({reason})") from error


def first_sentence(error: OSError) -> str:
    """transformers explains at length how to reach the Hub; its first sentence says what is missing."""
    line = str(error).removeprefix("Error ").partition("\n")[0]
    return line.partition(". ")[0].rstrip().rstrip(".")


def look_for_hub(name: str) -> None:
    """Ask the Hub for a sign of life, once: transformers would try for a minute, file by file.

    Without one, the model must be in the cache, and nothing in this process asks the Hub again.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        trouble = "the Hugging Face Hub was not asked, because HF_HUB_OFFLINE is set. Unset it"
    elif reason := unreachable(os.environ.get("HF_ENDPOINT") or HUB):
        trouble = f"the Hugging Face Hub cannot be reached ({reason}). Check the connection"
    else:
        return
    if not in_cache(name):
        raise RefusedValue(f"cannot load {name!r}: there is no such folder, and {trouble}, or name a folder")
    constants.HF_HUB_OFFLINE = True


def in_cache(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except HFValidationError:
        return False


def unreachable(address: str) -> str | None:
    """Why nobody answers there, or None if somebody does; the proxies of the environment are used."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE):
            return None
    except HTTPError as refusal:
        refusal.close()  # it holds the connection
        return None  # an answer nevertheless
    except URLError as error:
        # transformers checks certificates in its own way, and may well get through.
        return None if isinstance(error.reason, SSLError) else in_words(error.reason)
    except OSError as error:
        return in_words(error)


def in_words(reason: str | BaseException) -> str:
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or "no answer"


def what_hub_said(error: OSError) -> str:
    """By the kinds of its errors, which transformers wraps in one of its own."""
    from huggingface_hub import errors

    for kind, said in (
        (errors.GatedRepoError, "the one on the Hub is gated: ask for access on its page, then run `hf auth login`"),
        (errors.RepositoryNotFoundError, "the Hub has no such model (for a private one, run `hf auth login` first)"),
        (errors.LocalEntryNotFoundError, "the Hub cannot be reached; parts of the model are missing in the cache"),
        (errors.EntryNotFoundError, "what the Hub has under this name holds no config.json"),
    ):
        if any(isinstance(one, kind) for one in causes(error)):
            return said
    return f"the Hub's could not be loaded: {first_sentence(error)}"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it came from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
