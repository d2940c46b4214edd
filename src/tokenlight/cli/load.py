"""Loads the model that a command names, or refuses it with a message of one line."""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from ssl import SSLError
from typing import Any
from urllib.error import HTTPError, URLError

from tokenlight.cli.app import escape_logs
from tokenlight.common.errors import RefusedValue

DEFAULT = "default"  # the name of the packaged model
CONFIGS = ("config.json", "adapter_config.json")  # every checkpoint has one of these
HUB = "https://huggingface.co"
DEVICES = ("cpu", "cuda", "xpu")
HUB_TIMEOUT = 10  # seconds


def load_model(name: str, task: str | None, trust_remote_code: bool = False, device: str | None = None) -> Any:
    """An explainer for the packaged model, a folder or a model of the Hub, on this device."""
    from rich.text import Text

    from tokenlight.common.console import SafeConsole

    with SafeConsole(stderr=True).status(Text(f"loading {name}")):  # shown on terminals only
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
            return load(folder if name.startswith("~") else name, task=task, trust_remote_code=trust_remote_code)
        except OSError as error:
            raise RefusedValue(f"there is no model in {name!r}: {first_sentence(error)}") from error
    if folder.exists() or name.startswith(("/", ".", "~")):
        problem = "this is a file" if folder.exists() else "there is no such folder"
        raise RefusedValue(f"cannot load {name!r}: expected a folder with a checkpoint, but {problem}")
    go_offline_without_hub(name)
    try:
        return load(name, task=task, trust_remote_code=trust_remote_code)
    except OSError as error:
        raise RefusedValue(f"cannot load {name!r}: there is no such folder, and {describe_hub_error(error)}") from error


def move_model(model: Any, device: str) -> None:
    """Move the model to the CPU or a GPU; refuses a device that is unknown or missing."""
    import torch

    try:
        torch_device = torch.device(device)
    except RuntimeError:
        torch_device = None
    if torch_device is not None and torch_device.type == "mps":
        raise RefusedValue(f"--device {device}: Apple's GPUs have no double precision, which tokenlight needs; use cpu")
    if torch_device is None or torch_device.type not in DEVICES:
        raise RefusedValue(f"--device {device}: expected {', '.join(DEVICES)}, or one of several GPUs such as cuda:1")
    try:
        model.to(torch_device)
    except (AssertionError, RuntimeError) as error:  # torch without CUDA, no such GPU, or not enough memory
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RefusedValue(f"--device {device}: the model cannot be moved there ({reason})") from error


def first_sentence(error: OSError) -> str:
    """The first sentence of transformers' message, which says what is missing; the rest is about the Hub."""
    line = str(error).removeprefix("Error ").partition("\n")[0]
    return line.partition(". ")[0].rstrip().rstrip(".")


def go_offline_without_hub(name: str) -> None:
    """Set huggingface_hub offline if the Hub cannot be reached: transformers would try for a minute, file by file.

    Refuses a model that is not in the cache then.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        problem = "the Hugging Face Hub was not asked, because HF_HUB_OFFLINE is set. Unset it"
    elif reason := why_unreachable(os.environ.get("HF_ENDPOINT") or HUB):
        problem = f"the Hugging Face Hub cannot be reached ({reason}). Check the connection"
    else:
        return
    if not in_cache(name):
        raise RefusedValue(f"cannot load {name!r}: there is no such folder, and {problem}, or name a folder")
    constants.HF_HUB_OFFLINE = True


def in_cache(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except HFValidationError:
        return False


def why_unreachable(address: str) -> str | None:
    """Why no server answers at an address, or None if one does; uses the proxies of the environment."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=HUB_TIMEOUT):
            return None
    except HTTPError as refusal:
        refusal.close()  # it holds the connection
        return None  # an error of a server is an answer, too
    except URLError as error:
        # transformers checks certificates in another way, and may accept this one.
        return None if isinstance(error.reason, SSLError) else describe_reason(error.reason)
    except OSError as error:
        return describe_reason(error)


def describe_reason(reason: str | BaseException) -> str:
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or "no answer"


def describe_hub_error(error: OSError) -> str:
    """Why the Hub has no such model, by the class of its error, which transformers wraps in an error of its own."""
    from huggingface_hub import errors

    for kind, description in (
        (errors.GatedRepoError, "the model on the Hub is gated: ask for access on its page, then run `hf auth login`"),
        (errors.RepositoryNotFoundError, "the Hub has no such model (for a private one, run `hf auth login` first)"),
        (errors.LocalEntryNotFoundError, "the Hub cannot be reached; parts of the model are missing in the cache"),
        (errors.EntryNotFoundError, "the Hub's repository of this name has no config.json"),
    ):
        if any(isinstance(cause, kind) for cause in causes(error)):
            return description
    return f"the Hub's model could not be loaded: {first_sentence(error)}"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
